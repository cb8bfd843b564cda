"""Pausing: while a session is paused, its agent's calls wait, and decisions are not delivered.

The agent is paused, not the people: they may answer, steer and end the session.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from intercom.model import crash_points
from intercom.model.errors import IntercomError, InvalidState
from intercom.model.session import Session
from intercom.sessions.messages import AwaitUnpaused, Pause, Unpause
from intercom.sessions.session import actor, stall, steering
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.tools.transmit import ask_policy_again
from intercom.store import idempotency, sessions
from intercom.store.idempotency import Scope
from intercom.store.messages import Database


async def pause(session: SessionActor, asked: Pause) -> Session:
    """Pause the session; a paused one stays as it is. Raises InvalidState."""
    session.require_open()
    at = session.now()
    session.row = await session.transact(partial(_pause, session=session, asked=asked, at=at))
    crash_points.reach("session.paused")
    actor.hold(session)
    session.brief_detector()
    if session.row.paused_at == at:
        await stall.dismiss(session, asked.by)
        session.notify(
            f"paused by {asked.by}: the agent's calls wait, and verdicts reach it when it goes on", "warning"
        )
    return session.row


async def unpause(session: SessionActor, asked: Unpause) -> Session:
    """Unpause the session: answer the waiting calls, and deliver held decisions. Raises InvalidState if not paused."""
    await lift(session, asked)
    await steering.end_standby(session, asked.by, asked.channel)
    return session.row


async def lift(session: SessionActor, asked: Unpause) -> None:
    """Unpause like `unpause`, but leave a standby to the caller: queued messages do not end it."""
    session.row, is_new = await session.transact(partial(_unpause, session=session, asked=asked))
    actor.hold(session)
    await release(session)
    if is_new:
        session.notify(f"resumed by {asked.by}")


async def release(session: SessionActor) -> None:
    """Answer the calls that waited for the pause to end, and those whose requests are decided."""
    held, session.held = session.held, []
    for reply in held:
        if not reply.abandoned:
            reply.set(None)
    for request_id in session.waiters.requests():
        request = await session.find(request_id)
        if session.is_settled(request):
            try:
                await ask_policy_again(session, request)
            except IntercomError:
                # While the policy cannot be read, the calls that its answer concerns go on waiting.
                continue
            session.answer_waiting(request)
    session.brief_detector()


def await_unpaused(session: SessionActor, _asked: AwaitUnpaused) -> None:
    if session.row.is_paused:
        session.held = [reply for reply in session.held if not reply.abandoned]
        session.held.append(session.defer())


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
    session.record(db, asked.by, "session_resumed", "paused no more", channel=asked.channel)
    idempotency.record(db, Scope.UNPAUSE, asked.id, {"by": asked.by}, session.now(), session_id=session.id)
    return moved, True
