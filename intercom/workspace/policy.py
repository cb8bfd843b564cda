"""What a policy grants: a pure decision over one operation, or over the files of one proposal."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Sequence
from typing import Literal

from attrs import frozen
from wcmatch import glob

from intercom.model.errors import PathViolation
from intercom.model.policy import FilePatterns, PolicyAnswer, WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.workspace import commands
from intercom.workspace.commands import Globbing
from intercom.workspace.paths import lexical
from intercom.workspace.protected import is_protected, makes_repository, mentions_protected

OLDER_NAMES = {
    "ask_approval": "check_clearance",
    "accept_diff": "check_diff",
    "check_auto_approve": "auto_check",
    "forward_prompt": "transmit",
    "remote_log": "broadcast",
    "recover_state": "reboot",
    "set_operational_mode": "switch_freq",
    "wait_for_instruction": "standby",
    "heartbeat": "ping",
}


def canonical(name: str) -> str:
    """Return the present name of a tool; any other name unchanged."""
    return OLDER_NAMES.get(name, name)


Operation = Literal["write", "read"]

#: Case-sensitive; wildcards do not match a leading dot; no braces, no negation, no `!(...)`.
_FLAGS = glob.GLOBSTAR | glob.CASE | glob.FORCEUNIX

#: Matching time grows with the path's length to the power of the number of `**`, and there may be hundreds of patterns.
#: So the number of `**` is limited, and a path's depth in directories and length in characters.
MAX_GLOBSTARS = 2
MAX_DEPTH = 64
MAX_LENGTH = 1024


@frozen
class Query:
    """An operation to evaluate. `args` are the words after `tool_name` if it is a command. `file_path` is relative
    to the workspace. Pass the canonical path (`paths.relative`), so that a link cannot use the rule of another path."""

    tool_name: str
    args: tuple[str, ...] = ()
    file_path: str | None = None
    risk: RiskLevel = RiskLevel.LOW
    operation: Operation = "write"


@frozen
class Limits:
    """The limits that the server's configuration sets for every workspace. `max_risk_level` is the highest risk that
    any policy may allow. `allowlist` lists the permitted commands, or is None if all are permitted."""

    max_risk_level: RiskLevel = RiskLevel.CRITICAL
    allowlist: tuple[str, ...] | None = None


NO_LIMITS = Limits()


def evaluate(policy: WorkspacePolicy, query: Query, limits: Limits = NO_LIMITS) -> PolicyAnswer:
    """Return whether `policy` allows `query` without a person, and by which rule.

    Checks, in this order: a policy that is off, the risk, protected paths; then commands, tools and file patterns, of
    which the first match counts. Never raises; `why` is the reason for a refusal.
    """
    refusal = _refusal(policy, query.risk, limits)
    if refusal is not None:
        return PolicyAnswer(False, why=refusal)
    path: str | None = None
    if query.file_path is not None:
        try:
            path = lexical(query.file_path)
        except PathViolation as error:
            return PolicyAnswer(False, why=error.message)
        if is_protected(path) or (makes_repository(path) and query.operation == "write"):
            return PolicyAnswer(False, why=f"{path} is protected: changing or reading it always needs a person")
    rule = _command_rule(policy, query, limits) or _tool_rule(policy, query)
    if rule is None and path is not None:
        rule = _file_rule(policy, path, query.operation)
    if rule is None:
        return PolicyAnswer(False, why="no rule of the workspace policy fits")
    return PolicyAnswer(True, matched_rule=rule)


def evaluate_files(
    policy: WorkspacePolicy, paths: Sequence[str], risk: RiskLevel, limits: Limits = NO_LIMITS
) -> PolicyAnswer:
    """Return whether a proposal that changes all of `paths` is allowed without a person. `paths` are canonical, with
    both ends of a rename. A write pattern must grant each; the rule returned is the first path's."""
    refusal = _refusal(policy, risk, limits)
    if refusal is not None:
        return PolicyAnswer(False, why=refusal)
    rules: list[str] = []
    for path in paths:
        guarded = is_protected(path) or makes_repository(path)
        try:
            rule = None if guarded else _file_rule(policy, lexical(path), "write")
        except PathViolation as error:
            return PolicyAnswer(False, why=error.message)
        if rule is None:
            what = "is protected" if guarded else "fits no write pattern of the workspace policy"
            return PolicyAnswer(False, why=f"{path} {what}")
        rules.append(rule)
    if not rules:
        return PolicyAnswer(False, why="the proposal names no file")
    return PolicyAnswer(True, matched_rule=rules[0])


def _refusal(policy: WorkspacePolicy, risk: RiskLevel, limits: Limits) -> str | None:
    if not policy.enabled:
        return "the workspace policy is off"
    if risk is RiskLevel.CRITICAL:
        return "what is critical always needs a person"
    if risk.rank > policy.risk_level_threshold.rank:
        return f"the risk is {risk}, and the workspace policy lets pass up to {policy.risk_level_threshold}"
    if risk.rank > limits.max_risk_level.rank:
        return f"the risk is {risk}, and this server lets pass up to {limits.max_risk_level}"
    return None


def _command_rule(policy: WorkspacePolicy, query: Query, limits: Limits) -> str | None:
    given = commands.read(query.tool_name, query.args)
    if given is None:
        return None
    is_glob = (globbing is not Globbing.NONE for globbing in given.globbing)
    if any(map(mentions_protected, given.words, is_glob)):
        return None
    if os.path.basename(given.words[0]) != "git" and any(map(makes_repository, given.words[1:])):
        # For git itself, HEAD is a commit, not a file.
        return None
    if limits.allowlist is not None and not commands.allowed(limits.allowlist, given.words):
        return None
    return next((f"command:{rule}" for rule in policy.commands if commands.matches(rule, given)), None)


def _tool_rule(policy: WorkspacePolicy, query: Query) -> str | None:
    name = canonical(query.tool_name)
    return next((f"tool:{rule}" for rule in policy.tools if canonical(rule) == name), None)


def _file_rule(policy: WorkspacePolicy, path: str, operation: Operation) -> str | None:
    patterns = policy.file_patterns.read if operation == "read" else policy.file_patterns.write
    return next((f"file_pattern:{operation}:{rule}" for rule in patterns if _matches(path, rule)), None)


def _matches(path: str, pattern: str) -> bool:
    if pattern.count("**") > MAX_GLOBSTARS or path.count("/") >= MAX_DEPTH or len(path) > MAX_LENGTH:
        return False
    return _compiled(pattern).match(path)


@functools.lru_cache(maxsize=4096)
def _compiled(pattern: str) -> glob.WcMatcher[str]:
    return glob.compile(pattern.removeprefix("./"), flags=_FLAGS)


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
