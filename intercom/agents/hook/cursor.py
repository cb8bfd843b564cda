"""Cursor's hooks: `preToolUse`, `beforeShellExecution`, `beforeMCPExecution`, `beforeReadFile` and `stop`.

`preToolUse` comes for every tool, without the MCP server of a tool. So MCP tools are left to `beforeMCPExecution`. A
hook that fails lets the tool pass unless its entry says `failClosed`, as ours does.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

from intercom.agents.hook import tools
from intercom.agents.hook.claude_code import unknown
from intercom.agents.hook.fields import canonical, event_of, table, text, texts
from intercom.agents.hook.question import (
    INNER,
    OWN,
    READ,
    Asked,
    Operation,
    Question,
    Said,
    Stopping,
    Unreadable,
)

NAME = "cursor"
_TOOL, _SHELL, _MCP, _READ, _STOP = (
    "preToolUse",
    "beforeShellExecution",
    "beforeMCPExecution",
    "beforeReadFile",
    "stop",
)
#: The event names of Cursor's loader of Claude Code's hooks.
_ALIASES = {"PreToolUse": _TOOL, "Stop": _STOP}


def read(data: dict[str, Any], event: str | None) -> Asked:
    """Return the request in a payload. Raises Unreadable for a payload that this client does not send."""
    event = event_of(data, event, (_TOOL, _SHELL, _MCP, _READ, _STOP, *_ALIASES), "hook_event_name") or _TOOL
    event = _ALIASES.get(event, event)
    roots = tuple(texts(data, "workspace_roots"))
    conversation = text(data, "conversation_id", "session_id") or ""
    cwd = text(data, "cwd") or (roots[0] if roots else None)
    if event == _STOP:
        return Stopping(NAME, event, conversation, cwd, roots)
    if event not in (_TOOL, _SHELL, _MCP, _READ):
        return unknown(event, text(data, "tool_name", "command"))
    turn, use = text(data, "generation_id") or "", text(data, "tool_use_id")
    return Question(NAME, event, _operation(data, event, cwd), conversation, turn, use, cwd, roots)


def _operation(data: dict[str, Any], event: str, cwd: str | None) -> Operation:
    if event == _SHELL:
        line = text(data, "command")
        if line is None:
            raise Unreadable("it has no command")
        return tools.command("Shell", {"command": line}, cwd)
    if event == _READ:
        path = text(data, "file_path")
        if path is None:
            raise Unreadable("it has no file_path")
        return Operation(READ, "Read", f"Read {path}", path, (), canonical([READ, path]), cwd, path)
    tool = text(data, "tool_name")
    if tool is None:
        raise Unreadable("it has no tool_name")
    given = table(data, "tool_input", "arguments")
    if event == _MCP:
        return Operation(OWN, tool) if _is_ours(data, tool) else tools.mcp(f"mcp:{tool}", given, _server(data))
    if tool == "MCP" or tool.startswith("MCP:"):
        return Operation(INNER, tool)
    return tools.operation(tool, given, cwd)


def _server(data: dict[str, Any]) -> str | None:
    """Return what identifies a tool's MCP server: a tool of the same name on another server may do anything."""
    return text(data, "mcp_server_name", "server") or text(data, "url", "command")


def _is_ours(data: dict[str, Any], tool: str) -> bool:
    server = text(data, "mcp_server_name", "server")
    if server is not None:
        return tools.is_own(tool, server)
    try:
        words = shlex.split(text(data, "command") or "")
    except ValueError:
        return False
    return bool(words) and os.path.basename(words[0]) == tools.OUR_SERVER and tool in tools.OUR_TOOLS


def allow(_event: str, why: str) -> Said:
    """Allow the operation."""
    return Said(json.dumps({"permission": "allow", "agent_message": why}))


def deny(_event: str, why: str) -> Said:
    """Deny the operation."""
    return Said(json.dumps({"permission": "deny", "user_message": why, "agent_message": why}))


def pass_on(event: str) -> Said:
    """Do not object. Cursor treats an answer of the wrong form as an error, and then blocks."""
    return Said("{}" if event == _STOP else json.dumps({"permission": "allow"}))


def go_on(_event: str, words: str) -> Said:
    """Keep the agent from stopping, and give it this text."""
    return Said(json.dumps({"followup_message": words}))
