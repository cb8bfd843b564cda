"""An approval request: a proposed change to files that waits for a person."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from intercom.model.verdict import Decided


class RiskLevel(StrEnum):
    LOW = "low"
    HIGH = "high"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return _RANK[self]


_RANK = {RiskLevel.LOW: 0, RiskLevel.HIGH: 1, RiskLevel.CRITICAL: 2}


class ApprovalStatus(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CONSUMED = "consumed"
    INTERRUPTED = "interrupted"


APPROVAL_TRANSITIONS: dict[ApprovalStatus, frozenset[ApprovalStatus]] = {
    ApprovalStatus.PENDING: frozenset(
        {ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED, ApprovalStatus.INTERRUPTED}
    ),
    ApprovalStatus.APPROVED: frozenset({ApprovalStatus.CONSUMED, ApprovalStatus.EXPIRED, ApprovalStatus.INTERRUPTED}),
    ApprovalStatus.REJECTED: frozenset(),
    ApprovalStatus.EXPIRED: frozenset(),
    ApprovalStatus.CONSUMED: frozenset(),
    ApprovalStatus.INTERRUPTED: frozenset(),
}

#: What stands for the hash of a file that does not exist.
NEW_FILE = "new_file"


class ChangeKind(StrEnum):
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"


@frozen
class FileChange:
    """One file of a proposal: path relative to the workspace (POSIX separators), SHA-256 in hex before and after.

    `before_hash` is "new_file" where nothing was; `after_hash` is None for a file that goes. A rename is the row of
    its new path, with the old one in `old_path`. `added` and `removed` count lines.
    """

    path: str
    kind: ChangeKind
    before_hash: str
    after_hash: str | None
    old_path: str | None = None
    mode: int | None = None
    added: int = 0
    removed: int = 0


@frozen
class ApprovalRequest:
    """A row of `approval_request`, with its files. `key` names the proposal (session, paths, base and diff hashes,
    risk): asking again with the same key re-attaches. `preview` shows a whole-file proposal as a diff.

    `tool` is there for an operation that a client's permission hook asks leave for, and names what its client uses:
    the client acts itself, once, and nothing is applied from here.
    """

    id: str
    session_id: str
    title: str
    diff_content: str
    file_path: str
    risk_level: RiskLevel
    status: ApprovalStatus
    original_hash: str
    created_at: datetime
    key: str
    files: tuple[FileChange, ...] = ()
    description: str | None = None
    slack_ts: str | None = None
    consumed_at: datetime | None = None
    expires_at: datetime | None = None
    call: str | None = None
    auto_rule: str | None = None
    decided: Decided | None = None
    delivered_at: datetime | None = None
    preview: str | None = None
    tool: str | None = None
