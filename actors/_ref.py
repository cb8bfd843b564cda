"""The reference to an actor. It is also the mailbox, in one object, because there may be very many."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pykka
import trio
from trio.lowlevel import Abort, reschedule, wait_task_rescheduled

from actors._farewell import drain
from actors._mail import AT_ONCE, Due, Life, Rare
from actors._reply import Reply
from actors.errors import Busy, NotRunning
from actors.events import DeadLettered, MailboxOverflowed

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._children import Slot
    from actors._inbox import Inbox, StoppedFlag
    from actors._name import Name
    from actors._system import System

__all__ = ["Ref"]

A = TypeVar("A", bound="Actor")

_serial = itertools.count(1)


class Ref(pykka.ActorRef[Any], Generic[A]):
    """One incarnation of an actor: a `pykka.ActorRef` whose `ask` and `tell` work in every thread.

    A ref is valid for one incarnation. Keep a `Name` if the actor may be restarted.
    """

    __slots__ = (
        "_actor",
        "_current",
        "_handled",
        "_home",
        "_idle",
        "_killed",
        "_lane",
        "_life",
        "_limit",
        "_mailbox",
        "_number",
        "_parked",
        "_rare",
        "_scope",
        "_slot",
        "_started_at",
        "_stop_asked",
        "_system",
        "_task",
        "actor_class",
        "name",
    )

    def __init__(self, actor: A) -> None:
        self._actor: A | None = actor
        self.actor_class = type(actor)
        self.name = ""
        self._number = next(_serial)
        self._system: System | None = None
        self._home = get_ident()
        self._life = Life.NEW
        self._mailbox: deque[Any] = deque()
        self._limit = actor.mailbox_size
        self._lane: deque[Any] | None = None
        self._task: trio.lowlevel.Task | None = None
        self._parked = False
        self._idle = False
        self._scope: trio.CancelScope | None = None
        self._current: Reply[Any] | None = None
        self._slot: Slot | None = None
        self._handled = 0
        self._started_at: float | None = None
        self._killed = False
        self._stop_asked = False
        self._rare: Rare | None = None

    def __repr__(self) -> str:
        return f"<Ref {self}>"

    def __str__(self) -> str:
        return f"{self.actor_class.__name__} ({self.name or self.actor_urn})"

    @property
    def label(self) -> str:
        """The actor's name in messages to people: its registered name, or its class and number."""
        return self.name or f"{self.actor_class.__name__}#{self._number}"

    # Pykka's interface

    @property
    def actor_urn(self) -> str:  # type: ignore[override]
        """The actor's id, unique in this process. Built on demand, because it is seldom used."""
        return f"urn:actor:{self._number}"

    @property
    def actor_inbox(self) -> Inbox:  # type: ignore[override]
        """The mailbox as Pykka sees it."""
        from actors._inbox import Inbox

        return Inbox(self)

    @property
    def actor_stopped(self) -> StoppedFlag:  # type: ignore[override]
        """A flag that is set when the actor accepts no more messages."""
        from actors._inbox import StoppedFlag

        return StoppedFlag(self)

    def _actor_weakref(self) -> A | None:  # type: ignore[override]
        return self._actor

    def is_alive(self) -> bool:
        """Whether the actor accepts messages. This may change before the caller acts on it."""
        return self._life < Life.ENDING

    def tell(self, message: Any) -> None:
        """Send a message without waiting. Callable from any thread; never blocks.

        Raises NotRunning if the actor has ended. A message to a full mailbox is dropped and reported as an event.
        """
        if get_ident() != self._home:
            self._check_alive()
            self._call_soon(self._accept, message)
            return
        if self._life >= Life.ENDING:
            raise self._not_running()
        mailbox = self._mailbox
        if len(mailbox) >= self._limit and not self._make_room(message):
            return
        mailbox.append(message)
        if self._parked:
            self._parked = False
            reschedule(self._task)  # type: ignore[arg-type]

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and return its answer, or with `block=False` a `Reply` to wait on.

        `timeout` is in seconds. Code on a Trio loop must use `block=False`, or better `await actors.ask(ref, message)`.
        Raises `pykka.Timeout`, and what `actors.ask` raises.
        """
        if block and trio.lowlevel.in_trio_run():
            raise RuntimeError("a blocking ask would stop the loop; use `await actors.ask(ref, message)`")
        reply: Reply[Any] = Reply(message, self)
        if get_ident() == self._home:
            self._accept(reply)
        else:
            try:
                self._call_soon(self._accept, reply)
            except NotRunning as gone:
                reply._complete(None, gone)
        if not block:
            return reply
        try:
            return reply.get(timeout=timeout)
        except pykka.Timeout:
            reply.abandoned = True
            raise

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """End the actor after its current message, before those that wait. Return whether it was alive.

        With `block`, waits until the actor has ended, at most `timeout` seconds. Code on a Trio loop must use
        `block=False` and await the reply. Raises `pykka.Timeout`.
        """
        if block and trio.lowlevel.in_trio_run():
            raise RuntimeError("waiting for a stop here would block the loop; await ref.stop(block=False)")
        reply: Reply[bool] = Reply(None, self)
        if get_ident() == self._home:
            self._stop_for(reply)
        else:
            try:
                self._call_soon(self._stop_for, reply)
            except NotRunning:
                reply._complete(False, None)
        return reply.get(timeout=timeout) if block else reply

    # Incoming messages. Apart from `_call_soon`, this section runs on the loop's thread.

    def _call_soon(self, call: Callable[..., object], *args: Any) -> None:
        """Run a call on the actor's loop, from another thread. Raises NotRunning if the loop has ended."""
        system = self._system
        if system is None:
            raise self._not_running()
        try:
            system.token.run_sync_soon(call, *args)
        except trio.RunFinishedError:
            raise self._not_running() from None

    def _accept(self, item: Any) -> None:
        """Accept a message, or an ask (a Reply). If that is not possible, answer it or report a dead letter."""
        if self._life >= Life.ENDING:
            if type(item) is Reply:
                item._complete(None, self._not_running())
            else:
                self._dead_letter(item)
            return
        if len(self._mailbox) >= self._limit and not self._make_room(item):
            return
        self._put(item)

    def _put(self, item: Any) -> None:
        """Add an item to the mailbox, beyond its limit if necessary."""
        self._mailbox.append(item)
        self._wake()

    def _put_urgent(self, item: Any) -> None:
        """Add an item to the urgent queue, which is served before the mailbox."""
        if self._life is Life.ENDED:
            return
        if self._lane is None:
            self._lane = deque()
        self._lane.append(item)
        self._wake()

    def _wake(self) -> None:
        if self._parked:
            self._parked = False
            reschedule(self._task)  # type: ignore[arg-type]

    def _defer(self) -> Reply[Any]:
        """Take the reply to the current message over from the runtime."""
        reply = self._current
        if reply is None:
            raise RuntimeError("there is no request to take over; call defer() in the handler of an ask")
        rare = self._more()
        if reply is AT_ONCE:
            reply = rare.taken = Reply(None, self)
        self._current = None
        if len(rare.deferred) > 64:
            # Replies that askers in other threads abandoned are removed here. Doing so rarely keeps the cost linear.
            rare.deferred = {old: None for old in rare.deferred if not old.done and not old.abandoned}
        rare.deferred[reply] = None
        return reply

    async def _park(self) -> None:
        """Sleep until `_wake`. Callers check their condition again, so spurious wake-ups are harmless."""
        self._parked = True
        await wait_task_rescheduled(self._unpark)

    def _unpark(self, _: object) -> Abort:
        self._parked = False
        return Abort.SUCCEEDED

    def _make_room(self, item: Any) -> bool:
        """Handle a full mailbox: refuse the new item or drop the oldest. Return whether there is room now."""
        refuse = self.actor_class.overflow == "refuse" or not self._mailbox
        loser = item if refuse else self._mailbox.popleft()
        message = loser.message if type(loser) is Reply else loser
        if type(loser) is Due:
            message = loser.timer.message
            self._more().timers.pop(loser.timer.key, None)
        if type(loser) is Reply:
            loser._complete(None, Busy(f"the mailbox of {self.label!r} is full ({self._limit}); try again later"))
        self._emit(MailboxOverflowed, self.label, message)
        return not refuse

    # Stop, crash and end

    def _stop_for(self, reply: Reply[bool]) -> None:
        if self._life >= Life.ENDED:
            reply._complete(False, None)
            return
        self._add_monitor(reply, None)
        self._request_stop()

    @property
    def _over(self) -> bool:
        """Whether the incarnation has ended."""
        return self._life is Life.ENDED

    @property
    def _stuck(self) -> bool:
        """Whether the incarnation, or its thread, still runs after it was cancelled."""
        return not self._over or (self._rare is not None and self._rare.abandoned)

    def _crash(self, reason: BaseException) -> None:
        """End the incarnation with an exception from outside its handlers, also during a message."""
        if self._life < Life.ENDING:
            rare = self._more()
            rare.crash = rare.crash or reason
            if self._scope is not None:
                self._scope.cancel()

    def _request_stop(self) -> None:
        if self._life < Life.ENDING and not self._stop_asked:
            self._stop_asked = True
            self._put_urgent(None)

    def _close(self, reason: BaseException | None) -> None:
        """Accept no more messages, release the name, and answer every pending request."""
        if self._life >= Life.ENDING:
            return
        self._life = Life.ENDING
        assert self._system is not None
        self._system.unregister(self)
        drain(self, reason)
        if self._rare is not None:
            for scope in self._rare.background:
                scope.cancel()

    def _kill(self) -> None:
        """Cancel the actor, also during a message."""
        self._killed = True
        if self._scope is not None:
            self._scope.cancel()

    def _add_monitor(self, watcher: Ref[Any] | Reply[bool], target: Ref[Any] | Name | None) -> None:
        self._more().monitors[(watcher, target)] = None  # type: ignore[index]

    def _more(self) -> Rare:
        if self._rare is None:
            self._rare = Rare()
        return self._rare

    def _not_running(self) -> NotRunning:
        return NotRunning(f"actor {self.label!r} is not running; ask it by name to reach its next incarnation")

    def _check_alive(self) -> None:
        if self._life >= Life.ENDING:
            raise self._not_running()

    def _dead_letter(self, message: Any) -> None:
        self._emit(DeadLettered, self.label, message)

    def _emit(self, kind: Callable[..., Any], *args: Any) -> None:
        """Report an event. It is built only if there is an event hook."""
        if self._system is not None and self._system.on_event is not None:
            self._system.emit(kind(*args))
