"""Claude Code's hooks: `PreToolUse`, `PermissionRequest` and `Stop` (docs/how-to/enforce-with-hooks.md).

A `PreToolUse` hook that allows skips Claude Code's own question. One that fails in any way but exit code 2, or does
not answer in time, lets the tool pass to the normal permission flow; so this one answers always, and in time.
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
    """What is asked. Raises Unreadable when it is not what this client sends."""
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
    """An event that nothing is known of asks nothing; but one about a tool is not let pass for that. Raises
    Unreadable."""
    if tool is not None:
        raise Unreadable(f"its event {event[:80]!r} is not one that can be answered")
    return Other(event)


def allow(event: str, why: str) -> Said:
    """It may be done, without a question of the client's own."""
    if event == PERMISSION:
        return _said(event, {"decision": {"behavior": "allow"}})
    return _said(event, {"permissionDecision": "allow", "permissionDecisionReason": why})


def deny(event: str, why: str) -> Said:
    """It may not."""
    if event == PERMISSION:
        return _said(event, {"decision": {"behavior": "deny", "message": why}})
    return _said(event, {"permissionDecision": "deny", "permissionDecisionReason": why})


def pass_on(_event: str) -> Said:
    """Nothing is said: the client does as it would without this hook."""
    return Said("{}")


def go_on(_event: str, words: str) -> Said:
    """The agent does not stop yet, and is told this."""
    return Said(json.dumps({"decision": "block", "reason": words}))


def _said(event: str, decision: dict[str, Any]) -> Said:
    return Said(json.dumps({"hookSpecificOutput": {"hookEventName": event, **decision}}))
