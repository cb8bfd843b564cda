"""The actor: what one subclasses."""

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
        """`pykka.Actor` without its hooks' types, which say that no hook is a coroutine function."""

        def _handle_receive(self, message: Any) -> Any: ...

else:
    _Base = pykka.Actor

__all__ = ["Actor"]

logger = logging.getLogger("actors")


class Actor(_Base):
    """A Trio task that owns its state and handles one message at a time, also while a handler awaits.

    Override `on_receive` and, where needed, the hooks; each may be `def` or `async def`. A `Refused` raised by a
    handler is its answer; any other exception ends this incarnation, and the supervisor decides what follows.

    `mailbox_size` bounds how many messages may wait; `overflow` says who loses when one more comes: the new one
    ("refuse": its asker gets `Busy`) or the one that has waited longest ("drop_oldest").
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
        # Here and not in __init__, which a subclass may forget to call.
        self._actor_ref = Ref(self)
        return self

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        # Pykka's constructor makes what Ref holds already.
        pass

    @classmethod
    def start(cls, *args: Any, **kwargs: Any) -> Ref[Self]:
        """Start an actor that no supervisor looks after, in the system of the current task; it ends with the system.

        Raises NotRunning outside a system. Prefer a `ChildSpec` under a supervisor.
        """
        from actors._system import current_system

        system = current_system.get()
        if system is None:
            raise NotRunning("no actor system is open here; use `async with System(...)`")
        return system.adopt(cls(*args, **kwargs))

    # What a subclass overrides

    def on_receive(self, message: Any) -> Any:
        """Handle a message; the result is the answer, if it was asked."""
        logger.warning("unexpected message received by %s: %r", self, message)

    def on_start(self) -> Any:
        """Run before the first message. An exception here is a failed start."""

    def on_stop(self) -> Any:
        """Run after the last message of an actor that is stopped in good order."""

    def on_failure(self, exc_type: type[BaseException], exc: BaseException, tb: TracebackType | None) -> Any:
        """Run after an exception ended this incarnation, before the supervisor hears of it."""

    # What a handler uses

    @property
    def name(self) -> str | None:
        """The name the actor is registered under, None if it has none."""
        return self._actor_ref.name or None

    @property
    def actor_ref(self) -> Ref[Self]:
        """This incarnation's reference."""
        return self._actor_ref

    def defer(self) -> Reply[Any]:
        """Take over the reply to the message being handled; what the handler returns is then ignored.

        Answer it at any time with `set` or `fail`; if this incarnation ends first, the asker gets `Down`. For a message
        that nobody asked, the reply goes nowhere. Raises RuntimeError outside a handler.
        """
        return self._actor_ref._defer()

    def set_timer(self, key: Hashable, seconds: float, message: Any) -> None:
        """Send `message` to this incarnation in `seconds`; a timer already running under `key` is replaced.

        The message comes through the ordinary mailbox (over its bound if need be) and never after `cancel_timer`,
        a new `set_timer` of the same key, or the end of this incarnation.
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
        """Forget the timer of this key; nothing if there is none."""
        if get_ident() != self._actor_ref._home:
            self._actor_ref._call_soon(self.cancel_timer, key)
            return
        rare = self._actor_ref._rare
        if rare is not None and (timer := rare.timers.pop(key, None)) is not None:
            timer.cancel()

    def spawn(self, async_fn: Callable[..., Awaitable[object]], *args: Any) -> trio.CancelScope:
        """Run a task beside the handlers; it is cancelled when this incarnation ends, and if it crashes, so does this.

        Returns its scope, to cancel it by. It must not touch the actor's state; have it tell the actor instead.
        """
        if get_ident() != self._actor_ref._home:
            raise RuntimeError("background tasks are started on the loop; a thread actor can tell a plain actor to")
        return self.system.run_beside(self._actor_ref, async_fn, args)

    def monitor(self, target: pykka.ActorRef[Any] | Name) -> None:
        """Have a `DownEvent` sent to this actor once, when the target (a name's present incarnation) goes down.

        At once if it is gone already. Monitoring the same target twice is monitoring it once.
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
        """Stop monitoring; nothing if the target is not monitored. A `DownEvent` already in the mailbox still comes."""
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
        """End after the message being handled, before those that wait. From any thread; returns at once."""
        ref = self._actor_ref
        if get_ident() == ref._home:
            ref._request_stop()
        else:
            ref._call_soon(ref._request_stop)

    # Pykka's hooks for a runtime, and its attributes

    @property
    def actor_urn(self) -> str:
        """Unique among the actors of this process."""
        return self._actor_ref.actor_urn

    @property
    def actor_inbox(self) -> Inbox:
        """The mailbox as Pykka sees it."""
        return self._actor_ref.actor_inbox

    @property
    def actor_stopped(self) -> StoppedFlag:
        """Set once this incarnation takes no more messages."""
        return self._actor_ref.actor_stopped

    @staticmethod
    def _create_actor_inbox() -> Any:
        raise RuntimeError("an actor's mailbox is made with its reference")

    @staticmethod
    def _create_future() -> Reply[Any]:
        return Reply()

    def _stop(self) -> None:
        self.stop()  # what Pykka's stop message calls

    def _start_actor_loop(self) -> None:
        raise RuntimeError("an actor is started by its supervisor, or with start()")

    # What the runtime asks of the kinds of actor

    _serve = staticmethod(serve)

    async def _invoke(self, hook: Callable[..., Any], *args: Any) -> Any:
        """Call a hook where this kind of actor runs."""
        result = hook(*args)
        return await result if isinstance(result, CoroutineType) else result

    async def _on_system(self, item: Any) -> None:
        """Handle a message of the urgent lane other than a stop; supervisors have such."""

    async def _release(self, *, killed: bool) -> None:
        """Let go of what must not outlive this incarnation: a supervisor's children, a thread."""
