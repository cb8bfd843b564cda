"""Stalls: when silence is one, the detector that measures it, and the alert that people see.

Times are seconds on any monotonic clock. A stall is raised after `threshold` seconds without activity, nudged every
`interval` seconds up to `retries` times, then escalated once. While the agent waits for a person, or is not connected,
the detector rests. Its timer starts again when it wakes.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

import trio
from attrs import evolve, frozen

from actors import Actor, Name
from intercom.model.card import Card, CardKind, end_of
from intercom.model.decision import Decision, Verdict
from intercom.model.errors import AlreadyDecided
from intercom.model.session import Instruction, Kind, StallAlert, StallStatus
from intercom.sessions import request_kinds
from intercom.sessions.messages import (
    Activity,
    DetectorStarted,
    Escalated,
    NudgeDue,
    PersonNudged,
    Recovered,
    Stalled,
    Watch,
)
from intercom.sessions.session import steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.store import instructions, sessions
from intercom.store.sessions import stalls
from intercom.store.writer_messages import Database


class Phase(StrEnum):
    WATCHING = "watching"
    STALLED = "stalled"
    ESCALATED = "escalated"


@frozen
class Rules:
    threshold: float
    interval: float
    retries: int


@frozen
class StallState:
    """`due` is the time of the next step, None while suspended or escalated. `reachable`: whether messages reach the
    agent."""

    since: float
    due: float | None
    phase: Phase = Phase.WATCHING
    nudges: int = 0
    suspended: bool = True
    reachable: bool = True


@frozen
class Ticked:
    """A timer: a step may be due."""


Event = Activity | PersonNudged | Watch | Ticked
Effect = Stalled | NudgeDue | Escalated | Recovered


def begin(now: float) -> StallState:
    """Return the state of a detector that rests until it is told the agent's status."""
    return StallState(since=now, due=None)


def step(state: StallState, event: Event, now: float, rules: Rules) -> tuple[StallState, tuple[Effect, ...]]:
    """Return the next state and what to do. A tick that is early, or that comes while suspended, changes nothing."""
    match event:
        case Activity():
            effects: tuple[Effect, ...] = () if state.phase is Phase.WATCHING else (Recovered(),)
            due = None if state.suspended else now + rules.threshold
            return evolve(state, since=now, due=due, phase=Phase.WATCHING, nudges=0), effects
        case PersonNudged():
            if not state.reachable and state.phase is Phase.ESCALATED:
                # The message is queued: nothing reaches the agent before it is back.
                return state, ()
            due = None if state.suspended else now + rules.threshold
            phase = Phase.WATCHING if state.phase is Phase.WATCHING else Phase.STALLED
            return evolve(state, since=now, due=due, phase=phase, nudges=0), ()
        case Watch(suspended=True, reachable=reachable):
            return evolve(state, suspended=True, reachable=reachable, due=None), ()
        case Watch(reachable=reachable):
            if not state.suspended:
                return evolve(state, reachable=reachable), ()
            fresh = StallState(since=now, due=now + rules.threshold, suspended=False, reachable=reachable)
            return fresh, ()
        case Ticked():
            if state.suspended or state.due is None or now < state.due:
                return state, ()
            return _overdue(state, now, rules)


def _overdue(state: StallState, now: float, rules: Rules) -> tuple[StallState, tuple[Effect, ...]]:
    if state.phase is Phase.WATCHING:
        raised = Stalled(int(now - state.since))
        if not state.reachable:
            # No message would reach the agent: a person must know at once.
            return evolve(state, phase=Phase.ESCALATED, due=None), (raised, Escalated(0, delivered=False))
        return evolve(state, phase=Phase.STALLED, due=now + rules.interval), (raised,)
    if state.reachable and state.nudges < rules.retries:
        nudges = state.nudges + 1
        return evolve(state, nudges=nudges, due=now + rules.interval), (NudgeDue(nudges),)
    return evolve(state, phase=Phase.ESCALATED, due=None), (Escalated(state.nudges, delivered=state.reachable),)


class StallDetector(Actor):
    """Agent connections tell it of activity, its session of idle periods; it tells the session of stalls.

    After a restart it rests until the session has told it the agent's status, and then starts from now.
    """

    def __init__(self, session: Name, rules: Rules) -> None:
        super().__init__()
        self._session = session
        self._rules = rules
        self._state: StallState

    def on_start(self) -> None:
        self._state = begin(trio.current_time())
        self._session.tell(DetectorStarted())

    def on_receive(self, message: Event) -> None:
        watching = self._state.phase is Phase.WATCHING
        self._state, effects = step(self._state, message, trio.current_time(), self._rules)
        for effect in effects:
            self._session.tell(effect)
        # Activity only moves the deadline; the running timer finds that out when it fires. Setting a timer per call
        # would cost more than the call. But a nudge's timer may fire too late, and after an escalation no timer runs.
        if not (isinstance(message, Activity) and watching) and self._state.due is not None:
            self.set_timer("due", max(0.0, self._state.due - trio.current_time()), Ticked())


_OPEN = frozenset({StallStatus.PENDING, StallStatus.NUDGED, StallStatus.ESCALATED})
_QUEUED = "goes with the agent's next call"
_WAKES = "wakes the agent, whose program is started again with it once it has ended"
_NOT_DELIVERED = "not delivered: an idle agent cannot be reached"


def show(session: SessionActor, alert: StallAlert, note: str | None = None) -> Card:
    card = request_kinds.card_of_alert(alert, session.row.workspace_root, note=note)
    session.deps.card_router.tell(card)
    return card


async def stalled(session: SessionActor, event: Stalled) -> None:
    """Raise the alert, unless the session has an open one already."""
    now = session.now()
    alert = StallAlert(
        id=session.deps.new_id(),
        session_id=session.id,
        last_activity_at=now - timedelta(seconds=event.idle_seconds),
        idle_seconds=event.idle_seconds,
        status=StallStatus.PENDING,
        created_at=now,
        last_tool=session.row.last_tool,
        progress_snapshot=session.row.progress_snapshot,
    )
    raised = await session.transact(_raise, session=session, alert=alert)
    if raised is not None:
        show(session, raised)


async def nudge_due(session: SessionActor, _event: NudgeDue) -> None:
    """Send an automatic nudge with the default message."""
    await _nudge(
        session, await _active(session), session.deps.config.stall.default_nudge_message, request_kinds.INTERCOM
    )


async def escalated(session: SessionActor, event: Escalated) -> None:
    await _move_active(session, StallStatus.ESCALATED, "intercom", None if event.delivered else _NOT_DELIVERED)


async def recovered(session: SessionActor, _event: Recovered) -> None:
    to = StallStatus.SELF_RECOVERED if session.state.agent_here else StallStatus.DISMISSED
    await _move_active(session, to, "intercom")


async def dismiss(session: SessionActor, by: str) -> None:
    """Close the session's alert: a session that is over or paused is not stalled."""
    await _move_active(session, StallStatus.DISMISSED, by)


async def _move_active(session: SessionActor, to: StallStatus, who: str, note: str | None = None) -> None:
    alert = await _active(session)
    moved = None if alert is None else await session.transact(_move, session, alert, to, who)
    if moved is not None:
        show(session, moved, note)


async def answer(session: SessionActor, alert: StallAlert, verdict: Verdict) -> Card:
    """Carry out a person's decision about an alert: nudge (with a message of their own), dismiss, or stop (the caller
    ends the session). A repeated verdict changes nothing. Raises AlreadyDecided if the alert is closed."""
    end_of(CardKind.STALL, verdict.decision)
    if alert.status not in _OPEN:
        raise AlreadyDecided(f"this alert is closed: {alert.status.value}; nothing was changed")
    if verdict.decision is Decision.NUDGE:
        text = verdict.text or session.deps.config.stall.default_nudge_message
        nudged = await _nudge(session, alert, text, verdict.by, verdict)
        session.stall.tell(PersonNudged())
        return nudged or show(session, alert)
    moved = await session.transact(_move, session, alert, StallStatus.DISMISSED, verdict.by, verdict)
    session.stall.tell(Activity())
    return show(session, moved or alert)


async def _active(session: SessionActor) -> StallAlert | None:
    return await session.transact(stalls.active, session_id=session.id)


async def _nudge(
    session: SessionActor, alert: StallAlert | None, text: str, by: str, verdict: Verdict | None = None
) -> Card | None:
    if alert is None:
        return None
    id = session.deps.new_id() if verdict is None else verdict.id
    channel = request_kinds.AUTOMATIC if verdict is None else f"{request_kinds.ON_ALERT}{verdict.channel}"
    instruction = Instruction(id, Kind.NUDGE, text, by, channel, session.now(), session.id)
    moved = await session.transact(_queue_nudge, session=session, alert=alert, instruction=instruction, verdict=verdict)
    repeated = (each.id for each in session.state.instructions if _is_repeated_by(each, instruction))
    session.change(SessionState.drop, repeated)
    session.change(SessionState.queue, instruction)
    # A nudge without a message of its own says what is configured: people see what the agent is told.
    return show(session, moved or alert, f'"{request_kinds.headline(text)}": {_route(session)}')


def _is_repeated_by(earlier: Instruction, instruction: Instruction) -> bool:
    """Return whether the later nudge replaces this one. A person's own message stays, unless the later nudge repeats
    it."""
    is_same = earlier.kind is Kind.NUDGE and earlier.id != instruction.id
    is_automatic = earlier.channel == request_kinds.AUTOMATIC and earlier.by == request_kinds.INTERCOM
    return is_same and (is_automatic or earlier.text == instruction.text)


def _route(session: SessionActor) -> str:
    """Return how messages reach this agent, or that they do not."""
    if session.state.is_reachable:
        return f"{_QUEUED}, or is told before it ends its turn" if session.state.has_stop_hook else _QUEUED
    return _WAKES if session.can_be_woken else _NOT_DELIVERED


def _raise(db: Database, session: SessionActor, alert: StallAlert) -> StallAlert | None:
    active = stalls.active(db, session.id)
    if active is not None:
        return active if active.id == alert.id else None
    stalls.insert(db, alert)
    session.record(db, "intercom", "stalled", f"quiet for {alert.idle_seconds} s", alert_id=alert.id)
    return alert


def _move(
    db: Database, session: SessionActor, alert: StallAlert, to: StallStatus, who: str, verdict: Verdict | None = None
) -> StallAlert | None:
    count = alert.nudge_count
    if not stalls.advance(db, alert.id, alert.status, to, nudge_count=count, updated_at=session.now()):
        # Moved already: the writer crashed between its commit and its answer, or another handler moved and showed it.
        found = stalls.get(db, alert.id)
        return found if found is not None and found.status is to else None
    sessions.set_stall(db, session.id, count if to in _OPEN else 0, session.row.stall_paused)
    data = {} if verdict is None else {"channel": verdict.channel, "origin": verdict.origin_data}
    session.record(db, who, f"stall_{to.value}", f"alert {alert.id}", alert_id=alert.id, **data)
    if verdict is not None:
        session.record_decision(db, verdict)
    return stalls.get(db, alert.id)


def _queue_nudge(
    db: Database, session: SessionActor, alert: StallAlert, instruction: Instruction, verdict: Verdict | None
) -> StallAlert | None:
    now = session.now()
    earlier = [queued.id for queued in instructions.queued(db, session.id) if _is_repeated_by(queued, instruction)]
    count = alert.nudge_count + 1
    if verdict is not None and instructions.get(db, instruction.id) is None:
        limits = session.deps.config.steering
        steering.check_room(
            instruction.text, instructions.load(db, session.id), limits.max_queued, limits.max_queued_bytes
        )
        instruction = evolve(
            instruction, signed=session.deps.signatures.admit_instruction(db, instruction, verdict.command, now)
        )
    if not instructions.insert(db, instruction):
        # Queued already: the writer crashed between its commit and its answer.
        return stalls.get(db, alert.id)
    instructions.close(db, earlier, now)
    changes = {"nudge_count": count, "nudge_message": instruction.text, "updated_at": now}
    stalls.advance(db, alert.id, alert.status, StallStatus.NUDGED, **changes)
    sessions.set_stall(db, session.id, count, session.row.stall_paused)
    data = {} if verdict is None else {"origin": verdict.origin_data}
    channel = "timeout" if verdict is None else verdict.channel
    session.record(
        db, instruction.by, "nudged", instruction.text, alert_id=alert.id, channel=channel, count=count, **data
    )
    if verdict is not None:
        session.record_decision(db, verdict)
    return stalls.get(db, alert.id)
