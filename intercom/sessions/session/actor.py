"""The session actor: one agent's requests, the calls that wait for them, and the results not yet delivered.

Its state is in the store. The rest (waiting calls, pending deliveries) is rebuilt or requested again after a restart.
The handlers are in modules named after what they do; this module holds what they share.

A decision is recorded in the transaction of its effect, under its id, so that a repeated one has no second effect. A
paused session still answers pings, and calls that wait for earlier requests go on waiting.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

import trio
from attrs import evolve, frozen

from actors import Actor, Busy, Down, Name, NotRunning, Refused, Reply, Request, ask
from intercom.model import crash_points
from intercom.model.card import Card, Notice
from intercom.model.decision import Verdict
from intercom.model.errors import IntercomError, InvalidState, NotFound, Paused, SignatureRefused
from intercom.model.policy import PolicyAnswer
from intercom.model.request import ContinuationPrompt, InstructionWait
from intercom.model.session import Instruction, Session, SessionStatus
from intercom.model.visible_text import visible
from intercom.sessions import request_kinds
from intercom.sessions.agent_keys import ONE_AGENT
from intercom.sessions.messages import (
    RETURN_SECONDS,
    SHOW_SECONDS,
    TOUCH_SECONDS,
    AgentCame,
    AgentLeft,
    Answered,
    AskPermission,
    ClockChanged,
    CommandRuns,
    Continue,
    Decide,
    Deliver,
    Describe,
    DetectorStarted,
    Escalated,
    Expire,
    FetchOver,
    LookRound,
    NudgeDue,
    OpenCards,
    Pause,
    ProcessEnded,
    ProcessStarted,
    RecordedRequest,
    Recovered,
    Resume,
    Show,
    Stalled,
    Steer,
    Stop,
    Summarize,
    Suspend,
    TakeBack,
    TakeBackDecision,
    TakeInstructions,
    TasksLeft,
    ToolRequest,
    Unattended,
    Undeliver,
    Unpause,
    Watch,
    Withdraw,
    WriteTouch,
    Written,
)
from intercom.sessions.request_kinds import Asked, from_json, to_json
from intercom.sessions.session.state import FETCH_SECONDS, SessionState
from intercom.sessions.session_deps import SessionDeps
from intercom.sessions.signatures import Signatures
from intercom.store import audit, idempotency, instructions, requests, sessions
from intercom.store.checkpoints import restores
from intercom.store.idempotency import Scope
from intercom.store.outbox import Content
from intercom.store.requests import tasks
from intercom.store.rows import JsonObject
from intercom.store.writer_messages import Database, Touch


@frozen
class Waiter:
    """A waiting call. `ticket` tells it from an earlier one of the same name whose end was not seen. `task` is the task
    whose end it waits for, if any. `alone` says that its answer carries nothing else."""

    call: str
    ticket: str
    reply: Reply[Any]
    task: str | None = None
    alone: bool = False


class Waiters(dict[str, tuple[Waiter, ...]]):
    """The waiting calls, by the id of what they wait for, such as a request: only what a call waits for."""

    def add(self, request_id: str, waiter: Waiter) -> bool:
        """Add a waiting call. Returns whether it is the only one for this request."""
        self[request_id] = (*self.get(request_id, ()), waiter)
        return len(self[request_id]) == 1

    def forget(self, request_id: str, call: str, ticket: str) -> bool:
        """Remove a waiting call, if it is there. Returns whether it was the last for this request."""
        left = tuple(each for each in self.get(request_id, ()) if (each.call, each.ticket) != (call, ticket))
        if left:
            self[request_id] = left
        return not left and self.pop(request_id, None) is not None


P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R", bound=Asked)

_ID_CHARS = 40
#: How many actions a summary names.
_NAMED = 10
#: Time limit of one policy question, in seconds.
POLICY_SECONDS = 5.0
#: The answer if the policy watcher does not reply: nothing is granted.
UNREADABLE = PolicyAnswer(False, why="the policy could not be read just now; ask again")

#: A handler returns a value, or a coroutine that returns one.
Handler = Callable[["SessionActor", Any], Any]
Handlers = Mapping[type[Any], Handler]
Recover = Callable[["SessionActor"], Awaitable[None]]

#: The messages of people, timers and connections. While no call waits, none of them makes a result for the agent.
WITHOUT_RESULT = (
    *(Decide, Resume, Pause, Unpause, Steer, TakeBack, TakeBackDecision),
    *(Describe, OpenCards, Unattended, TasksLeft, CommandRuns, ProcessStarted, ProcessEnded),
    *(AgentCame, AgentLeft, Withdraw, Deliver, Written, Undeliver),
    *(Expire, Show, LookRound, FetchOver, Summarize, WriteTouch, ClockChanged),
    *(DetectorStarted, Stalled, NudgeDue, Escalated, Recovered),
)


class SessionActor(Actor):
    """The actor `session/<id>`. It answers every message in `intercom.sessions.messages` that names a session.

    `new` is the row of a session that its agent opened just now: there is nothing else to load for it.
    """

    refusals = (Refused, IntercomError)

    def __init__(
        self, session_id: str, deps: SessionDeps, handlers: Handlers, recover: Recover, new: Session | None = None
    ) -> None:
        super().__init__()
        self.id = session_id
        self.deps = deps
        self._handlers = handlers
        self._recover = recover
        self.state: SessionState
        self.waiters = Waiters()
        #: The calls that wait until a line is in the chat, by its key.
        self.posts = Waiters()
        self.held: list[Reply[None]] = []
        #: The commands of people that run in the workspace now.
        self.commands: set[str] = set()
        self._auto_approved: list[str] = []
        self._touched: Touch | None = None
        self._new = new
        #: Whether the store may have decisions of this session as not sent. While it has any, no call waits.
        self.has_unsent = False

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        await self.refuse_instructions()
        if self._new is not None:
            self.state, self._new = SessionState(self._new).agent_came(), None
            return
        state, late, pending, self.has_unsent = await self.transact(_load, session=self)
        self.state = state.agent_came() if self.deps.present(state.row.agent_key) else state
        self.brief_detector()
        # Nothing is known of commands that ran before.
        await self.record_stall_pause()
        for request in late:
            if self.is_for_policy(request) or self.refuse_if_void(request) is not None:
                # The agent is told of a policy's answer only after the policy was asked again.
                continue
            self.change(SessionState.queue, request_kinds.late(request))
            self.leave_to_task(request.id)
        if self.row.agent_key is None:
            # No agent has had this session, so no call comes back to it.
            self.change(SessionState.leave_alone, *(request.id for request in pending))
        for request in pending:
            self.watch_expiry(request)
        if pending:
            self.set_timer(LookRound(), RETURN_SECONDS, LookRound())
        await self._recover(self)

    def on_stop(self) -> None:
        self.write_touch()

    def on_receive(self, message: object) -> Any:
        # Not a coroutine: a handler that needs only memory answers at once.
        is_call = isinstance(message, ToolRequest) and message.waits_while_paused
        if is_call or isinstance(message, AskPermission | TakeInstructions):
            self.require_going_on()
        handler = self._handlers[type(message)]
        if self.has_unsent and not isinstance(message, WITHOUT_RESULT):
            return self._answer_from_now_on(handler, message)
        return handler(self, message)

    async def _answer_from_now_on(self, handler: Handler, message: object) -> object:
        """Handle a message whose result may carry decisions. First it is recorded that results may have carried them:
        this server may be killed as soon as one was sent."""
        await self.transact(requests.note_sent, session_id=self.id)
        crash_points.reach("verdict.may_be_sent")
        self.has_unsent = False
        answer = handler(self, message)
        return await answer if inspect.isawaitable(answer) else answer

    @property
    def is_waited_in(self) -> bool:
        """Whether a call waits, so that a result may carry decisions before the agent calls again."""
        return bool(self.waiters or self.posts)

    # --- the state ---------------------------------------------------------------------------------------------------

    def change(self, step: Callable[Concatenate[SessionState, P], SessionState], *args: P.args, **kw: P.kwargs) -> None:
        """Take a step of the state. The stall detector is told if it matters to it."""
        before, self.state = self.state, step(self.state, *args, **kw)
        if (before.is_reachable, before.is_at_work) != (self.state.is_reachable, self.state.is_at_work):
            self.brief_detector()

    @property
    def row(self) -> Session:
        return self.state.row

    # --- the store ---------------------------------------------------------------------------------------------------

    async def transact(self, work: Callable[Concatenate[Database, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Run `work(db, *args, **named)` in one transaction (see `Store.transact`). The last activity is written before
        it: a change of the session's status would leave it behind, and a row read there would not have it."""
        self.write_touch()
        return await self.deps.store.transact(lambda db: work(db, *args, **named))

    async def judge(self, question: Request[PolicyAnswer]) -> PolicyAnswer:
        """Ask the workspace's policy. Returns `UNREADABLE`, which grants nothing, if the watcher does not answer."""
        try:
            watcher = self.deps.watcher(self.row.workspace_root)
            return await ask(watcher, question, timeout=POLICY_SECONDS, retry=True)
        except (trio.TooSlowError, Down, NotRunning, Busy):
            return UNREADABLE

    def now(self) -> datetime:
        return self.deps.now()

    async def find(self, request_id: str) -> Asked:
        """Return the request of this session with this id. Raises NotFound (`request_not_found`)."""
        request = await self.transact(_find, id=request_id, signatures=self.deps.signatures)
        if request is None or request.session_id != self.id:
            raise NotFound(
                f"no request of this session has the id {request_id[:100]!r}; {ONE_AGENT}", code="request_not_found"
            )
        return request

    async def find_of(self, kind: type[R], request_id: str) -> R:
        """Return the request of this session with this id. Raises NotFound also for one of another kind."""
        request = await self.find(request_id)
        if not isinstance(request, kind):
            name = request_kinds.of(request).name
            raise NotFound(f"request {request_id} is a {name}; wait for it with its own tool", code="request_not_found")
        return request

    def follow(self, request: Asked) -> None:
        """Follow a request that was recorded just now. A pending one is shown as soon as its call waits for it, so that
        even the fastest answer finds the waiting call; if the call is lost on the way, after `SHOW_SECONDS`."""
        if self.is_settled(request):
            self.deps.measured(request_kinds.settled(request, self.now()))
            return
        self.watch_expiry(request)
        self.set_timer(Show(request.id), SHOW_SECONDS, Show(request.id))

    def refuse_if_void(self, request: Asked) -> SignatureRefused | None:
        """Return why the recorded decision about a request does not count; None if it counts. A decision that does not
        count is closed, recorded, and reported on every channel, once."""
        fault = self.deps.signatures.fault(request, self.row.workspace_root)
        if fault is None and self.is_for_policy(request) and not self.state.item(request.id).is_granted:
            fault = "the policy does not let it pass"
        return None if fault is None else self.refuse(request, fault)

    def is_for_policy(self, request: Asked) -> bool:
        """Return whether the policy answered this question and has to be asked again before the agent is told (see
        `tools.transmit.ask_policy_again`)."""
        is_prompt = isinstance(request, ContinuationPrompt)
        return is_prompt and request_kinds.is_of_policy(request) and self.deps.signatures.required

    def refuse(self, request: Asked, fault: str) -> SignatureRefused:
        """Return the error for a recorded decision that does not count; record and report it the first time."""
        if not self.state.item(request.id).is_refused:
            self.change(SessionState.refuse, request.id)
            card = request_kinds.card_of(request, self.row.workspace_root)
            told = f"refused the recorded decision about {request.id} ({card.title}): {fault}"
            self.deps.store.transact_soon(partial(_void, session=self, id=request.id, summary=told))
            text = f"{told}; the agent is not told it, and nothing is written"
            self.deps.card_router.tell(Notice(text, "error", self.now()))
        return SignatureRefused(
            f"the decision that is recorded about request {request.id} does not count ({fault}): do not act on it;"
            " ask again",
            request_id=request.id,
        )

    def trusted(self, request: R) -> R:
        """Return the request if its recorded decision counts. Raises SignatureRefused otherwise."""
        refused = self.refuse_if_void(request)
        if refused is not None:
            raise refused
        return request

    def record_decision(self, db: Database, verdict: Verdict) -> bool:
        """Record that a decision was carried out, in the transaction of its effect. False if it was before."""
        done = {"decision": verdict.decision.value}
        return idempotency.record(db, Scope.DECISION, verdict.id, done, self.now(), session_id=self.id)

    def queued(self, db: Database) -> tuple[Instruction, ...]:
        """Return the instructions to deliver. Unsigned ones are left out if signatures are required."""
        return self.deps.signatures.trusted_instructions(db, instructions.queued(db, self.id))

    async def refuse_instructions(self) -> None:
        """Close unsigned instructions for this agent, and unsigned tasks it could take. Each is recorded, and reported
        on every channel. Does nothing if signatures are not required."""
        if not self.deps.signatures.required:
            return
        for told in await self.transact(_refuse_instructions, session=self):
            self.deps.card_router.tell(Notice(f"{told}; no agent is told it", "error", self.now()))

    def touch(self, tool: str) -> None:
        """Note an activity. It is written to the store later, at most twice a second: only the last one matters."""
        if self._touched is None:
            self.set_timer(WriteTouch(), TOUCH_SECONDS, WriteTouch())
        self._touched = Touch(self.id, self.now(), tool)
        if tool != self.row.last_tool:
            self.change(SessionState.moved, evolve(self.row, last_tool=tool))

    def write_touch(self) -> None:
        """Send the last activity to the store."""
        if self._touched is not None:
            self.deps.store.tell(self._touched)
            self._touched = None

    def record(self, db: Database, /, who: str, kind: str, summary: str, **data: object) -> None:
        """Write an audit entry, in the caller's transaction."""
        audit.record(db, self.now(), kind, self.id, who, summary, dict(data) or None)

    # --- people ------------------------------------------------------------------------------------------------------

    def show(self, request: Asked, *, note: str | None = None) -> Card:
        """Show the request's card on every channel, and return it. Automatic decisions are recorded but not shown."""
        away = self.state.item(request.id).is_unattended and not self.is_settled(request)
        card = request_kinds.card_of(request, self.row.workspace_root, away=away, note=note)
        if not request_kinds.is_automatic(request):
            self.deps.card_router.tell(card)
        return card

    def show_instruction(self, instruction: Instruction) -> Card:
        """Show an instruction's card on every channel, and return it. The card of an alert shows its own nudges."""
        card = request_kinds.card_of_instruction(instruction, self.row.workspace_root)
        if not request_kinds.is_told_of_on_alert(instruction):
            self.deps.card_router.tell(card)
        return card

    def notify(
        self,
        text: str,
        level: str = "info",
        thread: str | None = None,
        key: str | None = None,
        *,
        event: str | None = None,
        grant_id: str | None = None,
    ) -> None:
        """Tell people one line. `key` names its outbox row, if it is queued for the chat already. `event` and
        `grant_id` are for programs that show it."""
        now = self.now()
        self.deps.card_router.tell(Notice(text, level, now, self.id, thread, key, event=event, grant_id=grant_id))

    @staticmethod
    def is_settled(request: Asked) -> bool:
        return request.status.value != "pending"

    async def drawn(self, line: Notice) -> Content | None:
        """Return the line as the chat shows it; None if no chat shows this session."""
        return None if self.deps.chat is None else await self.deps.chat.drawn(self.row, line)

    def note_auto_approved(self, what: str, rule: str) -> None:
        """Note what the policy approved, for the next summary. The first such action starts the interval. Each approval
        is recorded at once: a crash may lose a summary, but no record."""
        policy = self.deps.policy(self.row.workspace_root)
        if policy.log_auto_approved:
            self._auto_approved.append(f"{request_kinds.headline(what)} ({rule})")
            if len(self._auto_approved) == 1:
                self.set_timer(Summarize(), policy.summary_interval_seconds, Summarize())

    def summarize(self) -> None:
        """Tell people what was approved since the interval began."""
        passed, self._auto_approved = self._auto_approved, []
        if passed:
            more = f"; and {len(passed) - _NAMED} more" if len(passed) > _NAMED else ""
            self.notify(f"the policy let pass: {'; '.join(passed[:_NAMED])}{more}", event="auto_approved")

    # --- the agent ---------------------------------------------------------------------------------------------------

    @property
    def stall(self) -> Name:
        return self.system.named(f"stall/{self.id}")

    def brief_detector(self) -> None:
        """Tell the stall detector the agent's current status."""
        is_busy = bool(self.waiters) or bool(self.commands)
        suspended = is_busy or not self.state.is_at_work or not self.deps.config.stall.enabled
        self.stall.tell(Watch(suspended, reachable=self.state.is_reachable))

    async def record_stall_pause(self) -> None:
        """Record whether commands pause the stall detector, if that has changed."""
        is_paused = bool(self.commands)
        if is_paused is not self.row.stall_paused:
            await self.transact(sessions.set_stall_paused, self.id, is_paused)
            self.change(SessionState.moved, evolve(self.row, stall_paused=is_paused))

    def tell_process(self, message: Stop | Suspend | Continue) -> None:
        """Tell this to the actor of the process that people started for this session, if it runs. One that does not run
        sees on its next start how the session is."""
        if self._has_process:
            self.system.named(f"agent-process/{self.id}").tell(message)

    @property
    def can_be_woken(self) -> bool:
        """Whether the agent is started again if its program has ended and instructions wait for it."""
        return bool(self.deps.config.spawn.resume_args) and self._has_process

    @property
    def _has_process(self) -> bool:
        return self.system.ref(f"agent-process/{self.id}") is not None

    def require_open(self) -> None:
        """Raise InvalidState if the session has ended."""
        if self.row.status is SessionStatus.TERMINATED:
            raise InvalidState(self.why_ended())

    def why_ended(self) -> str:
        """Return the message for an agent whose session has ended."""
        if self.state.successor is None:
            return "this session was ended by an operator; stop, or start a new conversation"
        return (
            "this session was ended by an operator, who restored a checkpoint of it: files may have changed meanwhile;"
            f" to continue from there, call reboot with session_id {self.state.successor}; otherwise stop"
        )

    def require_going_on(self) -> None:
        """Raise Paused if the session is paused."""
        if self.row.is_paused:
            raise Paused(f"this session was paused by {self.row.paused_by or 'an operator'}; nothing was done")

    def answered(self, call: str, answer: A, own: str | None = None, *, alone: bool = False) -> Answered[A]:
        """Return an answer for this call with all pending deliveries attached. A paused agent gets the answer only.

        `own` is the request that the answer itself is about: its decision is not attached a second time, and it counts
        as delivered with this result. `alone` attaches nothing, for a client that could not pass it on. The deliveries
        then wait for another call.
        """
        late, instructions = ((), ()) if alone or self.row.is_paused else self.state.pending(self.now(), own)
        answered = Answered(answer, late, tuple(request_kinds.told(each) for each in instructions))
        delivery = answered.delivery(call, own)
        if delivery is not None:
            self.note_known(*delivery.requests)
        self.change(SessionState.attach, delivery)
        return answered

    def note_known(self, *request_ids: str) -> None:
        """Note that the agent may know the decisions about these requests from now on: they cannot be taken back."""
        for request_id in request_ids:
            self.deps.unsent.pop(request_id, None)

    async def recorded(self, call: str, kind: type[A]) -> A | None:
        """Return what this call was answered, if its answer is recorded: the call is repeated because its answer was
        lost, and gets the same one."""
        recorded = await self.transact(self.recorded_answer, call)
        return None if recorded is None else from_json(kind, recorded)

    def recorded_answer(self, db: Database, call: str) -> JsonObject | None:
        """Return the recorded answer of this session's call, or None. Other sessions may use the same name."""
        return idempotency.answer(db, Scope.CALL, f"{self.id}/{call}")

    def record_answer(self, db: Database, call: str, tool: str, answer: object) -> bool:
        """Record this answer under the call's name, in the transaction of its effect. False if one was before."""
        name = f"{self.id}/{call}"
        return idempotency.record(db, Scope.CALL, name, to_json(answer), self.now(), session_id=self.id, tool=tool)

    def _answer(self, request: Asked) -> object | None:
        """Return the answer of a request; None while it is undecided, or while the session is paused. Raises
        SignatureRefused if the recorded decision does not count."""
        answer = request_kinds.answer(self.trusted(request))
        return None if self.row.is_paused else answer

    def reply_to_call(self, request: Asked, call: str) -> RecordedRequest[Any]:
        """Return the reply to a call that made this request, or asks about it again."""
        answer = self._answer(request)
        if answer is not None:
            return RecordedRequest(request.id, self.answered(call, answer, own=request.id))
        left = None if request.expires_at is None else (request.expires_at - self.now()).total_seconds()
        return RecordedRequest(request.id, seconds_left=left)

    def answer_or_wait(
        self, request: Asked, call: str, ticket: str, task: str | None = None, *, alone: bool = False
    ) -> Answered[Any] | None:
        """Return the answer of a decided request; else show its card, and defer the reply until there is an answer.
        `alone` as in `answered`."""
        answer = self._answer(request)
        if answer is not None:
            return self.answered(call, answer, own=request.id, alone=alone)
        is_first = self.waiters.add(request.id, Waiter(call, ticket, self.defer(), task, alone))
        self.cancel_timer(Show(request.id))
        self.change(SessionState.waits, request.id)
        self.brief_detector()
        if is_first:
            self.show(request)
        return None

    def mark(self, request: Asked) -> None:
        """Show whether anybody waits for a pending request, if that has changed."""
        before = self.state.unattended
        if request.id not in self.waiters and not self.is_settled(request):
            self.change(SessionState.leave_alone, request.id)
        if self.state.unattended != before:
            self.show(request)

    def dismiss(self, request: Asked, task: str, why: IntercomError) -> None:
        """Fail the calls that wait for a cancelled task, and show the request again."""
        for waiter in self.waiters.get(request.id, ()):
            if waiter.task == task:
                waiter.reply.fail(why)
                self.waiters.forget(request.id, waiter.call, waiter.ticket)
        self.brief_detector()
        if request.id not in self.waiters:
            self.change(SessionState.leave_alone, request.id)
        self.show(request)

    def settle(self, request: Asked, *, is_proven: bool = False) -> Card:
        """Handle the end of a request: answer the waiting calls, show the card, and keep the decision until it is
        delivered. In a paused session the calls go on waiting until `answer_waiting`. `is_proven` as there."""
        self.deps.measured(request_kinds.settled(request, self.now()))
        self.cancel_timer(Expire(request.id))
        self.cancel_timer(Show(request.id))
        self.change(SessionState.attend, request.id)
        if self.row.is_paused and request.status.value != "interrupted":
            if request.delivered_at is None and self.refuse_if_void(request) is None:
                self.change(SessionState.queue, request_kinds.late(request))
            return self.show(request)
        return self.answer_waiting(request, is_proven=is_proven)

    def answer_waiting(self, request: Asked, *, is_proven: bool = False) -> Card:
        """Answer the calls that wait for a settled request, show its card, and keep the decision until it is delivered.
        `is_proven` says that this very value was admitted just now, so its decision is not checked again."""
        entries = self.waiters.pop(request.id, ())
        if entries:
            self.brief_detector()
        try:
            verdict = request_kinds.late(request if is_proven else self.trusted(request))
        except (InvalidState, SignatureRefused) as ended:
            for waiter in entries:
                waiter.reply.fail(ended)
            return self.show(request)
        if request.delivered_at is None:
            self.change(SessionState.queue, verdict)
        self.leave_to_task(request.id)
        answer = request_kinds.answer(request)
        for waiter in entries:
            if not waiter.reply.abandoned:
                waiter.reply.set(self.answered(waiter.call, answer, own=request.id, alone=waiter.alone))
        return self.show(request)

    def leave_to_task(self, request_id: str) -> None:
        """Leave a decision for a while to the task that polls its request, if one does."""
        if self.state.is_reserved(request_id):
            self.change(SessionState.leave_to_task, request_id, self.now())
            self.set_timer(FetchOver(request_id), FETCH_SECONDS + 1, FetchOver(request_id))

    def watch_expiry(self, request: Asked) -> None:
        """Set the timer that ends the request, if it has a deadline."""
        if request.expires_at is not None and not self.is_settled(request):
            left = (request.expires_at - self.now()).total_seconds()
            self.set_timer(Expire(request.id), max(0.0, left), Expire(request.id))


def _refuse_instructions(db: Database, session: SessionActor) -> tuple[str, ...]:
    """Close the instructions and tasks whose signature does not count. Returns one line for people about each."""
    row = sessions.get(db, session.id)
    if row is None:
        return ()
    waiting = (*instructions.queued(db, row.id), *instructions.inbox(db, row.id, row.workspace_root))
    told = []
    for instruction in waiting:
        fault = session.deps.signatures.fault_of_instruction(db, instruction)
        if fault is None or not instructions.close(db, (instruction.id,), session.now()):
            continue
        said = request_kinds.headline(visible(instruction.text))
        summary = (
            f"refused the message {instruction.id[:_ID_CHARS]} for an agent ({instruction.kind.value}: {said}): {fault}"
        )
        about = {"instruction_id": instruction.id, "given_by": instruction.by, "channel": instruction.channel}
        session.record(db, "intercom", "security", summary, **about)
        told.append(summary)
    return tuple(told)


def _find(db: Database, id: str, signatures: Signatures) -> Asked | None:
    request = requests.find(db, id)
    if isinstance(request, InstructionWait):
        signatures.note_ended(db, request)
    return request


def _void(db: Database, session: SessionActor, id: str, summary: str) -> None:
    requests.annul(db, id, session.now())
    session.record(db, "intercom", "security", summary, request_id=id)


def _load(db: Database, session: SessionActor) -> tuple[SessionState, tuple[Asked, ...], tuple[Asked, ...], bool]:
    """Return the session's state, the decided requests that are not delivered, and the pending ones; and whether there
    are decisions that no result has carried."""
    row = sessions.get(db, session.id)
    if row is None:
        raise NotFound(f"session {session.id} is not in the database")
    followed = restores.by_ended(db, session.id)
    session.deps.signatures.note_taken_back(*audit.decisions_taken_back(db, session.id))
    late = requests.undelivered(db, session.id)
    for request in late:
        if isinstance(request, InstructionWait):
            session.deps.signatures.note_ended(db, request)
    state = SessionState(row, successor=None if followed is None else followed.successor_id)
    state = state.queue(*session.queued(db)).reserve(tasks.asked_after(db, session.id))
    return state, late, requests.pending(db, session.id), requests.has_unsent(db, session.id)
