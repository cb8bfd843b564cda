"""Copilot CLI's hooks: `preToolUse`, `permissionRequest` and `agentStop`, in its own spelling and in VS Code's.

A command hook of `preToolUse` that fails denies, and one that runs out of time lets pass; `permissionRequest` comes
before Copilot's own rules are asked.
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
    """What is asked. Raises Unreadable when it is not what this client sends."""
    # Its own spelling does not name the event: the command line of the hook does.
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
    """It may be done."""
    if event in _PERMISSION:
        return Said(json.dumps({"behavior": "allow"}))
    return Said(json.dumps({"permissionDecision": "allow", "permissionDecisionReason": why}))


def deny(event: str, why: str) -> Said:
    """It may not."""
    if event in _PERMISSION:
        return Said(json.dumps({"behavior": "deny", "message": why}))
    return Said(json.dumps({"permissionDecision": "deny", "permissionDecisionReason": why}))


def pass_on(_event: str) -> Said:
    """Nothing is said: Copilot does as it would without this hook."""
    return Said("{}")


def go_on(_event: str, words: str) -> Said:
    """The agent does not stop yet, and is told this."""
    return Said(json.dumps({"decision": "block", "reason": words}))
