"""What the tools answer, as values; `to_json` writes each the way agents read it."""

from __future__ import annotations

from typing import Any, TypeVar

import cattrs
from attrs import field, fields, frozen, has

from intercom.model.session import ProgressItem

A = TypeVar("A")

#: Words a model obeys, for a call that ran out of its client's patience before a person answered.
NOT_APPROVED_YET = (
    "not approved yet: do not write the change by other means; call check_clearance again with this request_id to go on"
    " waiting"
)
MAY_BE_DONE_NOW = "a person has allowed it: try exactly the same again, and it passes once"
#: What an agent is told with a decision that nobody made.
NOBODY_ANSWERED = {
    "continue": (
        "nobody answered in time: this is the configured default, and nobody consented to anything. Go on only with"
        " what you may do without asking, do nothing of what you asked about that needs consent, and ask again for that"
    ),
    "stop": "nobody answered in time, and the configured default is to stop: no person has decided this; end your turn",
}
#: The same with one that the workspace's policy made.
POLICY_LET_PASS = "the workspace's policy answered this, and no person: go on, and ask again for what needs consent"
NOT_ANSWERED_YET = "no answer yet: call transmit again with this request_id to go on waiting; do not assume an answer"
NOT_OVERWRITTEN_YET = (
    "the file has changed since it was approved, and a person decides whether to write over it; nothing is written:"
    " call check_diff again with this request_id to go on waiting"
)
NOT_OVERWRITTEN = "nothing was written: read the file as it is now, and propose against that"
#: The same, for a call of a session that an operator has paused.
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
    """`status` is approved, rejected, timeout or pending."""

    status: str
    request_id: str
    reason: str | None = None
    auto_approved: str | None = None
    message: str | None = None


@frozen
class PermissionAnswer:
    """`status` is allowed (do it, once), approved (a person has said yes, and it was not used), denied, timeout or
    pending. `rule` names what of the policy allowed it."""

    status: str
    request_id: str | None = None
    reason: str | None = None
    rule: str | None = None
    message: str | None = None


@frozen
class PromptAnswer:
    """`decision` is continue, refine or stop; a call that ended before a person answered has `status` "pending".
    `timed_out` says that nobody answered: the decision is a default, and no person's consent. `auto_approved` names the
    rule of the policy that answered."""

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
    """`status` is resumed, timeout or pending."""

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
    """`status` is applied; or, where a file has changed since and a person decides whether to write over it, pending,
    rejected or timeout: then `request_id` is that question's."""

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
    """Something that a person left for an agent to do."""

    task_id: str
    text: str
    by: str
    created_at: str


@frozen
class RebootAnswer:
    """`status` is clean or recovered. `tasks` is what a person left for you while no agent was there."""

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
    """`status` is "paused" while an operator holds the session up; else there is none."""

    acknowledged: bool
    session_id: str
    stall_detection_enabled: bool
    status: str | None = None
    message: str | None = None


@frozen
class LateVerdict:
    """A verdict that came while no call was waiting for it. `kind` is approval, permission, prompt or standby; `answer`
    is what the waiting call would have been told."""

    request_id: str
    kind: str
    title: str
    answer: dict[str, Any]


@frozen
class Instruction:
    """Words of an operator that ride on a result. `kind` is nudge, steer or task; `by` says whose they are, `at` when
    they were given."""

    id: str
    kind: str
    text: str
    by: str
    at: str


def to_json(answer: object) -> dict[str, Any]:
    """Write an answer as JSON values; what is absent or empty is left out, unless the contract wants the null."""
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
