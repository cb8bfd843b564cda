"""Children of a supervisor that are wanted, or not any more: whether they are there already makes no difference."""

from __future__ import annotations

from actors import AlreadyStarted, ChildSpec, Name, StartChild, StopChild, UnknownChild, ask

#: How long a supervisor may take, in seconds: it may be restarting.
_SECONDS = 30.0


async def ensure(supervisor: Name, spec: ChildSpec) -> None:
    """Start this child, if it is not there."""
    try:
        await ask(supervisor, StartChild(spec), timeout=_SECONDS, retry=True)
    except AlreadyStarted:
        return


async def stop(supervisor: Name, id: str) -> None:
    """Stop the child of this id, if there is one."""
    try:
        await ask(supervisor, StopChild(id), timeout=_SECONDS, retry=True)
    except UnknownChild:
        return
