"""Handing over: a session ends because its checkpoint is restored, and its requests move to the successor."""

from __future__ import annotations

from functools import partial

from intercom.model import crash_points
from intercom.model.errors import InvalidState
from intercom.model.session import Session
from intercom.sessions import alerts, child_processes, pausing, steering, successor
from intercom.sessions.actor import SessionActor
from intercom.sessions.messages import HandOver
from intercom.sessions.timers import Expire, Show


async def hand_over(session: SessionActor, asked: HandOver) -> Session:
    """End this session, unless it has ended, and give its pending requests to the successor. The session's actor does
    this, so that the agent can ask nothing in between."""
    timeouts = session.context.config.timeouts
    done = await session.transact(
        partial(successor.hand_over, restore_id=asked.restore_id, timeouts=timeouts, at=session.now())
    )
    crash_points.reach("restore.handed_over")
    assert done.before is not None, "its row outlives its actor"
    session.row = done.before
    session.successor = done.successor.id
    for id in session.waiters.requests():
        if id in done.moved:
            _let_go(session, id)
    for id in done.moved:
        session.cancel_timer(Expire(id))
        session.cancel_timer(Show(id))
        session.context.unattended.add(id)
    for request in done.ended:
        if request.id in session.waiters:
            session.settle(request)
        else:
            session.cancel_timer(Expire(request.id))
            session.show(request)
    # Calls whose answer the pause held back are answered now: the session does not continue.
    await pausing.release(session)
    session.riders.clear()
    for word in done.unheard:
        session.show_words(word)
    session.brief_detector()
    await alerts.dismiss(session, asked.by)
    child_processes.end(session)
    session.notify(f"session ended by {asked.by}: a checkpoint of it was restored as session {done.successor.id}")
    await steering.tell_of_tasks(session, done.unheard)
    return done.successor


def _let_go(session: SessionActor, request_id: str) -> None:
    for waiter in session.waiters.take(request_id):
        if not waiter.reply.abandoned:
            waiter.reply.fail(InvalidState(session.why_ended(), request_id=request_id))
