"""Requests for a person: an approval, a prompt, a standby; and what a client polls or is about to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from intercom.model.amendment import DecisionDetails
from intercom.model.decision import Decided


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


#: From a decision a request becomes pending again if a person takes the decision back.
APPROVAL_TRANSITIONS: dict[ApprovalStatus, frozenset[ApprovalStatus]] = {
    ApprovalStatus.PENDING: frozenset(
        {ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED, ApprovalStatus.INTERRUPTED}
    ),
    ApprovalStatus.APPROVED: frozenset(
        {ApprovalStatus.PENDING, ApprovalStatus.CONSUMED, ApprovalStatus.EXPIRED, ApprovalStatus.INTERRUPTED}
    ),
    ApprovalStatus.REJECTED: frozenset({ApprovalStatus.PENDING}),
    ApprovalStatus.EXPIRED: frozenset(),
    ApprovalStatus.CONSUMED: frozenset(),
    ApprovalStatus.INTERRUPTED: frozenset(),
}


class ProposalForm(StrEnum):
    """How the text of a proposal is read: as a patch, or literally as the whole content of a file."""

    PATCH = "patch"
    CONTENT = "content"


#: The value of `before_hash` for a file that does not exist.
NEW_FILE = "new_file"


class ChangeKind(StrEnum):
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"


@frozen
class FileChange:
    """One file of a proposal: its path in the workspace (POSIX separators), SHA-256 in hex before and after.

    `before_hash` is "new_file" if the file did not exist; `after_hash` is None if it is deleted. A rename has its new
    path in `path` and the old one in `old_path`. `added` and `removed` count lines.
    """

    path: str
    kind: ChangeKind
    before_hash: str
    after_hash: str | None
    old_path: str | None = None
    mode: int | None = None
    added: int = 0
    removed: int = 0

    @property
    def base_path(self) -> str:
        """The path of the content before the change: the old path of a rename."""
        return self.old_path or self.path

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that changes: the old and the new one for a rename."""
        return (self.path,) if self.old_path is None else (self.old_path, self.path)


def proposal_hash(
    session_id: str,
    workspace_root: str,
    risk: RiskLevel,
    files: Sequence[FileChange],
    *,
    root_inode: int | None = None,
    operation: str | None = None,
) -> str:
    """Return the hash that identifies what a person decides about: SHA-256, in hex, over canonical JSON of the record.

    The record holds the session, the workspace (path and id) and the risk. For each file it holds the
    canonical path, kind, both hashes, old path and mode. `operation` is the key of a permission hook's operation,
    because its files alone do not say what it does. Line counts are left out: they follow from the hashes.
    """
    record = {
        "session": session_id,
        "workspace": workspace_root,
        "root_inode": root_inode,
        "risk": risk.value,
        "operation": operation,
        "files": [
            [file.path, file.kind.value, file.before_hash, file.after_hash, file.old_path, file.mode] for file in files
        ],
    }
    return hashlib.sha256(json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def without_secrets(diff: str, masked: Sequence[tuple[int, str]]) -> str:
    """Replace lines of a diff, by number from 0, with their masked text, which may leave the machine."""
    if not masked:
        return diff
    lines = diff.split("\n")
    for number, line in masked:
        lines[number] = line
    return "\n".join(lines)


@frozen
class Remark:
    """A fact that a diff cannot show clearly, as text. It concerns the file `path`, or with None the whole proposal."""

    path: str | None
    text: str


@frozen
class ApprovalRequest:
    """A row of `approval_request`, with its files.

    `key` identifies the proposal (session, paths, base and diff hashes, risk). A call with the same key attaches to the
    same request. `diff_content` is the agent's own text, kept as evidence; `form` says how it is read. `preview` is the
    diff that people see, made from the files' bytes. `remarks` say what it cannot show. `masked` holds its lines with
    secrets, by number from 0, in masked form.

    `files` is the record of the proposal, made once: paths are canonical, every link is resolved. `root_inode` is the
    id of the workspace directory at that time: of its file system and inode. `proposal_hash` covers all of this: a
    person decides about it, and an apply is checked against it.

    `tool` is set for an operation from a client's permission hook, and is the client's tool name. The client acts
    itself, once, and nothing is applied from here. `policy_question` is what the policy was asked, as text; later
    policies are tested with it.

    `replaces` is an approved request whose file has changed since. This request asks whether to overwrite that change.
    Its apply consumes both.

    `details` is the structured form of the decision's text, if a person approved it with changes or commented on its
    lines. If they changed it, all the above is of the amended proposal, except `key`; what was proposed is kept in the
    table `amendment`.
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
    policy_question: str | None = None
    proposal_hash: str = ""
    root_inode: int | None = None
    remarks: tuple[Remark, ...] = ()
    masked: tuple[tuple[int, str], ...] = ()
    replaces: str | None = None
    form: ProposalForm | None = None
    details: DecisionDetails | None = None

    @property
    def is_amendable(self) -> bool:
        """Whether a person can approve a part of it, or edit it: it is a change of files that we apply."""
        return self.tool is None and self.replaces is None and self.preview is not None

    @property
    def told(self) -> DecisionDetails | None:
        """The details of the decision, if they are those of its text. The text is what a person signs."""
        if self.details is None or self.decided is None or self.details.told != self.decided.text:
            return None
        return self.details

    def hash_of_record(self, workspace_root: str) -> str:
        """The value that `proposal_hash` must have if the record is unchanged."""
        return proposal_hash(
            self.session_id,
            workspace_root,
            self.risk_level,
            self.files,
            root_inode=self.root_inode,
            operation=None if self.tool is None else self.key,
        )


class PromptType(StrEnum):
    CONTINUATION = "continuation"
    CLARIFICATION = "clarification"
    ERROR_RECOVERY = "error_recovery"
    RESOURCE_WARNING = "resource_warning"


class PromptDecision(StrEnum):
    CONTINUE = "continue"
    REFINE = "refine"
    STOP = "stop"


class WaitStatus(StrEnum):
    """The status of a prompt or a standby."""

    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"


WAIT_TRANSITIONS: dict[WaitStatus, frozenset[WaitStatus]] = {
    WaitStatus.PENDING: frozenset({WaitStatus.DECIDED, WaitStatus.EXPIRED, WaitStatus.INTERRUPTED}),
    WaitStatus.DECIDED: frozenset({WaitStatus.PENDING}),
    WaitStatus.EXPIRED: frozenset(),
    WaitStatus.INTERRUPTED: frozenset(),
}


@frozen
class ContinuationPrompt:
    id: str
    session_id: str
    prompt_text: str
    prompt_type: PromptType
    status: WaitStatus
    created_at: datetime
    elapsed_seconds: int | None = None
    actions_taken: int | None = None
    decision: PromptDecision | None = None
    instruction: str | None = None
    slack_ts: str | None = None
    expires_at: datetime | None = None
    call: str | None = None
    decided: Decided | None = None
    delivered_at: datetime | None = None


@frozen
class InstructionWait:
    """A standby: an idle agent waits for work. `instruction` is the work it was given."""

    id: str
    session_id: str
    message: str
    status: WaitStatus
    created_at: datetime
    instruction: str | None = None
    slack_ts: str | None = None
    expires_at: datetime | None = None
    call: str | None = None
    decided: Decided | None = None
    delivered_at: datetime | None = None


class OperationKind(StrEnum):
    """The effect of an operation: it changes files, runs a command, uses the network, uses another MCP server's tool,
    only reads, or is unknown."""

    WRITE = "write"
    COMMAND = "command"
    FETCH = "fetch"
    MCP = "mcp"
    READ = "read"
    OTHER = "other"


@frozen
class Replacement:
    """A replacement of one piece of text by another, once or (`every`) everywhere."""

    old: str
    new: str
    every: bool = False


@frozen
class FileTouch:
    """The change to one file: its whole new `content`, a sequence of replacements, or its deletion. `diff` holds the
    changed lines if the client gives only those."""

    path: str
    content: str | None = None
    replacements: tuple[Replacement, ...] = ()
    delete: bool = False
    move_to: str | None = None
    diff: str | None = None


@frozen
class Operation:
    """One operation. `tool` is the client's name for it.

    `title` describes it in a line, `text` in full (a command, an address, arguments). `cwd` is its directory.
    `identity` and the initial files decide whether two operations are the same; it leaves out explanations. `path` is
    the file of a read. `why` is the agent's own explanation, for people only. `into` is the running command that gets
    `text` as input: "" if the client does not name it, None for other operations. `unsandboxed` asks to run the command
    outside the client's sandbox, which no policy approves. `least_risk` is the least risk that its card shows, and
    `risk_reason` says why, in a sentence.
    """

    kind: OperationKind
    tool: str
    title: str
    identity: str
    text: str | None = None
    cwd: str | None = None
    touches: tuple[FileTouch, ...] = ()
    path: str | None = None
    why: str | None = None
    into: str | None = None
    unsandboxed: bool = False
    least_risk: RiskLevel | None = None
    risk_reason: str | None = None


class TaskStatus(StrEnum):
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@frozen
class Task:
    """The task of a session's request (`request_id`). `call` is the id of the call of `tool` that opened it.
    `cancelled_by` is the id of the call that cancelled it."""

    id: str
    session_id: str
    request_id: str
    tool: str
    call: str
    created_at: datetime
    cancelled_at: datetime | None = None
    cancelled_by: str | None = None


@frozen
class TaskState:
    """The status of a task, unchanged since `updated_at`. Working: its request waits for a person. Completed: there is
    an answer. Failed: the request ended with its session. Cancelled: its client gave it up first."""

    id: str
    tool: str
    request_id: str
    status: TaskStatus
    created_at: datetime
    updated_at: datetime
