"""The protocol of a session. Its stall detector and the session registry have protocols of their own.

Every tool request is answered with `Answered`: the answer and its attachments. `call` names the tool call: a repeated
request under the same name has no second effect.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from attrs import frozen

from actors import Request
from intercom.model.approval import RiskLevel
from intercom.model.card import Card
from intercom.model.child import Exit, Why
from intercom.model.prompt import PromptType
from intercom.model.session import ProgressItem, Session, SessionMode
from intercom.model.verdict import Verdict
from intercom.sessions.answers import (
    ApplyAnswer,
    BroadcastAnswer,
    CheckAnswer,
    ClearanceAnswer,
    Instruction,
    LateVerdict,
    ModeAnswer,
    PingAnswer,
    PromptAnswer,
    RebootAnswer,
    StandbyAnswer,
)

A = TypeVar("A")


@frozen
class Answered(Generic[A]):
    """The answer to a tool request, and its attachments: decisions that no call has received, and instructions."""

    answer: A
    late_verdicts: tuple[LateVerdict, ...] = ()
    instructions: tuple[Instruction, ...] = ()


@frozen
class Opened(Generic[A]):
    """A recorded request. `answered` is set if it needs no waiting: it was decided before, or by the policy."""

    request_id: str
    answered: Answered[A] | None = None


# --- asked by tools --------------------------------------------------------------------------------------------------


@frozen
class Propose(Request[Opened[ClearanceAnswer]]):
    """Propose a change to a person: a `diff`, or the whole new `content` of one file, taken literally. With
    `request_id`, only re-attach to that request."""

    call: str
    title: str | None = None
    diff: str | None = None
    file_path: str | None = None
    description: str | None = None
    risk_level: RiskLevel = RiskLevel.LOW
    request_id: str | None = None
    content: str | None = None


@frozen
class AwaitClearance(Request[Answered[ClearanceAnswer]]):
    """Wait for the decision about a proposed change. Answered when there is one, however late. Refused with
    `request_not_found`, or `invalid_state` if the request ended with the session."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class AskPrompt(Request[Opened[PromptAnswer]]):
    """Ask a person a question. With `request_id`, only re-attach to that question."""

    call: str
    prompt_text: str | None = None
    prompt_type: PromptType = PromptType.CONTINUATION
    elapsed_seconds: int | None = None
    actions_taken: int | None = None
    request_id: str | None = None


@frozen
class AwaitPrompt(Request[Answered[PromptAnswer]]):
    """Wait for the answer to a question, as `AwaitClearance` does."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class StandBy(Request[Opened[StandbyAnswer]]):
    """Ask for work. `timeout_seconds` 0 means the configured time, which may be unlimited."""

    call: str
    message: str
    timeout_seconds: int = 0
    request_id: str | None = None


@frozen
class AwaitStandby(Request[Answered[StandbyAnswer]]):
    """Wait for the end of a standby, as `AwaitClearance` does."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class Apply(Request[Answered[ApplyAnswer]]):
    """Write an approved change to disk. The answer lists the written files. Refused with the errors of check_diff; then
    nothing was written, except with `apply_stuck`, which an operator was told. `force` is for a whole file that has
    changed since. The answer is then pending, with the request that asks a person. Await that request, and apply again
    with its id."""

    call: str
    request_id: str
    force: bool = False


@frozen
class CheckPolicy(Request[Answered[CheckAnswer]]):
    """Ask whether the policy in force lets the agent do this alone. The answer names the rule that does. `file_path` is
    relative to the workspace; refused with `path_violation` if it is not, or leads outside."""

    call: str
    tool_name: str
    file_path: str | None = None
    risk_level: RiskLevel = RiskLevel.LOW
    operation: Literal["read", "write"] = "write"
    args: tuple[str, ...] | str | None = None


@frozen
class Broadcast(Request[Answered[BroadcastAnswer]]):
    """Tell people one line. The answer says whether it is in the chat (`posted`, with its ts) or queued (`queued`).
    `level` is as in `Notice`. Refused with `invalid_arguments` for an invalid `thread_ts`, `busy` for too many lines of
    one session within a minute."""

    call: str
    message: str
    level: str = "info"
    thread_ts: str | None = None


@frozen
class Recall(Request[Answered[RebootAnswer]]):
    """Tell the agent of this session what it left. `adopted` says that the session was taken over just now."""

    call: str
    adopted: bool


@frozen
class SwitchMode(Request[Answered[ModeAnswer]]):
    """Change who is notified of the session's cards, not who may answer them. The answer holds the old mode and the new
    one. Refused with `invalid_state` once the session has ended. `from_agent` tells an agent's request from a
    person's."""

    call: str
    mode: SessionMode
    by: str
    channel: str
    from_agent: bool = False


@frozen
class Beat(Request[Answered[PingAnswer]]):
    """The agent reports that it is alive, and optionally its progress. A snapshot replaces the previous one, and is on
    disk when this is answered."""

    call: str
    status_message: str | None = None
    progress_snapshot: tuple[ProgressItem, ...] | None = None


@frozen
class AwaitUnpaused(Request[None]):
    """Wait until the session is not paused; answered at once if it is not."""


@frozen
class TakeWords(Request[Answered[None]]):
    """The agent is about to end its turn (asked by its client's hook). Pending deliveries are attached to the answer,
    as to a tool's result. If nothing is attached, the turn ends, and until its next call no instruction reaches the
    agent."""

    call: str


# --- told by agent connections ---------------------------------------------------------------------------------------


@frozen
class Detach(Request[Answered[None]]):
    """The client's time limit is near: the call stops waiting, and its request stays open. The answer holds the
    attachments for the call's result. While the session is paused it is refused with `paused`, but takes effect.
    `ticket` tells this wait from another one under the same name."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class Withdraw:
    """The call was cancelled, or its connection is gone: it stops waiting and gets no result. Its request stays open.
    `ticket` as in `Detach`: a call repeated over a new connection waits under the same name."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class Delivery:
    """What one call's result carried: the requests whose decisions it told, and the instructions attached to it."""

    call: str
    requests: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()


@frozen
class Deliver(Request[None]):
    """These results were written to the client. Answered when that is recorded."""

    deliveries: tuple[Delivery, ...]


@frozen
class Written:
    """These instructions were written to the client, over a transport that cannot say whether they were read."""

    instructions: tuple[str, ...]


@frozen
class Undeliver:
    """These calls' results never reached the client: their attachments are pending again."""

    calls: tuple[str, ...]


@frozen
class AgentCame:
    """The session's agent is connected: its session is active, and its detector watches."""


@frozen
class AgentLeft:
    """The session's agent is gone and has not come back: the session is interrupted, its requests stay open."""


# --- asked by operators ----------------------------------------------------------------------------------------------


@frozen
class Decide(Request[Card]):
    """Answer a request or stall alert of this session. Refused with `already_decided` if another verdict was first."""

    request_id: str
    verdict: Verdict


@frozen
class Resume(Request[Session]):
    """Resume a waiting agent: the session is unpaused, and its standby, if any, is answered. A message that answers no
    standby is queued as steering. Refused with `invalid_state` if nothing waits."""

    verdict: Verdict


@frozen
class End(Request[Session]):
    """End the session; its pending requests are interrupted."""

    by: str
    channel: str
    why: str


@frozen
class EndAbandoned(Request[bool]):
    """End the session if its agent is away, and has been since `before`, without a line about this session alone.
    Answers whether it was ended."""

    before: datetime
    why: str


@frozen
class HandOver(Request[Session]):
    """End the session because its checkpoint is restored, and give its pending requests to the successor. The answer is
    the successor. Refused with `invalid_state` for a restore that is not committed."""

    restore_id: str
    by: str


@frozen
class Describe(Request[Session]):
    """Answers the session's row."""


@frozen
class OpenCards(Request[tuple[Card, ...]]):
    """Show all open cards of this session again on every channel. The answer is these cards."""


# --- asked by agent process actors -----------------------------------------------------------------------------------


@frozen
class ProcessStarted(Request[Session]):
    """The process of the agent that people started runs: the session is active. `run` counts the starts. Answered with
    the row when that is recorded; a repetition has no effect."""

    run: int
    pid: int
    by: str


@frozen
class ProcessEnded(Request[Session]):
    """That process is gone. Answered with the row once the effects are settled; a repetition has no effect.

    With `again_at` it restarts then, and nothing changes. Otherwise, a process that could not be started (`said`) or
    that succeeded ends the session. One that ended with the server leaves the session interrupted and its requests
    pending. Any other leaves the session interrupted, and its requests too. `words` is the end of its output.
    """

    run: int
    why: Why | None
    exit: Exit | None
    words: str
    said: str | None
    again_at: datetime | None


def recorded_kind(message: object) -> type[Any] | None:
    """Return the class of the recorded answer, for messages whose effect must not happen twice; None for others."""
    return _RECORDED.get(type(message))


_RECORDED: dict[type[Any], type[Any]] = {
    Apply: ApplyAnswer,
    SwitchMode: ModeAnswer,
}
