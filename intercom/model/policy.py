"""A workspace's auto-approve policy, and people's decisions about it.

A policy approves only what it lists, and takes effect when a person has accepted its content.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from attrs import field, frozen

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
