"""Asks a session that may be idle: its actor is started first."""

from __future__ import annotations

from typing import TypeVar

import outcome
import trio

from actors import (
    AlreadyStarted,
    Busy,
    ChildSpec,
    Down,
    Name,
    NotRunning,
    Request,
    StartChild,
    StopChild,
    System,
    UnknownChild,
    ask,
)
from intercom.model.errors import IntercomError
from intercom.sessions.messages import Wanted
from intercom.store.client import StoreUnavailable

R = TypeVar("R")

#: The errors of an actor or a store that does not answer: it restarts, has too much to do, or is too slow. It may do
#: later.
UNANSWERED = (Busy, Down, NotRunning, StoreUnavailable, trio.TooSlowError)

#: Time limit of an operator's request, in seconds. A component that restarts is back well within it.
ACT_SECONDS = 30.0


async def ask_session(system: System, session_id: str, message: Request[R]) -> R:
    """Ask a session by its whole id, and wake it if it is idle. Must not be called inside a handler."""
    session = system.named(f"session/{session_id}")
    try:
        return await ask(session, message, timeout=ACT_SECONDS)
    except (Down, NotRunning):
        # The session restarts, is idle, or a server that has just started has not brought it back yet. In the last case
        # it answers before the session registry, which first brings back all others.
        return await _ask_awake(system, session_id, message)


async def _ask_awake(system: System, session_id: str, message: Request[R]) -> R:
    """Wake a session, and ask it as soon as it runs."""
    found: list[outcome.Outcome[R]] = []
    async with trio.open_nursery() as nursery:

        async def wake() -> None:
            try:
                await ask(system.named("registry"), Wanted(session_id), timeout=ACT_SECONDS, retry=True)
            except IntercomError as refused:
                found.append(outcome.Error(refused))
                nursery.cancel_scope.cancel()
            except UNANSWERED:
                # The session may start all the same. If it does not, the question times out.
                pass

        nursery.start_soon(wake)
        try:
            session = system.named(f"session/{session_id}")
            found.append(outcome.Value(await ask(session, message, timeout=ACT_SECONDS, retry=True)))
        except Exception as failed:
            found.append(outcome.Error(failed))
        nursery.cancel_scope.cancel()
    return found[0].unwrap()


#: Time limit of a supervisor's answer, in seconds: it may be restarting.
_SECONDS = 30.0


async def ensure(supervisor: Name, spec: ChildSpec) -> None:
    """Start this child, unless it runs."""
    try:
        await ask(supervisor, StartChild(spec), timeout=_SECONDS, retry=True)
    except AlreadyStarted:
        return


async def stop(supervisor: Name, id: str) -> None:
    """Stop the child of this id, if it runs."""
    try:
        await ask(supervisor, StopChild(id), timeout=_SECONDS, retry=True)
    except UnknownChild:
        return
