"""Codex's hooks: `PreToolUse`, `PermissionRequest` and `Stop`, in Claude Code's format with differences.

Codex's `PreToolUse` hook can block but not allow: "allow" is an error there, after which the tool runs. So an allowed
operation is answered with nothing. Codex's own approval, if needed, comes as a `PermissionRequest`.
"""

from __future__ import annotations

from typing import Any

from intercom.agents.hook import claude_code
from intercom.agents.hook.claude_code import PRE, deny, go_on, pass_on
from intercom.agents.hook.question import Asked, Said

NAME = "codex"


def read(data: dict[str, Any], event: str | None) -> Asked:
    """Return the request in a payload. Raises Unreadable for a payload that this client does not send."""
    return claude_code.read(data, event, NAME)


def allow(event: str, why: str) -> Said:
    """Allow the operation."""
    return pass_on(event) if event == PRE else claude_code.allow(event, why)


__all__ = ["NAME", "allow", "deny", "go_on", "pass_on", "read"]
