"""`ask` and `tell`, for Trio tasks."""

from __future__ import annotations

from threading import get_ident
from types import CoroutineType
from typing import Any, TypeVar, cast

import pykka
import trio
from trio.lowlevel import checkpoint_if_cancelled

from actors._life import PYKKA
from actors._mail import AT_ONCE, Begun, Life
from actors._name import Name
from actors._ref import Ref
from actors._reply import Reply
from actors._steps import StepWatch
from actors.errors import Down, NotRunning
from actors.events import DeadLettered
from actors.messages import Request

__all__ = ["ask", "tell"]

R = TypeVar("R")

# A request that crashes every actor that handles it would use up the supervisor's restarts.
_STRIKES = 2

# A task that asks actors at once yields to other tasks after so many seconds.
_STEP = 0.001


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
        with trio.fail_after(timeout):
            return await ask(target, message, retry=retry)
    if retry:
        return await _ask_again(target, message)
    ref = target if type(target) is Ref else _present(target)
    reply: Reply[R] | None = None
    if get_ident() != ref._home or len(ref._mailbox) >= ref._limit or ref._life >= Life.ENDING:
        reply = ref.ask(message, block=False)
    elif ref._idle and ref._parked and type(message) not in PYKKA:
        await checkpoint_if_cancelled()
        watch = ref._system.watch  # type: ignore[union-attr]
        if watch.clock() - watch.began < _STEP:
            return await _ask_at_once(ref, message, watch)
    if reply is None:
        reply = Reply(message, ref)
        ref._put(reply)
    return await reply.wait()


async def _ask_at_once(ref: Ref[Any], message: Request[R], watch: StepWatch) -> R:
    """Call the handler of an idle actor directly, in the context of the actor's task.

    This saves two task switches, which are most of the cost of an ask. It does not change what is observed: the actor
    is idle, and a synchronous handler cannot wait. If the handler is a coroutine function, the actor's own task awaits
    it.
    """
    actor = ref._actor
    task = ref._task
    assert actor is not None
    assert task is not None
    ref._handled += 1
    ref._current = AT_ONCE
    crash: BaseException | None = None
    began = watch.clock()
    try:
        result: Any = task.context.run(actor.on_receive, message)
    except actor.refusals:
        if ref._current is None:
            ref._more().deferred.pop(_taken(ref), None)
        ref._current = None
        raise
    except BaseException as exc:
        crash = exc
    finally:
        watch.handled_within(ref, watch.clock() - began)
    if crash is not None:
        ref._current = None
        ref._crash(crash)
        raise Down(ref.label, crash, begun=True)
    reply = None if ref._current is AT_ONCE else _taken(ref)
    ref._current = None
    if type(result) is not CoroutineType:
        return cast("R", result) if reply is None else await reply.wait()
    asker: Reply[R] = reply or Reply(message, ref)
    ref._put(Begun(result, asker if reply is None else None))
    return await asker.wait()


def _taken(ref: Ref[Any]) -> Reply[Any]:
    """Return the reply that the handler deferred."""
    rare = ref._more()
    reply, rare.taken = rare.taken, None
    assert reply is not None
    return reply


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
        name = ref._system.named(ref.name)
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
