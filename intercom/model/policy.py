"""A workspace's auto-approve policy, as a value. Denies everything unless it says otherwise."""

from __future__ import annotations

from attrs import field, frozen

from intercom.model.approval import RiskLevel


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


DENY_ALL = WorkspacePolicy()


@frozen
class PolicyAnswer:
    """`matched_rule` is "command:<glob>", "tool:<name>" or "file_pattern:<write|read>:<glob>"; `why` says in words why
    nothing was granted."""

    auto_approved: bool
    matched_rule: str | None = None
    why: str | None = None
