"""Cursor.

Its hook `preToolUse` comes for every tool, without the MCP server of a tool. So MCP tools are left to
`beforeMCPExecution`. A hook that fails lets the tool pass unless its entry says `failClosed`, as ours does. Cursor also
runs the hooks of Claude Code's settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from intercom.agents.clients import builtin_tools
from intercom.agents.clients.client import (
    INNER,
    OWN,
    READ,
    SERVER_NAME,
    TOKEN_VARIABLE,
    Client,
    Entry,
    HookEvent,
    Hooks,
    Location,
    Operation,
    Question,
    Stopping,
    Unreadable,
    bearer,
    canonical,
    event_of,
    table,
    text,
    texts,
    unknown,
)
from intercom.model.json_types import Json, JsonObject


def _stdio(start: list[str]) -> JsonObject:
    return {"type": "stdio", "command": start[0], "args": start[1:]}


def _http(url: str, token: bool) -> JsonObject:
    return {"url": url, **bearer(f"${{env:{TOKEN_VARIABLE}}}", token=token)}


_TOOL, _SHELL, _MCP, _READ, _STOP = (
    "preToolUse",
    "beforeShellExecution",
    "beforeMCPExecution",
    "beforeReadFile",
    "stop",
)
#: The event names of its loader of Claude Code's hooks.
_ALIASES = {"PreToolUse": _TOOL, "Stop": _STOP}


class CursorHooks(Hooks):
    """Cursor's hooks."""

    mcp_name = "cursor"
    file = Location("hooks.json", ".cursor")
    asks = (_TOOL, _SHELL, _MCP)
    stops = (_STOP,)
    head: Mapping[str, Json] = {"version": 1}

    def entry(self, command: str, seconds: int, *, asks: bool) -> JsonObject:
        return {"command": command, "timeout": seconds, **({"failClosed": True} if asks else {})}

    def sent(self, data: JsonObject) -> bool:
        return "cursor_version" in data

    def read(self, data: JsonObject, event: str | None) -> HookEvent:
        event = event_of(data, event, (_TOOL, _SHELL, _MCP, _READ, _STOP, *_ALIASES), "hook_event_name") or _TOOL
        event = _ALIASES.get(event, event)
        roots = tuple(texts(data, "workspace_roots"))
        conversation = text(data, "conversation_id", "session_id") or ""
        cwd = text(data, "cwd") or (roots[0] if roots else None)
        if event == _STOP:
            return Stopping(event, conversation, cwd, roots)
        if event not in (_TOOL, _SHELL, _MCP, _READ):
            return unknown(event, text(data, "tool_name", "command"))
        turn, use = text(data, "generation_id") or "", text(data, "tool_use_id")
        return Question(event, _operation(data, event, cwd), conversation, turn, use, cwd, roots)

    def decide(self, event: str, allow: bool, why: str) -> JsonObject:
        if allow:
            return {"permission": "allow", "agent_message": why}
        return {"permission": "deny", "user_message": why, "agent_message": why}

    def pass_on(self, event: str) -> JsonObject:
        # Cursor treats an answer of the wrong form as an error, and then blocks.
        return {} if event == _STOP else {"permission": "allow"}

    def continue_with(self, event: str, text: str) -> JsonObject:
        return {"followup_message": text}


def _operation(data: JsonObject, event: str, cwd: str | None) -> Operation:
    if event == _SHELL:
        return builtin_tools.command("Shell", {"command": _needed(data, "command")}, cwd)
    if event == _READ:
        path = _needed(data, "file_path")
        return Operation(READ, "Read", f"Read {path}", path, (), canonical([READ, path]), cwd, path)
    tool, given = _needed(data, "tool_name"), table(data, "tool_input", "arguments")
    if event == _MCP:
        return Operation(OWN, tool) if _is_ours(data, tool) else builtin_tools.mcp(f"mcp:{tool}", given, _server(data))
    if tool == "MCP" or tool.startswith("MCP:"):
        return Operation(INNER, tool)
    return builtin_tools.operation(tool, given, cwd)


def _needed(data: JsonObject, name: str) -> str:
    found = text(data, name)
    if found is None:
        raise Unreadable(f"it has no {name}")
    return found


def _server(data: JsonObject) -> str | None:
    """Return what identifies a tool's MCP server: a tool of the same name on another server may do anything."""
    return text(data, "mcp_server_name", "server") or text(data, "url", "command")


def _is_ours(data: JsonObject, tool: str) -> bool:
    server = text(data, "mcp_server_name", "server")
    if server is None:
        import shlex

        try:
            words = shlex.split(text(data, "command") or "")
        except ValueError:
            return False
        server = os.path.basename(words[0]) if words else ""
    return server == SERVER_NAME and tool in builtin_tools.own_tools()


CLIENT = Client(
    "cursor",
    call_waits={"cursor": 50.0},
    entry=Entry(
        Location("mcp.json", ".cursor"),
        "mcpServers",
        _stdio,
        _http,
        "Cursor has no setting for the time a call may take: long waits are answered pending and asked for again.",
    ),
    hooks=CursorHooks(),
)
