"""The protocol of sessions: what agents, people, hooks, tasks, the registry and the stall detector ask and tell.

The tools' own messages are in `intercom.sessions.tools`, one file a tool. Every tool request is answered with
`Answered`, or with `RecordedRequest` if a person may have to answer it. `call` names a call of a tool or a hook: a call
that is repeated under its name has no second effect, and is answered the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, TypeVar

from attrs import field, frozen

from actors import Request
from intercom.model.card import Card
from intercom.model.decision import SignedCommand, Verdict
from intercom.model.field_docs import INTERNAL
from intercom.model.process import Exit, Origin, Why
from intercom.model.request import Operation, RiskLevel, TaskState
from intercom.model.session import Instruction, Kind, Session, SessionMode
from intercom.sessions.request_kinds import Asked, DeliveredInstruction, LateVerdict, PermissionAnswer

A = TypeVar("A")
R = TypeVar("R")


@frozen
class Answered(Generic[A]):
    """The answer to a tool request, and its attachments: decisions that no call has received, and instructions."""

    answer: A
    late_verdicts: tuple[LateVerdict, ...] = ()
    instructions: tuple[DeliveredInstruction, ...] = ()

    def delivery(self, call: str, own: str | None = None) -> Delivery | None:
        """Return what the result of this call carries; None if nothing. `own` is the request that it answers."""
        told = (own,) if own is not None else ()
        requests = (*told, *(verdict.request_id for verdict in self.late_verdicts))
        instructions = tuple(each.id for each in self.instructions)
        return Delivery(call, requests, instructions) if requests or instructions else None


@frozen
class RecordedRequest(Generic[A]):
    """A recorded request. `answered` is set if it needs no waiting: it was decided before, or by the policy.
    `seconds_left` is the time until its deadline; None without one."""

    request_id: str
    answered: Answered[A] | None = None
    seconds_left: float | None = None


# --- asked by tools --------------------------------------------------------------------------------------------------


@frozen
class ToolRequest(Request[R]):
    """A tool call: the base of every tool's arguments. The agent connection sets `call`, the call's name."""

    call: str = field(default="", kw_only=True, metadata=INTERNAL)

    @property
    def waits_while_paused(self) -> bool:
        """Whether a paused session refuses this call (`paused`) without any effect."""
        return True


@frozen
class UseDownstream(ToolRequest[Answered[None]]):
    """Note that the agent is about to call a downstream's tool. A paused session refuses it, and an ended one. The
    answer has what is told to the agent with the tool's result."""

    tool: str


@frozen
class AwaitDecision(Request[Answered[Any]]):
    """Wait for the decision about a request of any kind; the answer is that of the call that made the request. Answered
    when there is a decision, however late. Refused with `request_not_found`, or `invalid_state` if the request ended
    with the session. The answer "approved" of a permission does not use it up: ask again under the same name to use
    it."""

    call: str
    request_id: str
    ticket: str = ""


@frozen
class AwaitUnpaused(Request[None]):
    """Wait until the session is not paused; answered at once if it is not."""


@frozen
class TakeInstructions(Request[Answered[None]]):
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
    """Answer a request or stall alert of this session. Refused with `already_decided` if another decision was first."""

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
    by: str = "intercom"
    channel: str = "retention"


@frozen
class CommandRuns:
    """A command that a person sent runs in the session's workspace, for `seconds` at most; 0: it has ended. The stall
    detector is paused meanwhile."""

    command: str
    seconds: float


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
class ReadRequests(Request[tuple[Asked, ...]]):
    """Answers this session's requests: the pending ones, oldest first, or the last `limit` of all, newest first."""

    pending: bool
    limit: int


@frozen
class OpenCards(Request[tuple[Card, ...]]):
    """Show all open cards of this session again on every channel. The answer is these cards."""


@frozen
class Unattended(Request[frozenset[str]]):
    """Answers the ids of this session's pending requests that no call waits for."""


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
    pending. Any other leaves the session interrupted, and its requests too. `output` is the end of its output.
    """

    run: int
    why: Why | None
    exit: Exit | None
    output: str
    said: str | None
    again_at: datetime | None


@frozen
class Agent:
    """A calling agent. `key` is stable for one conversation, `client_name` is the client's own name, `workspace` is
    checked. `channel_id` is the chat channel that the connection named; a session opened for the agent stays there.

    `session_id` names the session that the agent was started for. Then `key` is `key_of(session_id)`, and the session's
    workspace counts.
    """

    key: str
    client_name: str | None
    workspace: str
    channel_id: str | None = None
    session_id: str | None = None


def key_of(session_id: str) -> str:
    """Return the key of the agent for which this session was made. No other agent's key has this prefix."""
    return f"session:{session_id}"


@frozen
class Admit(Request[str]):
    """Return the id of the agent's session, opened if it has none; its actors run when this is answered. An agent with
    a `session_id` gets that session or is refused: with `not_found`, `invalid_state` (it is over, or its other agent is
    connected) or `unauthorized` (an agent opened it for itself)."""

    agent: Agent


@frozen
class Adopt(Request[str]):
    """Give the agent the session that it abandoned (or `session_id`), else its own. The answer is the session's id. An
    agent that was started for a session stays in that one."""

    agent: Agent
    session_id: str | None = None


@frozen
class RequestOwner:
    """The session in which a request was made, and the agent that its caller counts as."""

    session_id: str
    agent: Agent


@frozen
class FindAnonymous(Request[RequestOwner]):
    """Find the session in which an anonymous client made this request; its actors run when this is answered. Refused
    with `request_not_found` for another agent's request."""

    request_id: str


@frozen
class Proposed:
    """A change that an agent proposes: its text, the file that it names and its risk."""

    text: str
    file_path: str
    risk_level: RiskLevel


@frozen
class FindEarlier(Request[RequestOwner | None]):
    """Find the session of an earlier process of this agent's client in the same workspace, which is over: the one that
    made the request `request_id`, or has the task `task_id`, else the one that asks for the same change as `proposed`.
    Its actors run when this is answered. None if there is none: the caller then counts as itself. `connection` is the
    caller's."""

    agent: Agent
    connection: str
    request_id: str | None = None
    proposed: Proposed | None = None
    task_id: str | None = None


@frozen
class Wanted(Request[str]):
    """Run this session's actors; answers its id."""

    session_id: str


@frozen
class AgentsGone:
    """A connection of these agents is gone, as `Presence` records. `for_good`: no agent will come back over it."""

    keys: tuple[str, ...]
    for_good: bool = False


@frozen
class AgentsHere:
    """A connection of these agents is up, as `Presence` records."""

    keys: tuple[str, ...]


@frozen
class Activity:
    """The agent made a call, or got a result."""


@frozen
class PersonNudged:
    """A person sent the agent a message, and it has time to answer from now on."""


@frozen
class Watch:
    """The agent's status. `suspended`: it waits for a person, or is not connected, so silence is no stall. `reachable`:
    whether messages can reach it."""

    suspended: bool
    reachable: bool


@frozen
class DetectorStarted:
    """The detector has started, and rests until `Watch` tells it the agent's status."""


@frozen
class Stalled:
    """The agent has been quiet for too long, for this many seconds."""

    idle_seconds: int


@frozen
class NudgeDue:
    """Nobody has handled the stall: nudge number `count` is due."""

    count: int


@frozen
class Escalated:
    """Nudging has ended after `count` nudges. `delivered` is False if messages could not reach the agent."""

    count: int
    delivered: bool


@frozen
class Recovered:
    """The stalled agent has done something."""


@frozen
class Pause(Request[Session]):
    """Pause the session: until `Unpause`, no call of the agent does anything and no decision is delivered. A paused
    session stays so. Refused with `invalid_state` for a session that has ended, or not begun."""

    by: str
    channel: str


@frozen
class Unpause(Request[Session]):
    """Unpause the session. `id` names the action: a repetition is answered like the first time. Refused with
    `invalid_state` if the session is not paused."""

    id: str
    by: str
    channel: str


@frozen
class Steer(Request[Card]):
    """Queue a message for the agent: its next result carries it, or it ends the agent's standby. `id` names the action,
    `signed` is the command that a person signed. Refused with `steer_queue_full` if too much waits, `invalid_state`
    once the session has ended, and `signature_required` if a required signature is missing."""

    id: str
    kind: Kind
    text: str
    by: str
    channel: str
    signed: SignedCommand | None = None


@frozen
class TasksLeft:
    """A person has left a task that the agent of this session may take; an agent that stands by takes it now."""

    by: str
    channel: str


@frozen
class TakeBack(Request[Card]):
    """Cancel an instruction. Refused with `already_decided` if it has reached the agent, or may be on its way."""

    id: str
    by: str
    channel: str


@frozen
class TakeBackDecision(Request[Card]):
    """Take back a person's decision about this request, which is pending again then. `id` names the act, `decision_id`
    the decision that is meant; None for whichever it has. Refused with `already_decided` if the agent may know the
    decision, or it is another one now, and with `invalid_state` if no person's decision is recorded, or the request's
    time or its session is over."""

    request_id: str
    id: str
    by: str
    channel: str
    origin: Origin | None = None
    signed: SignedCommand | None = None
    decision_id: str | None = None


@frozen
class DeliveredElsewhere:
    """These instructions reached the agent by a result of another session. They had moved to this session meanwhile."""

    instructions: tuple[Instruction, ...]


@frozen
class AskPermission(Request[RecordedRequest[PermissionAnswer]]):
    """Ask permission for an operation. Answered at once if the policy allows it, or if a person has decided the same
    operation and that decision was not used yet. The answer that tells an approval uses it up.

    `slot` names the hook and its event, `turn` the client's turn. If a client asks at two events about one use of a
    tool, the answer to the first covers the second. Refused with `invalid_state` once the session has ended.
    """

    call: str
    client: str
    operation: Operation
    slot: str
    turn: str = ""


@frozen
class OpenTask(Request[TaskState]):
    """Open a task: the tool call `call` polls this request, once per call. Refused with `request_not_found`."""

    call: str
    tool: str
    request_id: str


@frozen
class FindTask(Request[TaskState]):
    """Return the state of a task of this session. Refused with `task_not_found`."""

    task_id: str


@frozen
class ListTasks(Request[tuple[TaskState, ...]]):
    """Return the session's tasks, oldest first, at most `limit`, after the task `after`. Refused with `task_not_found`
    if there is no such task."""

    limit: int
    after: str | None = None


@frozen
class AwaitTask(Request[Answered[Any]]):
    """Wait for the answer of the task's tool call. May be asked repeatedly. Refused with `task_not_found` or
    `task_cancelled`, or like the tool call (`invalid_state`)."""

    call: str
    task_id: str
    ticket: str = ""


@frozen
class CancelTask(Request[TaskState]):
    """Cancel a task: its request stays open, and its decision is attached to another result. Refused with
    `task_not_found`, or `invalid_state` if it is over already, unless this very call cancelled it."""

    call: str
    task_id: str


# --- the session's timers ---------------------------------------------------------------------------------------------

#: How long a new request waits for its call before it is shown, in seconds.
SHOW_SECONDS = 1.0
#: How long an activity may stay unwritten, in seconds. No guarantee depends on it.
TOUCH_SECONDS = 0.5
#: How long after a session's start its waiting calls may take to come back, in seconds.
RETURN_SECONDS = 5.0


@frozen
class Expire:
    """This request's time is over."""

    request_id: str


@frozen
class Show:
    """Show a new request although no call waits for it yet."""

    request_id: str


@frozen
class LookRound:
    """The calls that waited before a restart, and still do, are back by now."""


@frozen
class FetchOver:
    """The time is over in which the decision about this request was left to a task."""

    request_id: str


@frozen
class Summarize:
    """The interval is over after which people are told what the policy let pass."""


@frozen
class WriteTouch:
    """Write the last activity to the store."""


@frozen
class ClockChanged:
    """Wall time has jumped by this many seconds: check every deadline again."""

    seconds: float


# --- the chat channel ---------------------------------------------------------------------------------------------

#: The name of the actor that answers `ReadRecent`.
OUTBOX_WRITER = "slack/outbox_writer"


@frozen
class Posted:
    """Told to `session/<id>`: the row `key`, a notice of this session, is in the channel as message `ts`."""

    key: str
    ts: str


@frozen
class Message:
    """A message of a channel as a person wrote it. `thread_ts` names its thread if it is a reply."""

    ts: str
    user: str
    text: str
    thread_ts: str | None = None


@frozen
class History:
    """The latest messages of a channel, newest first. `has_more` says that there are older ones."""

    messages: tuple[Message, ...]
    has_more: bool


@frozen
class ReadRecent(Request[History]):
    """Asked of `slack/outbox_writer`: the latest messages of a channel, at most `limit` (1 to 100). Refused with the
    code `slack` if the chat cannot be read now; the message says why and what to do."""

    channel_id: str
    limit: int


# --- agents that people start ----------------------------------------------------------------------------------------


@frozen
class Start(Request[Session]):
    """To `spawner`: start an agent. `session_id` also names the action: if the session has an agent already, it is
    returned and nothing is started. A session with this id but without an agent (a restored one) is used. Otherwise one
    is opened in `workspace_root`, which the caller has checked.

    Answered with the session once the process runs. Refused with `config` (no program), `invalid_arguments` (the
    prompt), `too_many_sessions` or `invalid_state` (the session is over); then nothing has changed. Refused with
    `spawn_failed` if the program could not be run; then the session exists, and is over.
    """

    session_id: str
    prompt: str
    workspace_root: str
    by: str
    channel: str
    owner_user_id: str = ""
    mode: SessionMode | None = None
    channel_id: str | None = None
    label: str | None = None


@frozen
class AwaitStart(Request[None]):
    """To `agent-process/<session>`: answered when its process runs, or has run. Refused with `spawn_failed`."""


@frozen
class Stop:
    """To `agent-process/<session>`: the session has ended. End all its processes, and do not start it again."""


@frozen
class Suspend(Request[int]):
    """To `agent-process/<session>`: stop all its processes (SIGSTOP). Answered with their number."""


@frozen
class Continue(Request[int]):
    """To `agent-process/<session>`: continue all its processes (SIGCONT). Answered with their number."""
