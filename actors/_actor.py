"""The actor base class, and the life of an incarnation: start, message loop, end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Hashable
from threading import get_ident
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import pykka
import trio
from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop
from trio.lowlevel import current_task

from actors._ref import Fired, Name, Phase, Ref, Slot
from actors._reply import Reply
from actors._system import System, current_system
from actors._timers import Timer
from actors.errors import NotRunning, Refused
from actors.events import ActorCrashed, ActorStarted, ActorStopped
from actors.messages import DownEvent

if TYPE_CHECKING:
    from types import TracebackType

    class _Base:
        """`pykka.Actor` without the types of its hooks, which do not allow coroutine functions."""

        def _handle_receive(self, message: Any) -> Any: ...

else:
    _Base = pykka.Actor

logger = logging.getLogger("actors")

_PYKKA = frozenset({ProxyCall, ProxyGetAttr, ProxySetAttr, _ActorStop})

# An actor yields to other tasks after so many messages.
_TURN = 128


class StopAsked(Exception):
    """The supervisor was asked to stop while it waited for a child. Used only inside supervisors."""


class Actor(_Base):
    """A Trio task that owns its state and handles one message at a time.

    The next message waits until the handler has returned, also while the handler awaits. Override `on_receive` and, if
    needed, the hooks. Each may be `def` or `async def`. A `Refused` that a handler raises is its answer. Any other
    exception ends this incarnation, and the supervisor decides what to do.

    `mailbox_size` is the most messages that may wait. `overflow` says which message is lost if one more arrives: the
    new one ("refuse": its asker gets `Busy`) or the oldest one ("drop_oldest").
    """

    mailbox_size: ClassVar[int] = 1000
    overflow: ClassVar[Literal["refuse", "drop_oldest"]] = "refuse"
    refusals: ClassVar[tuple[type[Exception], ...]] = (Refused,)
    """The exceptions that are answers and no crashes; a program adds errors that are to know nothing of actors."""
    is_supervisor: ClassVar[bool] = False

    _actor_ref: Ref[Any]

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        self = super().__new__(cls)
        # Not in __init__, because a subclass may forget to call it.
        self._actor_ref = Ref(self)
        return self

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        # Do not call Pykka's constructor: `Ref` already holds what it would create.
        pass

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Ref[Self]:
        """Start an actor without a supervisor in the system of the current task. It ends with the system.

        Raises NotRunning outside a system. Prefer a `ChildSpec` under a supervisor.
        """
        system = current_system.get()
        if system is None:
            raise NotRunning("no actor system is open here; use `async with System(...)`")
        return system.adopt(cls(*args, **kwargs))

    # Hooks to override

    def on_receive(self, message: Any) -> Any:
        """Handle a message. The result answers the asker, if there is one."""
        logger.warning("unexpected message received by %s: %r", self, message)

    def on_start(self) -> Any:
        """Run before the first message. An exception here is a failed start."""

    def on_stop(self) -> Any:
        """Run after the last message, if the actor is stopped normally."""

    def on_failure(self, exc_type: type[BaseException], exc: BaseException, tb: TracebackType | None) -> Any:
        """Run after an exception ended this incarnation, before the supervisor is informed."""

    # For use in handlers

    @property
    def system(self) -> System:
        """The system the actor lives in; there from `on_start` on."""
        return cast("System", self._actor_ref._system)

    @property
    def name(self) -> str | None:
        """The name the actor is registered under, or None."""
        return self._actor_ref.name or None

    @property
    def actor_ref(self) -> Ref[Self]:
        """This incarnation's reference."""
        return self._actor_ref

    @property
    def actor_urn(self) -> str:
        """The actor's id, unique in this process."""
        return self._actor_ref.actor_urn

    def defer(self) -> Reply[Any]:
        """Take over the reply to the current message. The handler's result is then ignored.

        Answer the reply at any time with `set` or `fail`. If this incarnation ends first, the asker gets `Down`. Raises
        RuntimeError outside a handler, and for a message without an asker.
        """
        return self._actor_ref._defer()

    def set_timer(self, key: Hashable, seconds: float, message: Any) -> None:
        """Send `message` to this incarnation after `seconds`. This replaces a timer that runs under the same `key`.

        The message goes through the ordinary mailbox, beyond its limit if necessary. It never arrives after
        `cancel_timer`, a new `set_timer` for the same key, or the end of this incarnation.
        """
        ref = self._actor_ref
        if get_ident() != ref._home:
            ref._call_soon(self.set_timer, key, seconds, message)
            return
        self.cancel_timer(key)
        if ref._phase >= Phase.ENDING:
            return

        def due(timer: Timer) -> None:
            ref._put(Fired(timer))

        timer = self.system.timers.add(seconds, due)
        timer.key = key
        timer.message = message
        ref._more().timers[key] = timer

    def cancel_timer(self, key: Hashable) -> None:
        """Cancel the timer of this key. Does nothing if there is none."""
        ref = self._actor_ref
        if get_ident() != ref._home:
            ref._call_soon(self.cancel_timer, key)
            return
        if ref._extras is not None and (timer := ref._extras.timers.pop(key, None)) is not None:
            timer.cancel()

    def spawn(self, async_fn: Callable[..., Awaitable[object]], *args: Any) -> trio.CancelScope:
        """Run a background task. It is cancelled when this incarnation ends; if it crashes, this incarnation crashes.

        Returns the cancel scope of the task. The task must not touch the actor's state: it sends the actor a message
        instead.
        """
        if get_ident() != self._actor_ref._home:
            raise RuntimeError("background tasks are started on the loop; a thread actor can tell a plain actor to")
        return self.system.run_in_background(self._actor_ref, async_fn, args)

    def monitor(self, target: pykka.ActorRef[Any] | Name) -> None:
        """Send this actor one `DownEvent` when the target goes down. A name means its current incarnation.

        The event comes at once if the target is already down. A second monitor of the same target has no effect.
        """
        me = self._actor_ref
        if get_ident() != me._home:
            me._call_soon(self.monitor, target)
            return
        known = cast("Ref[Any] | Name", target)
        ref = known if isinstance(known, Ref) else known.ref
        if ref is None or ref._over:
            gone = NotRunning(f"actor {known.label!r} is not running")
            me._put(DownEvent(known, known.label, ref, gone))
            return
        ref._more().monitors[(me, known)] = None
        me._more().monitoring[(ref, known)] = None

    def stop(self) -> None:
        """End after the current message, before those that wait. Callable from any thread; returns at once."""
        ref = self._actor_ref
        if get_ident() == ref._home:
            ref._request_stop()
        else:
            ref._call_soon(ref._request_stop)

    def _stop(self) -> None:
        self.stop()  # Pykka's stop message calls this

    def _start_actor_loop(self) -> None:
        raise RuntimeError("an actor is started by its supervisor, or with start()")

    # Abstract in Pykka, which would call them in its own constructor and loop.
    _create_actor_inbox = _create_future = _start_actor_loop

    # Overridden by thread actors and supervisors

    async def _handle_messages(self) -> None:
        """Handle messages one by one, urgent ones first, until a stop is requested."""
        ref = self._actor_ref
        mailbox = ref._mailbox
        while True:
            if ref._lane:
                if ref._stop_asked:
                    return
                await self._on_system(ref._lane.popleft())
                continue
            if not mailbox:
                await ref._park()
                continue
            if not ref._handled % _TURN:
                await trio.lowlevel.checkpoint()
            item = mailbox.popleft()
            asker: Reply[Any] | None = None
            message = item
            if type(item) is Reply:
                asker = item
                message = item.message
            elif type(item) is Fired:
                if not take_timer(ref, item.timer):
                    continue
                message = item.timer.message
            ref._handled += 1
            ref._current = asker
            try:
                result = self._handle_receive(message) if type(message) in _PYKKA else self.on_receive(message)
                if type(result) is CoroutineType:
                    result = await result
            except self.refusals as refusal:
                ref._current = None
                if asker is not None and not asker.done:
                    asker._complete(None, refusal)
            else:
                if asker is not None and ref._current is asker:
                    ref._current = None
                    asker._complete(result, None)

    async def _invoke(self, hook: Callable[..., Any], *args: Any) -> Any:
        """Call a hook in the place where this kind of actor runs: the loop or a thread."""
        result = hook(*args)
        return await result if isinstance(result, CoroutineType) else result

    async def _on_system(self, item: Any) -> None:
        """Handle an urgent message other than a stop. Only supervisors receive such messages."""

    async def _release(self, *, killed: bool) -> None:
        """Release what must end with this incarnation: a supervisor's children, or a thread."""

    def _child_slots(self) -> Collection[Slot]:
        """Return the places of a supervisor's children."""
        return ()

    async def _live(self) -> None:
        """Run this incarnation from start to end. Every pending request is answered, however it ends."""
        ref = self._actor_ref
        ref._task = current_task()
        reason: BaseException | None = None
        scope = ref._scope = trio.CancelScope()
        if ref._killed or (ref._extras is not None and ref._extras.crash is not None):
            scope.cancel()
        try:
            with scope:
                try:
                    await self._invoke(self.on_start)
                    ref._phase = Phase.RUNNING
                    ref._started_at = self.system.clock()
                    ref._emit(ActorStarted, ref.label, ref.actor_class)
                    self.system.started(ref)
                    await self._handle_messages()
                except StopAsked:
                    pass
                ref._close(None)
                await _background_over(ref)
                await self._invoke(self.on_stop)
        except trio.Cancelled:
            # The whole system is cancelled, and Trio requires that its exception propagates.
            ref._killed = True
            _bury(self, ref, None)
            raise
        except BaseException as exc:
            reason = exc
        if reason is None and ref._extras is not None:
            reason = ref._extras.crash
        await _finish(self, ref, reason)


async def _background_over(ref: Ref[Any]) -> None:
    """Wait until the actor's background tasks, already cancelled, have ended."""
    while ref._extras is not None and ref._extras.background:
        await ref._park()


async def _finish(actor: Actor, ref: Ref[Any], reason: BaseException | None) -> None:
    ref._close(reason)
    if ref._extras is not None:
        with trio.CancelScope(shield=True):
            await _background_over(ref)
    hook_error: BaseException | None = None
    if reason is not None and not ref._killed:
        try:
            with trio.move_on_after(ref._stop_seconds) as ref._scope:
                await actor._invoke(actor.on_failure, type(reason), reason, reason.__traceback__)
        except trio.Cancelled:
            raise
        except BaseException as exc:
            hook_error = exc
    await actor._release(killed=ref._killed)
    if reason is not None:
        ref._emit(ActorCrashed, ref.label, reason, hook_error)
    _bury(actor, ref, reason)


def _bury(actor: Actor, ref: Ref[Any], reason: BaseException | None) -> None:
    """Mark the incarnation as ended, and tell its monitors and the system."""
    ref._close(reason)
    ref._phase = Phase.ENDED
    if reason is None:
        ref._emit(ActorStopped, ref.label, ref._killed)
    # Other code may keep the ref for long; the actor must not stay in memory with it.
    ref._actor = ref._task = ref._scope = ref._lane = None
    if ref._extras is not None:
        for watcher, target in ref._extras.monitors:
            if isinstance(watcher, Reply):
                watcher._complete(True, None)
            elif target is not None and watcher._phase < Phase.ENDING:
                watcher._more().monitoring.pop((ref, target), None)
                watcher._put(DownEvent(target, ref.label, ref, reason))
        for watched, target in ref._extras.monitoring:
            watched._more().monitors.pop((ref, target), None)
        ref._extras.monitors.clear()
        ref._extras.monitoring.clear()
    actor.system.ended(ref, reason)


def take_timer(ref: Ref[Any], timer: Timer) -> bool:
    """Whether a timer's message is still valid: neither cancelled nor replaced while it waited in the mailbox."""
    timers = ref._more().timers
    if timers.get(timer.key) is not timer:
        return False
    del timers[timer.key]
    return True
