"""Asking a session that may rest: one that has nothing to do has no actor, and is woken to be asked."""

from __future__ import annotations

from typing import TypeVar

import outcome
import trio

from actors import Busy, Down, NotRunning, Request, System, ask
from intercom.model.errors import IntercomError
from intercom.sessions.reception_messages import Wanted

R = TypeVar("R")

#: How long an operator's act may take, in seconds; a part that restarts is back well within it.
ACT_SECONDS = 30.0


async def ask_session(system: System, session_id: str, message: Request[R]) -> R:
    """Ask a session, by its whole id; one that rests is woken. Not to be called inside a handler."""
    session = system.named(f"session/{session_id}")
    try:
        return await ask(session, message, timeout=ACT_SECONDS)
    except (Down, NotRunning):
        # It is restarting, or rests because nothing waits in it; or a server that has just started has not come to
        # it yet. Then it is there before the reception, which brings back all others as well, has time for us.
        return await _ask_awake(system, session_id, message)


async def _ask_awake(system: System, session_id: str, message: Request[R]) -> R:
    """Have a session woken, and ask it as soon as it is there."""
    found: list[outcome.Outcome[R]] = []
    async with trio.open_nursery() as nursery:

        async def wake() -> None:
            try:
                await ask(system.named("reception"), Wanted(session_id), timeout=ACT_SECONDS, retry=True)
            except IntercomError as refused:
                found.append(outcome.Error(refused))
                nursery.cancel_scope.cancel()
            except (Busy, Down, NotRunning, trio.TooSlowError):
                # The session may come up all the same, and else does not answer in time.
                pass

        nursery.start_soon(wake)
        try:
            session = system.named(f"session/{session_id}")
            found.append(outcome.Value(await ask(session, message, timeout=ACT_SECONDS, retry=True)))
        except Exception as failed:
            found.append(outcome.Error(failed))
        nursery.cancel_scope.cancel()
    return found[0].unwrap()
