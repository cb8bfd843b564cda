"""Copilot CLI's hooks: `preToolUse`, `permissionRequest` and `agentStop`, in its own spelling and in VS Code's.

A `preToolUse` command hook that fails denies, and one that times out lets the tool pass. `permissionRequest` comes
before Copilot's own rules.
"""

from __future__ import annotations

import json
from typing import Any

from intercom.agents.hook import tools
from intercom.agents.hook.claude_code import unknown
from intercom.agents.hook.fields import event_of, table, text
from intercom.agents.hook.question import Asked, Question, Said, Stopping, Unreadable

NAME = "copilot-cli"
_PERMISSION = ("permissionRequest", "PermissionRequest")
_PRE = ("preToolUse", "PreToolUse")
_STOPS = ("agentStop", "subagentStop", "Stop", "SubagentStop")


def read(data: dict[str, Any], event: str | None) -> Asked:
    """Return the request in a payload. Raises Unreadable for a payload that this client does not send."""
    # Payloads in its own spelling do not name the event: the hook's command line does.
    known = (*_PRE, *_PERMISSION, *_STOPS)
    event = event_of(data, event, known, "hook_event_name", "hookEventName") or "preToolUse"
    conversation, cwd = text(data, "sessionId", "session_id") or "", text(data, "cwd")
    if event in _STOPS:
        return Stopping(NAME, event, conversation, cwd)
    tool = text(data, "toolName", "tool_name")
    if event not in (*_PRE, *_PERMISSION):
        return unknown(event, tool)
    if tool is None:
        raise Unreadable("it has no toolName")
    given = table(data, "toolArgs", "toolInput", "tool_input", "tool_args")
    return Question(NAME, event, tools.operation(tool, given, cwd), conversation, "", None, cwd)


def allow(event: str, why: str) -> Said:
    """Allow the operation."""
    if event in _PERMISSION:
        return Said(json.dumps({"behavior": "allow"}))
    return Said(json.dumps({"permissionDecision": "allow", "permissionDecisionReason": why}))


def deny(event: str, why: str) -> Said:
    """Deny the operation."""
    if event in _PERMISSION:
        return Said(json.dumps({"behavior": "deny", "message": why}))
    return Said(json.dumps({"permissionDecision": "deny", "permissionDecisionReason": why}))


def pass_on(_event: str) -> Said:
    """Answer nothing: Copilot continues as without this hook."""
    return Said("{}")


def go_on(_event: str, words: str) -> Said:
    """Keep the agent from stopping, and give it this text."""
    return Said(json.dumps({"decision": "block", "reason": words}))
