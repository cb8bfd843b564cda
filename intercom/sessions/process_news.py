"""What a session does when its agent's process, which people started, begins or ends.

Each event is recorded with its effect under the run's name: it may be repeated after a crash.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from intercom.model import crash_points
from intercom.model.child import Why
from intercom.model.session import Session, SessionStatus, may_become
from intercom.sessions import decisions, steering
from intercom.sessions.actor import SessionActor
from intercom.sessions.messages import End, ProcessEnded, ProcessStarted
from intercom.sessions.outcomes import Asked, headline
from intercom.store import approvals, calls, prompts, requests, sessions, waits
from intercom.store.messages import Database

_WHO = "intercom"


async def started(session: SessionActor, news: ProcessStarted) -> Session:
    """Handle the start of the process: activate the session and tell people, unless the session has ended."""
    if session.row.status is SessionStatus.TERMINATED:
        return session.row
    first = await session.transact(partial(_note, session=session, what=f"{news.run}/started"))
    if session.row.status is SessionStatus.CREATED:
        await decisions.become(session, SessionStatus.ACTIVE, _WHO, "its agent runs")
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
        await decisions.become(session, SessionStatus.ACTIVE, _WHO, "its agent ran")
    last = f"; its last words: {news.words}" if news.words else ""
    if news.again_at is not None:
        if await session.transact(partial(_note, session=session, what=f"{news.run}/ended")):
            pause = max(0.0, (news.again_at - session.now()).total_seconds())
            session.notify(
                f"the agent's process ended ({news.exit}); it starts again in {pause:.0f} s{last}", "warning"
            )
    elif news.why is Why.NOT_STARTED and session.row.status is SessionStatus.INTERRUPTED:
        # The session existed before, like a restored one. Its requests wait for an agent that connects by itself.
        if await session.transact(partial(_note, session=session, what=f"{news.run}/ended")):
            session.notify(f"its agent could not be started, so the session waits for another: {news.said}", "error")
    elif news.why is Why.NOT_STARTED:
        await decisions.end(session, End(_WHO, "spawn", f"its agent could not be started: {news.said}"))
    elif news.why is Why.SHUTDOWN:
        await decisions.become(session, SessionStatus.INTERRUPTED, _WHO, "its agent ended with the server")
        if await session.transact(partial(_note, session=session, what=f"{news.run}/ended")):
            session.notify("the agent's process was ended, as the server stops; what waits stays pending", "warning")
        await steering.give_back(session)
    elif news.exit is not None and news.exit.is_success:
        # The agent finished its work: the instructions written to it are not given to another agent.
        await steering.all_read(session)
        await decisions.end(session, End(_WHO, "spawn", f"its agent is done{last}"))
    else:
        await _fail(session, f"the agent's process ended ({news.exit}){last}", news.run)
    return session.row


async def _fail(session: SessionActor, text: str, run: int) -> None:
    moved, cut_off, first = await session.transact(partial(_interrupt, session=session, text=text, run=run))
    crash_points.reach("child.interrupted")
    session.row = moved
    for request in cut_off:
        session.settle(request)
    session.brief_detector()
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
        approvals.interrupt(db, session.id, now)
        prompts.interrupt(db, session.id, now)
        waits.interrupt(db, session.id, now)
        session.record(db, _WHO, "process_failed", text)
    row = sessions.get(db, session.id)
    assert row is not None, "it is not purged before it is over"
    return row, requests.interrupted(db, session.id), first


def _note(db: Database, session: SessionActor, what: str) -> bool:
    """Record that this was told. False if it was recorded before."""
    return calls.record(db, f"child/{session.id}/{what}", session.id, "process", {}, session.now())


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
