"""The tools' answers as values; `to_json` writes each one as agents read it."""

from __future__ import annotations

from typing import Any, TypeVar

import cattrs
from attrs import field, fields, frozen, has

from intercom.model.session import ProgressItem

A = TypeVar("A")

#: Instructions for a model whose client's time limit ended before a person answered.
NOT_APPROVED_YET = (
    "not approved yet: do not write the change by other means; call check_clearance again with this request_id to go on"
    " waiting"
)
MAY_BE_DONE_NOW = "a person has allowed it: try exactly the same again, and it passes once"
#: Told with a decision that nobody made.
NOBODY_ANSWERED = {
    "continue": (
        "nobody answered in time: this is the configured default, and nobody consented to anything. Go on only with"
        " what you may do without asking, do nothing of what you asked about that needs consent, and ask again for that"
    ),
    "stop": "nobody answered in time, and the configured default is to stop: no person has decided this; end your turn",
}
#: Told with a decision that the workspace's policy made.
POLICY_LET_PASS = "the workspace's policy answered this, and no person: go on, and ask again for what needs consent"
NOT_ANSWERED_YET = "no answer yet: call transmit again with this request_id to go on waiting; do not assume an answer"
NOT_OVERWRITTEN_YET = (
    "the file has changed since it was approved, and a person decides whether to write over it; nothing is written:"
    " call check_diff again with this request_id to go on waiting"
)
NOT_OVERWRITTEN = "nothing was written: read the file as it is now, and propose against that"
#: Told to a call in a session that an operator has paused.
PAUSED = (
    "this session was paused by an operator, and nothing was done: change nothing and start nothing new; call {tool}"
    " again {how}, and it waits until the operator lets you go on"
)
PAUSED_PING = (
    "this session was paused by an operator: change nothing and start nothing new; your next call of any other tool"
    " waits until the operator lets you go on"
)
STILL_WAITING = "no work yet: call standby again with this request_id to go on waiting"


@frozen
class ClearanceAnswer:
    """The answer of check_clearance. `status` is approved, rejected, timeout or pending."""

    status: str
    request_id: str
    reason: str | None = None
    auto_approved: str | None = None
    message: str | None = None


@frozen
class PermissionAnswer:
    """The answer to a permission hook. `status` is allowed (do it, once), approved (a person agreed, not used yet),
    denied, timeout or pending. `rule` names the policy rule that allowed it."""

    status: str
    request_id: str | None = None
    reason: str | None = None
    rule: str | None = None
    message: str | None = None


@frozen
class PromptAnswer:
    """The answer of transmit. `decision` is continue, refine or stop; `status` is "pending" if the call ended before a
    person answered. `timed_out` says that nobody answered: the decision is a default, and no person consented.
    `auto_approved` names the policy rule that answered."""

    decision: str | None = None
    instruction: str | None = None
    status: str | None = None
    request_id: str | None = None
    message: str | None = None
    timed_out: bool | None = field(
        default=None,
        metadata={"doc": "true: nobody answered in time, the decision is a default and nobody consented to anything."},
    )
    auto_approved: str | None = field(
        default=None, metadata={"doc": "The policy's rule that answered, in place of a person."}
    )


@frozen
class StandbyAnswer:
    """The answer of standby. `status` is resumed, timeout or pending."""

    status: str
    instruction: str | None = None
    request_id: str | None = None
    message: str | None = None


@frozen
class FileWritten:
    path: str
    bytes: int


@frozen
class ApplyAnswer:
    """The answer of check_diff. `status` is applied. If a file has changed since and a person decides whether to
    overwrite it, `status` is pending, rejected or timeout, and `request_id` is that question's."""

    files_written: tuple[FileWritten, ...] = ()
    status: str = "applied"
    request_id: str | None = None
    reason: str | None = None
    message: str | None = None


@frozen
class CheckAnswer:
    auto_approved: bool
    matched_rule: str | None = field(metadata={"keep": True})


@frozen
class BroadcastAnswer:
    posted: bool
    ts: str | None = None
    queued: bool | None = None


@frozen
class PendingRequest:
    request_id: str
    type: str
    title: str
    created_at: str


@frozen
class CheckpointSummary:
    checkpoint_id: str
    label: str | None = field(metadata={"keep": True})
    created_at: str


@frozen
class Task:
    """A task that a person left for an agent."""

    task_id: str
    text: str
    by: str
    created_at: str


@frozen
class RebootAnswer:
    """The answer of reboot. `status` is clean or recovered. `tasks` are what a person left for this agent."""

    status: str
    session_id: str | None = None
    pending_requests: tuple[PendingRequest, ...] = ()
    last_checkpoint: CheckpointSummary | None = None
    progress_snapshot: tuple[ProgressItem, ...] = ()
    tasks: tuple[Task, ...] = ()


@frozen
class ModeAnswer:
    previous_mode: str
    current_mode: str


@frozen
class PingAnswer:
    """The answer of ping. `status` is "paused" while an operator pauses the session, else None."""

    acknowledged: bool
    session_id: str
    stall_detection_enabled: bool
    status: str | None = None
    message: str | None = None


@frozen
class LateVerdict:
    """A decision that came while no call was waiting for it. `kind` is approval, permission, prompt or standby;
    `answer` is what the waiting call would have returned."""

    request_id: str
    kind: str
    title: str
    answer: dict[str, Any]


@frozen
class Instruction:
    """An operator's message attached to a result. `kind` is nudge, steer or task; `by` is its author, `at` when it was
    given."""

    id: str
    kind: str
    text: str
    by: str
    at: str


def to_json(answer: object) -> dict[str, Any]:
    """Write an answer as JSON values. Absent and empty fields are left out, unless the contract requires a null."""
    written = _plain(answer)
    assert isinstance(written, dict)
    return written


def from_json(kind: type[A], written: dict[str, Any]) -> A:
    """Read back what `to_json` wrote."""
    return cattrs.structure(written, kind)


def _plain(value: object) -> object:
    kind: type[Any] = type(value)
    if has(kind):
        out: dict[str, object] = {}
        for attribute in fields(kind):
            inner = getattr(value, attribute.name)
            if attribute.metadata.get("keep") or (inner is not None and inner != ()):
                out[attribute.name] = _plain(inner)
        return out
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
