"""A workspace's auto-approve policy, and people's decisions about it.

A policy approves only what it lists, and takes effect when a person has accepted its content.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from attrs import evolve, field, frozen

from intercom.model.decision import Decided
from intercom.model.request import RiskLevel

#: The policy file of a workspace, and the one that is read in its absence.
POLICY_FILE = ".intercom/settings.json"
OLDER_POLICY_FILE = ".monocoque/settings.json"


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
        """Whether it can approve anything at all."""
        patterns = self.file_patterns
        return self.enabled and bool(self.commands or self.tools or patterns.write or patterns.read)


DENY_ALL = WorkspacePolicy()


@frozen
class PolicyAnswer:
    """The answer of a policy. `matched_rule` is "command:<glob>", "tool:<name>" or "file_pattern:<write|read>:<glob>".
    `why` explains why nothing was approved."""

    auto_approved: bool
    matched_rule: str | None = None
    why: str | None = None


@frozen
class PolicyDecision:
    """A person's decision about the content of a workspace's policy file. `id` is the id of the answered card. `sha256`
    is the hash of the file's bytes, and `text` those bytes as text, including a byte order mark."""

    id: str
    workspace_root: str
    sha256: str
    text: str
    accepted: bool
    decided: Decided

    @property
    def is_sound(self) -> bool:
        """Whether `text` is the content that was decided on."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest() == self.sha256


def describe(policy: WorkspacePolicy) -> str:
    """Describe in one line what a policy approves."""
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


#: The number of rules of each kind that a line shows.
_NAMED = 3


def _counted(what: str, rules: tuple[str, ...]) -> str | None:
    if not rules:
        return None
    shown = ", ".join(json.dumps(rule) for rule in rules[:_NAMED])
    more = ", ..." if len(rules) > _NAMED else ""
    return f"{len(rules)} {what}{'' if len(rules) == 1 else 's'} ({shown}{more})"


@frozen
class PolicyStatus:
    """The status of a workspace's policy, for people. `request_id` is the card's id for a decision about the file's
    content; None if there is nothing to decide."""

    workspace_root: str
    status: str
    source: str | None
    sha256: str | None
    grants: str
    text: str | None = None
    ways: tuple[str, ...] = ()
    trial: str | None = None
    fault: str | None = None
    accepted_sha256: str | None = None
    accepted_by: str | None = None
    accepted_channel: str | None = None
    accepted_at: datetime | None = None
    request_id: str | None = None


class RuleKind(StrEnum):
    """The list of a policy that a rule stands in."""

    COMMAND = "command"
    TOOL = "tool"
    WRITE = "write pattern"
    READ = "read pattern"


@frozen
class PolicyRule:
    """One entry of a policy's lists."""

    kind: RuleKind
    text: str

    def sentence(self) -> str:
        """Return the rule in words. Its text is quoted, because an agent may have chosen it."""
        return f"{self.kind} {json.dumps(self.text)}"


def rules_of(policy: WorkspacePolicy, kind: RuleKind) -> tuple[str, ...]:
    """Return a policy's rules of one kind."""
    match kind:
        case RuleKind.COMMAND:
            return policy.commands
        case RuleKind.TOOL:
            return policy.tools
        case RuleKind.WRITE:
            return policy.file_patterns.write
        case RuleKind.READ:
            return policy.file_patterns.read


def with_rules(policy: WorkspacePolicy, rules: Sequence[PolicyRule], threshold: RiskLevel) -> WorkspacePolicy:
    """Return the policy, switched on, with these rules at the end of its lists, and with this threshold."""
    lists = {kind: (*rules_of(policy, kind), *(each.text for each in rules if each.kind is kind)) for kind in RuleKind}
    return evolve(
        policy,
        enabled=True,
        commands=lists[RuleKind.COMMAND],
        tools=lists[RuleKind.TOOL],
        file_patterns=FilePatterns(lists[RuleKind.WRITE], lists[RuleKind.READ]),
        risk_level_threshold=threshold,
    )


@frozen
class RulePreview:
    """What a policy would be with rules made from a card, before they are written.

    `text` and `sha256` are those of the whole new file, `base_sha256` that of the present one, None if there is none.
    `diff` shows the change of the file. `ways` say how the policy would grant more, `trial` what of the recorded
    requests it would have let through. `waiting` are the cards of the workspace that it would let pass and that go on
    waiting, because a rule answers none.
    """

    request_id: str
    workspace_root: str
    source: str
    rules: tuple[str, ...]
    ways: tuple[str, ...]
    trial: str
    diff: str
    text: str
    sha256: str
    base_sha256: str | None = None
    waiting: tuple[str, ...] = ()


@frozen
class RuleWritten:
    """The policy after rules were written. `status` is "in force", or "waiting": `policy_id` then names the card with
    which a person accepts it. `backup` is the file with the earlier content, None if there was none."""

    workspace_root: str
    source: str
    sha256: str
    status: str
    policy_id: str | None = None
    backup: str | None = None
