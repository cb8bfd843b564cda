"""The protocol of a session, whole. Its stall detector and the reception have protocols of their own beside it.

Everything a tool asks is answered with `Answered`: the answer, and what rides on it (verdicts that came while nobody
waited, words of an operator). `call` names the tool call for good: asking again under the same name never acts twice.
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
    """What a tool asked for, and what rides on its result: verdicts that no call was told, words of an operator."""

    answer: A
    late_verdicts: tuple[LateVerdict, ...] = ()
    instructions: tuple[Instruction, ...] = ()


@frozen
class Opened(Generic[A]):
    """A request is on record. `answered` is there when it needs no waiting (decided before, or by the policy)."""

    request_id: str
    answered: Answered[A] | None = None


# --- asked by tools --------------------------------------------------------------------------------------------------


@frozen
class Propose(Request[Opened[ClearanceAnswer]]):
    """Put a change before a person: a `diff`, or the whole new `content` of one file, taken literally. With
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
    """Wait for the verdict on a proposed change. Answered when there is one, however late; refused
    (`request_not_found`, `invalid_state`) for what is no clearance of this session, or ended with it."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class AskPrompt(Request[Opened[PromptAnswer]]):
    """Put a question before a person. With `request_id`, only re-attach to that question."""

    call: str
    prompt_text: str | None = None
    prompt_type: PromptType = PromptType.CONTINUATION
    elapsed_seconds: int | None = None
    actions_taken: int | None = None
    request_id: str | None = None


@frozen
class AwaitPrompt(Request[Answered[PromptAnswer]]):
    """Wait for the answer to a question, as `AwaitClearance` waits for a verdict."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class StandBy(Request[Opened[StandbyAnswer]]):
    """`timeout_seconds` 0 means the configured wait, and that may mean for ever."""

    call: str
    message: str
    timeout_seconds: int = 0
    request_id: str | None = None


@frozen
class AwaitStandby(Request[Answered[StandbyAnswer]]):
    """Wait for the word that ends a standby, as `AwaitClearance` waits for a verdict."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class Apply(Request[Answered[ApplyAnswer]]):
    """Write an approved change to disk. Answered with the files written; refused with the errors of check_diff, and
    then nothing was written (`apply_stuck`: an operator has been told).

    `force` is for a whole file that has changed since: the answer is then pending, with the request that puts it before
    a person, and so it is for that request while it waits. Await it, and ask again with its id."""

    call: str
    request_id: str
    force: bool = False


@frozen
class CheckPolicy(Request[Answered[CheckAnswer]]):
    """Ask whether the policy in force lets the agent do this alone. The answer names the rule that does. `file_path`
    is relative to the workspace; refused (`path_violation`) when it is not, or leads outside."""

    call: str
    tool_name: str
    file_path: str | None = None
    risk_level: RiskLevel = RiskLevel.LOW
    operation: Literal["read", "write"] = "write"
    args: tuple[str, ...] | str | None = None


@frozen
class Broadcast(Request[Answered[BroadcastAnswer]]):
    """Tell people one line. The answer says whether it stands in the chat (`posted`, with its ts) or is on its way
    there (`queued`); `level` is as a `Notice` has it. Refused (`invalid_arguments`) for a `thread_ts` that is none,
    and (`busy`) for more than 60 of one session within a minute."""

    call: str
    message: str
    level: str = "info"
    thread_ts: str | None = None


@frozen
class Recall(Request[Answered[RebootAnswer]]):
    """Tell the agent of this session what it left behind. `adopted` says that the session was taken over just now."""

    call: str
    adopted: bool


@frozen
class SwitchMode(Request[Answered[ModeAnswer]]):
    """Change who is notified of the session's cards, never who may answer them. The answer holds the mode before and
    the mode now; refused (`invalid_state`) once the session has ended. `from_agent` tells an agent's own wish from a
    person's."""

    call: str
    mode: SessionMode
    by: str
    channel: str
    from_agent: bool = False


@frozen
class Beat(Request[Answered[PingAnswer]]):
    """The agent says that it is alive, and perhaps what it is about. A snapshot replaces the one before and is on disk
    when this is answered."""

    call: str
    status_message: str | None = None
    progress_snapshot: tuple[ProgressItem, ...] | None = None


@frozen
class AwaitUnpaused(Request[None]):
    """Wait until the session is not paused; answered at once when it is not."""


@frozen
class TakeWords(Request[Answered[None]]):
    """The agent is about to end its turn (its client asks by a hook): what has not reached it rides on the answer, as
    on a tool's result, and is delivered or not as that is. An answer that carries nothing lets the turn end, and until
    its next call no words reach this agent."""

    call: str


# --- told by the doors -----------------------------------------------------------------------------------------------


@frozen
class Detach(Request[Answered[None]]):
    """The call is out of its client's patience and waits no more: the request stays decidable. The answer is what
    rides on the result that the call still gets; refused (`paused`), and all the same done, while the session is
    paused. `ticket` tells this wait from another under the same name."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class Withdraw:
    """The call was cancelled, or its connection is gone: it waits no more and gets no result. The request stays
    decidable. `ticket` as in `Detach`: a call asked again over a new connection waits under the same name."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class Delivery:
    """What one call's result carried: the requests whose verdicts it told, the words that rode on it."""

    call: str
    requests: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()


@frozen
class Deliver(Request[None]):
    """These results were written to the client. Answered when that is on record."""

    deliveries: tuple[Delivery, ...]


@frozen
class Written:
    """These words were written to the client, over a transport that can not say whether they were read."""

    instructions: tuple[str, ...]


@frozen
class Undeliver:
    """These calls' results never reached the client: what rode on them rides again."""

    calls: tuple[str, ...]


@frozen
class AgentCame:
    """The session's agent is connected: its session is active again, and its detector watches."""


@frozen
class AgentLeft:
    """The session's agent is gone and has not come back: the session is interrupted, what waits in it stays open."""


# --- asked by operators ----------------------------------------------------------------------------------------------


@frozen
class Decide(Request[Card]):
    """Answer a request or stall alert of this session; refused (`already_decided`) when another verdict was first."""

    request_id: str
    verdict: Verdict


@frozen
class Resume(Request[Session]):
    """Give a waiting agent word to go on: its session is paused no more, and its standby, if it has one, is answered.
    Words that answer no standby are queued as steering. Refused (`invalid_state`) where nothing waits."""

    verdict: Verdict


@frozen
class End(Request[Session]):
    """Terminate the session; what waits in it is interrupted."""

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
    """Terminate the session, as a checkpoint of it is restored, and give what waits in it to the session that follows.
    The answer is that session; refused (`invalid_state`) for a restore that is not committed."""

    restore_id: str
    by: str


@frozen
class Describe(Request[Session]):
    """Say how the session stands. The answer is its row."""


@frozen
class OpenCards(Request[tuple[Card, ...]]):
    """Show everything of this session that waits on every channel once more. The answer is what was shown."""


# --- asked by the child actors ---------------------------------------------------------------------------------------


@frozen
class ProcessStarted(Request[Session]):
    """The process of the agent that people started runs: the session is active. `run` counts the starts. Answered with
    the row when that is on record; telling it again does nothing more."""

    run: int
    pid: int
    by: str


@frozen
class ProcessEnded(Request[Session]):
    """That process is gone. Answered with the row once all that hangs on it is settled; telling it again does nothing.

    With `again_at` it is started again then, and all stays as it is. Otherwise: one that could not be started
    (`said`), or ended well, ends the session; one the server took along when it stopped leaves it interrupted with its
    requests pending; any other leaves it interrupted, and its requests with it. `words` is what it wrote last.
    """

    run: int
    why: Why | None
    exit: Exit | None
    words: str
    said: str | None
    again_at: datetime | None


def recorded_kind(message: object) -> type[Any] | None:
    """The class of the answer kept under a call's name, for the messages whose effect must not happen twice."""
    return _RECORDED.get(type(message))


_RECORDED: dict[type[Any], type[Any]] = {
    Apply: ApplyAnswer,
    SwitchMode: ModeAnswer,
}
