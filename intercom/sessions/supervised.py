"""Idempotent start and stop of a supervisor's children."""

from __future__ import annotations

from actors import AlreadyStarted, ChildSpec, Name, StartChild, StopChild, UnknownChild, ask

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
