"""The lifecycle of one incarnation: start, message loop, end."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any

import trio
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop
from trio.lowlevel import current_task

from actors._farewell import tell_monitors
from actors._mail import Begun, Due, Life
from actors._ref import Ref
from actors._reply import Reply
from actors.events import ActorCrashed, ActorStarted, ActorStopped

__all__ = ["StopAsked", "beside", "live", "seconds_to_end", "serve", "wait_for_background"]

PYKKA = frozenset({ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop})

# The time limit (seconds) for the stop of an actor without a supervisor.
LOOSE_SECONDS = 5.0

# An actor yields to other tasks after so many messages.
_TURN = 128


class StopAsked(Exception):
    """The supervisor was asked to stop while it waited for a child. Used only inside supervisors."""


async def live(ref: Ref[Any]) -> None:
    """Run one incarnation from start to end. Every pending request is answered, however the incarnation ends."""
    actor = ref._actor
    assert actor is not None
    ref._task = current_task()
    reason: BaseException | None = None
    scope = ref._scope = trio.CancelScope()
    if ref._killed or (ref._rare is not None and ref._rare.crash is not None):
        scope.cancel()
    try:
        with scope:
            try:
                await actor._invoke(actor.on_start)
                _running(ref)
                await actor._serve(ref)
            except StopAsked:
                pass
            ref._close(None)
            await wait_for_background(ref)
            await actor._invoke(actor.on_stop)
    except trio.Cancelled:
        # The whole system is cancelled, and Trio requires that its exception propagates.
        ref._killed = True
        _bury(ref, None)
        raise
    except BaseException as exc:
        reason = exc
    if reason is None and ref._rare is not None:
        reason = ref._rare.crash
    await _finish(ref, reason)


def _running(ref: Ref[Any]) -> None:
    system = ref._system
    assert system is not None
    ref._life = Life.RUNNING
    ref._started_at = system.clock()
    ref._emit(ActorStarted, ref.label, ref.actor_class)
    system.started(ref)


async def beside(
    ref: Ref[Any], scope: trio.CancelScope, async_fn: Callable[..., Awaitable[object]], args: tuple[Any, ...]
) -> None:
    """Run a background task of an incarnation. If it crashes, the incarnation crashes."""
    rare = ref._more()
    try:
        with scope:
            await async_fn(*args)
    except trio.Cancelled:
        raise
    except BaseException as exc:
        ref._crash(exc)
    finally:
        del rare.background[scope]
        ref._wake()


async def wait_for_background(ref: Ref[Any]) -> None:
    """Wait until the actor's background tasks, already cancelled, have ended."""
    while ref._rare is not None and ref._rare.background:
        await ref._park()


async def _finish(ref: Ref[Any], reason: BaseException | None) -> None:
    actor = ref._actor
    assert actor is not None
    ref._close(reason)
    if ref._rare is not None:
        with trio.CancelScope(shield=True):
            await wait_for_background(ref)
    hook_error: BaseException | None = None
    if reason is not None and not ref._killed:
        try:
            with trio.move_on_after(seconds_to_end(ref)) as ref._scope:
                await actor._invoke(actor.on_failure, type(reason), reason, reason.__traceback__)
        except trio.Cancelled:
            raise
        except BaseException as exc:
            hook_error = exc
    await actor._release(killed=ref._killed)
    if reason is not None:
        ref._emit(ActorCrashed, ref.label, reason, hook_error)
    _bury(ref, reason)


def _bury(ref: Ref[Any], reason: BaseException | None) -> None:
    ref._close(reason)
    ref._life = Life.ENDED
    if reason is None:
        ref._emit(ActorStopped, ref.label, ref._killed)
    # Other code may keep the ref for long; the actor must not stay in memory with it.
    ref._actor = ref._task = ref._scope = ref._lane = None
    tell_monitors(ref, reason)
    assert ref._system is not None
    ref._system.ended(ref, reason)


def seconds_to_end(ref: Ref[Any]) -> float:
    """Return the time limit (seconds) for the end of the incarnation, from its spec."""
    if ref._slot is None:
        return LOOSE_SECONDS
    return math.inf if ref._slot.spec.shutdown is None else ref._slot.spec.shutdown


async def serve(ref: Ref[Any]) -> None:
    """Handle messages one by one, urgent ones first, until a stop is requested."""
    actor = ref._actor
    assert actor is not None
    mailbox = ref._mailbox
    while True:
        if ref._lane:
            if ref._stop_asked:
                return
            await actor._on_system(ref._lane.popleft())
            continue
        if not mailbox:
            ref._idle = True
            await ref._park()
            ref._idle = False
            continue
        if not ref._handled % _TURN:
            await trio.lowlevel.checkpoint()
        ref._handled += 1
        item = mailbox.popleft()
        kind = type(item)
        asker: Reply[Any] | None = None
        if kind is Reply:
            asker = item
            message = item.message
        elif kind is Due:
            if not take_due(ref, item):
                continue
            message = item.timer.message
        elif kind is Begun:
            asker = item.reply
            message = None
            ref._handled -= 1  # counted when the handler was called
        else:
            message = item
        ref._current = asker
        try:
            if kind is Begun:
                result: Any = item.coroutine
            elif type(message) in PYKKA:
                result = actor._handle_receive(message)
            else:
                result = actor.on_receive(message)
            if type(result) is CoroutineType:
                result = await result
        except actor.refusals as refusal:
            ref._current = None
            if asker is not None and not asker.done:
                asker._complete(None, refusal)
        else:
            if asker is not None and ref._current is asker:
                ref._current = None
                asker._complete(result, None)


def take_due(ref: Ref[Any], due: Due) -> bool:
    """Whether a timer's message is still valid: neither cancelled nor replaced while it waited in the mailbox."""
    timer = due.timer
    rare = ref._more()
    if rare.timers.get(timer.key) is not timer:
        return False
    del rare.timers[timer.key]
    return True
