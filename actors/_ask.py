"""Asking and telling from Trio tasks."""

from __future__ import annotations

from threading import get_ident
from typing import Any, TypeVar, cast

import pykka
import trio

from actors._name import Name
from actors._ref import Life, Ref
from actors._reply import Reply
from actors.errors import Down, NotRunning
from actors.events import DeadLettered
from actors.messages import Request

__all__ = ["ask", "tell"]

R = TypeVar("R")

# A request that fells whoever handles it must not be asked for ever: it would use up the supervisor's restarts.
_STRIKES = 2


async def ask(
    target: pykka.ActorRef[Any] | Name, message: Request[R], *, timeout: float | None = None, retry: bool = False
) -> R:
    """Send a request and wait for its answer, up to `timeout` seconds.

    With `retry` the request is one that may be repeated: while the target is down, restarting or not there yet, this
    waits for its next incarnation and asks again. A request that two incarnations fell over is not asked a third time.

    Raises `Refused` (or its kin) as the actor answered, `Busy` if the mailbox is full, `Down` if the actor went down
    first, `NotRunning` if nobody is there, `trio.TooSlowError`. Cancelling the wait does no harm: the actor may see
    `reply.abandoned`.
    """
    if timeout is not None:
        with trio.fail_after(timeout):
            return await ask(target, message, retry=retry)
    if retry:
        return await _ask_again(target, message)
    if type(target) is Ref:
        ref = target
    else:
        ref = _present(target)
    if get_ident() != ref._home or len(ref._mailbox) >= ref._limit or ref._life >= Life.ENDING:
        reply: Reply[R] = ref.ask(message, block=False)
        return await reply.wait()
    reply = Reply(message, ref)
    ref._put(reply)
    return await reply.wait()


def _present(target: pykka.ActorRef[Any] | Name) -> Ref[Any]:
    if isinstance(target, Name):
        ref = target.ref
        if ref is None:
            raise target.not_running()
        return ref
    return cast("Ref[Any]", target)


async def _ask_again(target: pykka.ActorRef[Any] | Name, message: Request[R]) -> R:
    strikes = 0
    name = target if isinstance(target, Name) else None
    ref: Ref[Any] | None = None if isinstance(target, Name) else cast("Ref[Any]", target)
    if ref is not None and ref._system is not None and ref.name:
        name = ref._system.named(ref.name)
    while True:
        if ref is None and name is not None:
            ref = name.ref
        if ref is not None:
            try:
                return await ask(ref, message)
            except (Down, NotRunning) as gone:
                strikes += isinstance(gone, Down) and gone.begun and gone.reason is not None
                if name is None or strikes >= _STRIKES:
                    raise
        if name is not None:
            ref = await name.system.next_incarnation(name, ref)


def tell(target: pykka.ActorRef[Any] | Name, message: Any) -> None:
    """Send a message and go on, from any thread; a dead letter if nobody is there to take it."""
    if isinstance(target, Name):
        target.tell(message)
        return
    ref = cast("Ref[Any]", target)
    try:
        ref.tell(message)
    except NotRunning:
        if ref._system is not None:
            ref._system.report(DeadLettered(ref.label, message))
