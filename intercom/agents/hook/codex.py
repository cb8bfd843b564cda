"""Codex's hooks: `PreToolUse`, `PermissionRequest` and `Stop`, in Claude Code's words with differences.

A `PreToolUse` hook of Codex can block and not allow: saying "allow" there is a fault, after which the tool runs. What
is allowed is answered with nothing, and Codex's own approval, if it wants one, comes as a `PermissionRequest`.
"""

from __future__ import annotations

from typing import Any

from intercom.agents.hook import claude_code
from intercom.agents.hook.claude_code import PRE, deny, go_on, pass_on
from intercom.agents.hook.question import Asked, Said

NAME = "codex"


def read(data: dict[str, Any], event: str | None) -> Asked:
    """What is asked. Raises Unreadable when it is not what this client sends."""
    return claude_code.read(data, event, NAME)


def allow(event: str, why: str) -> Said:
    """It may be done."""
    return pass_on(event) if event == PRE else claude_code.allow(event, why)


__all__ = ["NAME", "allow", "deny", "go_on", "pass_on", "read"]
