"""Comparison of two policies: whether one grants more. What is not provably the same counts as more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from intercom.model.approval import RiskLevel
from intercom.model.policy import FilePatterns, WorkspacePolicy
from intercom.workspace.tool_names import canonical


def widens(old: WorkspacePolicy, new: WorkspacePolicy) -> tuple[str, ...]:
    """Return the ways in which `new` grants more than `old`, in words; none if `old` allows all that `new` allows.

    Rules are compared as spelled: a new one counts even if an old one covers it. Showing people less of what was
    allowed, or showing it later, counts too.
    """
    return tuple(_ways(old, new))


def narrowed(old: WorkspacePolicy, new: WorkspacePolicy) -> WorkspacePolicy:
    """Return what both grant: `new` without the ways in which it grants more, so `widens(old, it)` is empty."""
    tools = {canonical(name) for name in old.tools}
    return WorkspacePolicy(
        enabled=old.enabled and new.enabled,
        commands=_both(old.commands, new.commands),
        tools=tuple(name for name in new.tools if canonical(name) in tools),
        file_patterns=FilePatterns(
            _both(old.file_patterns.write, new.file_patterns.write),
            _both(old.file_patterns.read, new.file_patterns.read),
        ),
        risk_level_threshold=min(old.risk_level_threshold, new.risk_level_threshold, key=lambda risk: risk.rank),
        log_auto_approved=old.log_auto_approved or new.log_auto_approved,
        summary_interval_seconds=min(old.summary_interval_seconds, new.summary_interval_seconds),
    )


def _ways(old: WorkspacePolicy, new: WorkspacePolicy) -> Iterator[str]:
    if not new.enabled or not _has_rules(new):
        return
    if not old.enabled:
        yield "the policy is switched on"
    if _reach(new) > _reach(old):
        yield f"risk_level_threshold rises from {old.risk_level_threshold} to {new.risk_level_threshold}"
    yield from _added("command", old.commands, new.commands)
    tools = {canonical(name) for name in old.tools}
    yield from (f"tool added: {_quoted(name)}" for name in new.tools if canonical(name) not in tools)
    yield from _added("write pattern", old.file_patterns.write, new.file_patterns.write)
    yield from _added("read pattern", old.file_patterns.read, new.file_patterns.read)
    if old.enabled and old.log_auto_approved:
        if not new.log_auto_approved:
            yield "log_auto_approved is switched off"
        elif new.summary_interval_seconds > old.summary_interval_seconds:
            yield "summary_interval_seconds is raised"


def _has_rules(policy: WorkspacePolicy) -> bool:
    return bool(policy.commands or policy.tools or policy.file_patterns.write or policy.file_patterns.read)


def _reach(policy: WorkspacePolicy) -> int:
    """Return the highest rank that may pass; critical never does."""
    return min(policy.risk_level_threshold.rank, RiskLevel.HIGH.rank)


def _added(kind: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    return (f"{kind} added: {_quoted(rule)}" for rule in new if rule not in old)


def _quoted(rule: str) -> str:
    """Quote a rule for people, so that nothing in it looks like another line or like other characters."""
    return json.dumps(rule)


def _both(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    return tuple(rule for rule in new if rule in old)
