"""A workspace's auto-approve policy, as a value, and what people decide about it.

A policy denies everything unless it says otherwise, and counts when a person accepted its content.
"""

from __future__ import annotations

import hashlib
import json

from attrs import field, frozen

from intercom.model.approval import RiskLevel
from intercom.model.verdict import Decided


@frozen
class FilePatterns:
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


@frozen
class WorkspacePolicy:
    enabled: bool = False
    commands: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    file_patterns: FilePatterns = field(factory=FilePatterns)
    risk_level_threshold: RiskLevel = RiskLevel.LOW
    log_auto_approved: bool = False
    summary_interval_seconds: int = 300

    @property
    def grants(self) -> bool:
        """Whether anything at all may pass by it."""
        patterns = self.file_patterns
        return self.enabled and bool(self.commands or self.tools or patterns.write or patterns.read)


DENY_ALL = WorkspacePolicy()


@frozen
class PolicyAnswer:
    """`matched_rule` is "command:<glob>", "tool:<name>" or "file_pattern:<write|read>:<glob>"; `why` says in words why
    nothing was granted."""

    auto_approved: bool
    matched_rule: str | None = None
    why: str | None = None


@frozen
class PolicyDecision:
    """What a person said about the content of a workspace's policy file. `id` is that of the card they answered,
    `sha256` that of the file's bytes, and `text` is those bytes as text, a byte order mark included."""

    id: str
    workspace_root: str
    sha256: str
    text: str
    accepted: bool
    decided: Decided

    @property
    def is_sound(self) -> bool:
        """Whether the text is the content that was decided on."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest() == self.sha256


def describe(policy: WorkspacePolicy) -> str:
    """What a policy grants, in one line."""
    patterns = policy.file_patterns
    parts = [
        _counted("command", policy.commands),
        _counted("tool", policy.tools),
        _counted("write pattern", patterns.write),
        _counted("read pattern", patterns.read),
    ]
    named = [part for part in parts if part is not None]
    if not policy.enabled or not named:
        return "nothing"
    return f"{', '.join(named)}, up to risk {policy.risk_level_threshold}"


#: How many rules of a kind a line names.
_NAMED = 3


def _counted(what: str, rules: tuple[str, ...]) -> str | None:
    if not rules:
        return None
    shown = ", ".join(json.dumps(rule) for rule in rules[:_NAMED])
    more = ", ..." if len(rules) > _NAMED else ""
    return f"{len(rules)} {what}{'' if len(rules) == 1 else 's'} ({shown}{more})"
