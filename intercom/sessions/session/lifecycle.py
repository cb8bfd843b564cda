"""The life of a session: it is paused and resumed, its agent's process starts and ends, and it ends.

While it is paused, its agent's calls wait, and decisions are not delivered. The agent is paused, not the people: they
may answer, steer and end the session. What its agent's process did is recorded with its effect under the run's name: it
may be repeated after a crash.
"""

from __future__ import annotations

from datetime import datetime

from intercom.model import crash_points
from intercom.model.errors import IntercomError, InvalidState
from intercom.model.process import Why
from intercom.model.session import Instruction, Session, SessionStatus, may_become
from intercom.sessions.messages import (
    AwaitUnpaused,
    Continue,
    End,
    EndAbandoned,
    Pause,
    ProcessEnded,
    ProcessStarted,
    Stop,
    Suspend,
    Unpause,
)
from intercom.sessions.request_kinds import Asked, headline
from intercom.sessions.session import deliveries, stall, steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools.transmit import ask_policy_again
from intercom.store import idempotency, instructions, requests, sessions
from intercom.store.idempotency import Scope
from intercom.store.writer_messages import Database


async def pause(session: SessionActor, asked: Pause) -> Session:
    """Pause the session; a paused one stays as it is. Raises InvalidState."""
    session.require_open()
    at = session.now()
    session.change(SessionState.moved, await session.transact(_pause, session=session, asked=asked, at=at))
    crash_points.reach("session.paused")
    session.tell_process(Suspend() if session.row.is_paused else Continue())
    if session.row.paused_at == at:
        await stall.dismiss(session, asked.by)
        session.notify(
            f"paused by {asked.by}: the agent's calls wait, and decisions reach it when it is resumed", "warning"
        )
    return session.row


async def unpause(session: SessionActor, asked: Unpause) -> Session:
    """Unpause the session: answer the waiting calls, and deliver held decisions. Raises InvalidState if not paused."""
    await lift(session, asked)
    await steering.end_standby(session, asked.by, asked.channel)
    return session.row


async def lift(session: SessionActor, asked: Unpause) -> None:
    """Unpause like `unpause`, but leave a standby to the caller: queued messages do not end it."""
    row, is_new = await session.transact(_unpause, session=session, asked=asked)
    session.change(SessionState.moved, row)
    session.tell_process(Suspend() if session.row.is_paused else Continue())
    if session.row.is_paused:
        # This act was done before, and a person has paused the session since.
        return
    await release(session)
    if is_new:
        session.notify(f"resumed by {asked.by}")


async def release(session: SessionActor) -> None:
    """Answer the calls that waited for the pause to end, and those whose requests are decided."""
    for item in session.state.items.values():
        if item.content is not None:
            session.leave_to_task(item.id)
    held, session.held = session.held, []
    for reply in held:
        if not reply.abandoned:
            reply.set(None)
    for request_id in tuple(session.waiters):
        request = await session.find(request_id)
        if session.is_settled(request):
            try:
                await ask_policy_again(session, request)
            except IntercomError:
                # While the policy cannot be read, the calls that its answer concerns go on waiting.
                continue
            session.answer_waiting(request)


def await_unpaused(session: SessionActor, _asked: AwaitUnpaused) -> None:
    if session.row.is_paused:
        session.held = [*(reply for reply in session.held if not reply.abandoned), session.defer()]


def _pause(db: Database, session: SessionActor, asked: Pause, at: datetime) -> Session:
    paused = sessions.pause(db, session.id, asked.by, at)
    if paused is not None:
        session.record(db, asked.by, "session_paused", "paused", channel=asked.channel)
        return paused
    found = sessions.get(db, session.id)
    if found is None or not found.is_paused:
        raise InvalidState(f"a session that is {session.row.status.value} cannot be paused")
    return found


def _unpause(db: Database, session: SessionActor, asked: Unpause) -> tuple[Session, bool]:
    found = sessions.get(db, session.id)
    assert found is not None, "the session's row outlives its actor"
    if idempotency.was_done(db, Scope.UNPAUSE, asked.id):
        return found, False
    moved = sessions.unpause(db, session.id, session.now())
    if moved is None:
        raise InvalidState(f"the session is not paused: it is {found.status.value}")
    session.record(db, asked.by, "session_resumed", "no longer paused", channel=asked.channel)
    idempotency.record(db, Scope.UNPAUSE, asked.id, {"by": asked.by}, session.now(), session_id=session.id)
    return moved, True


async def end_abandoned(session: SessionActor, asked: EndAbandoned) -> bool:
    """End a session whose agent did not come back. The caller tells people of all such sessions together."""
    row = session.row
    if session.state.agent_here or row.status not in sessions.WITHOUT_AGENT or row.updated_at >= asked.before:
        return False
    await _terminate(session, End(asked.by, asked.channel, asked.why))
    return True


async def end(session: SessionActor, asked: End) -> Session:
    """End a session: interrupt its requests, let approvals lapse, answer the waiting calls, and tell people."""
    was_over = session.row.status is SessionStatus.TERMINATED
    row = await _terminate(session, asked)
    if not was_over:
        session.notify(f"session ended by {asked.by}: {asked.why}", "warning")
    return row


async def _terminate(session: SessionActor, asked: End) -> Session:
    if session.row.status is SessionStatus.TERMINATED:
        session.tell_process(Stop())
        return session.row
    row, ended, unheard = await session.transact(_end, session=session, asked=asked)
    session.change(SessionState.moved, row)
    if session.deps.chat is not None:
        session.deps.chat.wake()
    for request in ended:
        session.settle(request)
    await wind_up(session, asked.by, unheard)
    return session.row


async def wind_up(session: SessionActor, by: str, unheard: tuple[Instruction, ...]) -> None:
    """Close what is left of a session that has ended: `unheard` are the instructions that its agent never got."""
    # Calls whose answer the pause held back are answered now: the session does not continue.
    await release(session)
    session.change(SessionState.drop, session.state.items)
    for instruction in unheard:
        session.show_instruction(instruction)
    await stall.dismiss(session, by)
    session.tell_process(Stop())
    await steering.tell_of_tasks(session, unheard)


async def become(session: SessionActor, to: SessionStatus, who: str, why: str) -> None:
    """Change the session's status if the status table allows it. Otherwise nothing happens."""
    if not may_become(session.row.status, to):
        return
    moved = await session.transact(_become, session=session, to=to, who=who, why=why)
    if moved is not None:
        session.change(SessionState.moved, moved)
        if session.deps.chat is not None:
            session.deps.chat.wake()


def _become(db: Database, session: SessionActor, to: SessionStatus, who: str, why: str) -> Session | None:
    moved = sessions.set_status(db, session.id, {session.row.status}, to, session.now())
    if moved is None:
        # Moved already: the writer crashed between its commit and its answer. Or not moved at all, and it stays so.
        return sessions.get(db, session.id)
    session.record(db, who, f"session_{to.value}", why)
    # No card or line may follow that would redraw it.
    if session.deps.chat is not None:
        session.deps.chat.redraw_root(db, moved, session.now())
    return moved


def _end(db: Database, session: SessionActor, asked: End) -> tuple[Session, tuple[Asked, ...], tuple[Instruction, ...]]:
    """Return the session, the requests that ended with it, and the instructions that its agent never got. The same
    after a crash of the writer."""
    now = session.now()
    moved = sessions.set_status(db, session.id, {session.row.status}, SessionStatus.TERMINATED, now)
    row = moved or sessions.get(db, session.id)
    if row is None or row.status is not SessionStatus.TERMINATED:
        raise InvalidState(f"a session that is {session.row.status.value} cannot be ended")
    closed: tuple[str, ...] = ()
    if moved is not None:
        requests.interrupt(db, session.id, now)
        # Another agent may take a task that was left for the workspace.
        freed = instructions.give_back(db, session.id, written=True)
        closed = (*freed, *instructions.close_session(db, session.id, now))
        session.record(db, asked.by, "session_terminated", asked.why, channel=asked.channel)
        # A later notice that would redraw it may never come.
        if session.deps.chat is not None:
            session.deps.chat.redraw_root(db, row, now)
    unheard = (instructions.get(db, id) for id in {*(each.id for each in session.state.instructions), *closed})
    return row, requests.interrupted(db, session.id), tuple(each for each in unheard if each is not None)


_WHO = "intercom"


async def started(session: SessionActor, news: ProcessStarted) -> Session:
    """Handle the start of the process: activate the session and tell people, unless the session has ended. That of a
    restored session was interrupted until now."""
    if session.row.status is SessionStatus.TERMINATED:
        return session.row
    first = await session.transact(_note, session=session, what=f"{news.run}/started")
    if session.row.status in sessions.WITHOUT_AGENT:
        await become(session, session.row.status_when_here, _WHO, "its agent runs")
    if first:
        task = headline(session.row.prompt or "", 300)
        again = "" if news.run == 1 else f", for the {_ordinal(news.run)} time"
        session.notify(f"agent started by {news.by}{again}, as process {news.pid}: {task}")
    return session.row


async def ended(session: SessionActor, news: ProcessEnded) -> Session:
    """Handle the end of the process, depending on how it ended."""
    if session.row.status is SessionStatus.TERMINATED:
        return session.row
    if session.row.status is SessionStatus.CREATED and news.why is not Why.NOT_STARTED:
        await become(session, SessionStatus.ACTIVE, _WHO, "its agent ran")
    last = f"; its last output: {news.output}" if news.output else ""
    if news.again_at is not None:
        if await session.transact(_note, session=session, what=f"{news.run}/ended"):
            pause = max(0.0, (news.again_at - session.now()).total_seconds())
            session.notify(
                f"the agent's process ended ({news.exit}); it starts again in {pause:.0f} s{last}", "warning"
            )
    elif news.why is Why.NOT_STARTED and session.row.status is SessionStatus.INTERRUPTED:
        # The session existed before, like a restored one. Its requests wait for an agent that connects by itself.
        if await session.transact(_note, session=session, what=f"{news.run}/ended"):
            session.notify(f"its agent could not be started, so the session waits for another: {news.said}", "error")
    elif news.why is Why.NOT_STARTED:
        await end(session, End(_WHO, "spawn", f"its agent could not be started: {news.said}"))
    elif news.why is Why.SHUTDOWN:
        await become(session, SessionStatus.INTERRUPTED, _WHO, "its agent ended with the server")
        if await session.transact(_note, session=session, what=f"{news.run}/ended"):
            session.notify(
                "the agent's process was ended because the server stops; its requests stay pending", "warning"
            )
        await steering.give_back(session)
    elif news.exit is not None and news.exit.is_success:
        # The agent finished its work: the instructions written to it are not given to another agent.
        await deliveries.all_read(session)
        await end(session, End(_WHO, "spawn", f"its agent is done{last}"))
    else:
        await _fail(session, f"the agent's process ended ({news.exit}){last}", news.run)
    return session.row


async def _fail(session: SessionActor, text: str, run: int) -> None:
    moved, cut_off, first = await session.transact(_interrupt, session=session, text=text, run=run)
    session.change(SessionState.moved, moved)
    for request in cut_off:
        session.settle(request)
    if first:
        session.notify(text, "error")
    await steering.give_back(session)


def _interrupt(db: Database, session: SessionActor, text: str, run: int) -> tuple[Session, tuple[Asked, ...], bool]:
    """Return the session, the requests that were interrupted, and whether the event is new."""
    now: datetime = session.now()
    first = _note(db, session, f"{run}/ended")
    if first:
        to = SessionStatus.INTERRUPTED
        if may_become(session.row.status, to):
            sessions.set_status(db, session.id, {session.row.status}, to, now)
        requests.interrupt(db, session.id, now)
        session.record(db, _WHO, "process_failed", text)
    row = sessions.get(db, session.id)
    assert row is not None, "it is not purged before it is over"
    return row, requests.interrupted(db, session.id), first


def _note(db: Database, session: SessionActor, what: str) -> bool:
    """Record that this was told. False if it was recorded before."""
    return idempotency.record(db, Scope.PROCESS, f"{session.id}/{what}", {}, session.now(), session_id=session.id)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
