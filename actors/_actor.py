"""The actor base class."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from threading import get_ident
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import pykka
import trio

from actors._life import serve
from actors._mail import Due, Life
from actors._ref import Ref
from actors._reply import Reply
from actors.errors import NotRunning, Refused
from actors.messages import DownEvent

if TYPE_CHECKING:
    from types import TracebackType

    from actors._inbox import Inbox, StoppedFlag
    from actors._name import Name
    from actors._system import System

    class _Base:
        """`pykka.Actor` without the types of its hooks, which do not allow coroutine functions."""

        def _handle_receive(self, message: Any) -> Any: ...

else:
    _Base = pykka.Actor

__all__ = ["Actor"]

logger = logging.getLogger("actors")


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

    system: System
    """The system the actor lives in; there from `on_start` on."""

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
        from actors._system import current_system

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
    def name(self) -> str | None:
        """The name the actor is registered under, or None."""
        return self._actor_ref.name or None

    @property
    def actor_ref(self) -> Ref[Self]:
        """This incarnation's reference."""
        return self._actor_ref

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
        if get_ident() != self._actor_ref._home:
            self._actor_ref._call_soon(self.set_timer, key, seconds, message)
            return
        self.cancel_timer(key)
        ref = self._actor_ref
        if ref._life >= Life.ENDING:
            return

        def due(timer: Any) -> None:
            ref._put(Due(timer))

        timer = self.system.timers.add(seconds, due)
        timer.key = key
        timer.message = message
        ref._more().timers[key] = timer

    def cancel_timer(self, key: Hashable) -> None:
        """Cancel the timer of this key. Does nothing if there is none."""
        if get_ident() != self._actor_ref._home:
            self._actor_ref._call_soon(self.cancel_timer, key)
            return
        rare = self._actor_ref._rare
        if rare is not None and (timer := rare.timers.pop(key, None)) is not None:
            timer.cancel()

    def spawn(self, async_fn: Callable[..., Awaitable[object]], *args: Any) -> trio.CancelScope:
        """Run a background task. It is cancelled when this incarnation ends; if it crashes, this incarnation crashes.

        Returns the cancel scope of the task. The task must not touch the actor's state: it sends the actor a message
        instead.
        """
        if get_ident() != self._actor_ref._home:
            raise RuntimeError("background tasks are started on the loop; a thread actor can tell a plain actor to")
        return self.system.run_beside(self._actor_ref, async_fn, args)

    def monitor(self, target: pykka.ActorRef[Any] | Name) -> None:
        """Send this actor one `DownEvent` when the target goes down. A name means its current incarnation.

        The event comes at once if the target is already down. A second monitor of the same target has no effect.
        """
        if get_ident() != self._actor_ref._home:
            self._actor_ref._call_soon(self.monitor, target)
            return
        me = self._actor_ref
        known = cast("Ref[Any] | Name", target)
        ref = known if isinstance(known, Ref) else known.ref
        if ref is None or ref._life >= Life.ENDED:
            gone = NotRunning(f"actor {known.label!r} is not running")
            me._put(DownEvent(known, known.label, ref, gone))
            return
        ref._add_monitor(me, known)
        me._more().monitoring[(ref, known)] = None

    def demonitor(self, target: pykka.ActorRef[Any] | Name) -> None:
        """Stop monitoring a target. A `DownEvent` that is already in the mailbox is still delivered."""
        me = self._actor_ref
        if get_ident() != me._home:
            me._call_soon(self.demonitor, target)
            return
        if me._rare is None:
            return
        for ref, watched in [pair for pair in me._rare.monitoring if pair[1] == target]:
            del me._rare.monitoring[(ref, watched)]
            ref._more().monitors.pop((me, watched), None)

    def stop(self) -> None:
        """End after the current message, before those that wait. Callable from any thread; returns at once."""
        ref = self._actor_ref
        if get_ident() == ref._home:
            ref._request_stop()
        else:
            ref._call_soon(ref._request_stop)

    # Pykka's runtime hooks and attributes

    @property
    def actor_urn(self) -> str:
        """The actor's id, unique in this process."""
        return self._actor_ref.actor_urn

    @property
    def actor_inbox(self) -> Inbox:
        """The mailbox as Pykka sees it."""
        return self._actor_ref.actor_inbox

    @property
    def actor_stopped(self) -> StoppedFlag:
        """A flag that is set when this incarnation accepts no more messages."""
        return self._actor_ref.actor_stopped

    @staticmethod
    def _create_actor_inbox() -> Any:
        raise RuntimeError("an actor's mailbox is made with its reference")

    @staticmethod
    def _create_future() -> Reply[Any]:
        return Reply()

    def _stop(self) -> None:
        self.stop()  # Pykka's stop message calls this

    def _start_actor_loop(self) -> None:
        raise RuntimeError("an actor is started by its supervisor, or with start()")

    # Overridden by thread actors and supervisors

    _serve = staticmethod(serve)

    async def _invoke(self, hook: Callable[..., Any], *args: Any) -> Any:
        """Call a hook in the place where this kind of actor runs: the loop or a thread."""
        result = hook(*args)
        return await result if isinstance(result, CoroutineType) else result

    async def _on_system(self, item: Any) -> None:
        """Handle an urgent message other than a stop. Only supervisors receive such messages."""

    async def _release(self, *, killed: bool) -> None:
        """Release what must end with this incarnation: a supervisor's children, or a thread."""
