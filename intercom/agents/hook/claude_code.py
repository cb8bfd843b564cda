"""Claude Code's hooks: `PreToolUse`, `PermissionRequest` and `Stop` (docs/how-to/enforce-with-hooks.md).

A `PreToolUse` hook that allows skips Claude Code's own question. A hook that fails with another exit code than 2, or is
late, passes the tool to the normal permission flow. So this hook always answers, and in time.
"""

from __future__ import annotations

import json
from typing import Any

from intercom.agents.hook import tools
from intercom.agents.hook.fields import event_of, table, text
from intercom.agents.hook.question import Asked, Other, Question, Said, Stopping, Unreadable

NAME = "claude-code"
PRE, PERMISSION = "PreToolUse", "PermissionRequest"
STOPS = ("Stop", "SubagentStop")


def read(data: dict[str, Any], event: str | None, client: str = NAME) -> Asked:
    """Return the request in a payload. Raises Unreadable for a payload that this client does not send."""
    event = event_of(data, event, (PRE, PERMISSION, *STOPS), "hook_event_name") or PRE
    conversation, cwd = text(data, "session_id") or "", text(data, "cwd")
    if event in STOPS:
        return Stopping(client, event, conversation, cwd)
    tool = text(data, "tool_name")
    if event not in (PRE, PERMISSION):
        return unknown(event, tool)
    if tool is None:
        raise Unreadable("it has no tool_name")
    found = tools.operation(tool, table(data, "tool_input"), cwd)
    # Codex names the turn; Claude Code does not.
    turn = text(data, "turn_id") or ""
    return Question(client, event, found, conversation, turn, text(data, "tool_use_id"), cwd)


def unknown(event: str, tool: str | None) -> Other:
    """Return an unknown event, about which nothing is asked. Raises Unreadable if it is about a tool, so none passes
    unasked."""
    if tool is not None:
        raise Unreadable(f"its event {event[:80]!r} is not one that can be answered")
    return Other(event)


def allow(event: str, why: str) -> Said:
    """Allow the operation without a question of the client's own."""
    if event == PERMISSION:
        return _said(event, {"decision": {"behavior": "allow"}})
    return _said(event, {"permissionDecision": "allow", "permissionDecisionReason": why})


def deny(event: str, why: str) -> Said:
    """Deny the operation."""
    if event == PERMISSION:
        return _said(event, {"decision": {"behavior": "deny", "message": why}})
    return _said(event, {"permissionDecision": "deny", "permissionDecisionReason": why})


def pass_on(_event: str) -> Said:
    """Answer nothing: the client continues as without this hook."""
    return Said("{}")


def go_on(_event: str, words: str) -> Said:
    """Keep the agent from stopping, and give it this text."""
    return Said(json.dumps({"decision": "block", "reason": words}))


def _said(event: str, decision: dict[str, Any]) -> Said:
    return Said(json.dumps({"hookSpecificOutput": {"hookEventName": event, **decision}}))
