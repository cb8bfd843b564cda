"""`ask` and `tell`, for Trio tasks."""

from __future__ import annotations

from typing import Any, TypeVar

import pykka
import trio
from trio.lowlevel import checkpoint_if_cancelled

from actors._ref import Name, Ref
from actors._reply import Reply
from actors.errors import Down, NotRunning
from actors.events import DeadLettered
from actors.messages import Request

R = TypeVar("R")

# A request that crashes every actor that handles it would use up the supervisor's restarts.
_STRIKES = 2


async def ask(
    target: pykka.ActorRef[Any] | Name, message: Request[R], *, timeout: float | None = None, retry: bool = False
) -> R:
    """Send a request and wait for its answer, at most `timeout` seconds.

    Set `retry` only for a request that may be repeated. While no incarnation is up, the request then waits for the next
    one and is sent again. A request that crashed two incarnations is not sent a third time.

    Raises `Refused` (or another of the target's `refusals`) if the actor refuses, and `Busy` if the mailbox is full.
    Raises `Down` if the actor goes down before it answers, `NotRunning` if none is running, and `trio.TooSlowError`.
    Cancelling the wait is safe: the actor may see `reply.abandoned`.
    """
    if timeout is not None:
        # Not `fail_after`, a generator: most requests have a time limit.
        with trio.move_on_after(timeout):
            return await (_ask_again(target, message) if retry else ask(target, message))
        raise trio.TooSlowError
    if retry:
        return await _ask_again(target, message)
    ref = target if type(target) is Ref else _present(target)
    await checkpoint_if_cancelled()
    reply: Reply[R] = ref.ask(message, block=False)
    return await reply.wait()


def _present(target: pykka.ActorRef[Any] | Name) -> Ref[Any]:
    if isinstance(target, Name):
        return target.present()
    if isinstance(target, Ref):
        return target
    raise TypeError(f"{target!r} is no actor of this library; ask it in its own way")


async def _ask_again(target: pykka.ActorRef[Any] | Name, message: Request[R]) -> R:
    if isinstance(target, Name):
        name, ref = target, target.ref
    else:
        ref = _present(target)
        if ref._system is None or not ref.name:
            return await ask(ref, message)  # an unnamed actor has no next incarnation
        name = Name(ref._system, ref.name)
    strikes = 0
    while True:
        if ref is not None:
            try:
                return await ask(ref, message)
            except (Down, NotRunning) as gone:
                strikes += isinstance(gone, Down) and gone.handling and gone.reason is not None
                if strikes >= _STRIKES:
                    raise
        ref = await name.system.next_incarnation(name, ref)


def tell(target: pykka.ActorRef[Any] | Name, message: Any) -> None:
    """Send a message without waiting. Callable from any thread. Reports a dead letter if no actor is running."""
    if isinstance(target, Name):
        target.tell(message)
        return
    ref = _present(target)
    try:
        ref.tell(message)
    except NotRunning:
        if ref._system is not None:
            ref._system.report(DeadLettered(ref.label, message))
