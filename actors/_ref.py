"""How actors are addressed: the reference to an incarnation, which is also its mailbox, and the stable name."""

from __future__ import annotations

import enum
import itertools
import math
from collections import deque
from collections.abc import Callable, Hashable
from threading import get_ident
from typing import Any, Generic, Protocol, TypeVar

import attrs
import pykka
import trio
from trio.lowlevel import Abort, reschedule, wait_task_rescheduled

from actors._reply import Reply
from actors._timers import Timer
from actors.errors import Busy, Down, NotRunning, describe
from actors.events import DeadLettered, Event, MailboxOverflowed
from actors.spec import Behaviour, ChildSpec

A = TypeVar("A", bound=Behaviour)

_serial = itertools.count(1)

# The time limit (seconds) for the stop of an actor without a supervisor.
LOOSE_SECONDS = 5.0


class Phase(enum.IntEnum):
    """The phase of an incarnation. Messages are accepted before `ENDING`."""

    NEW = 0
    STARTING = 1
    RUNNING = 2
    ENDING = 3
    ENDED = 4


class Fired:
    """A mailbox item: a timer has run out."""

    __slots__ = ("timer",)

    def __init__(self, timer: Timer) -> None:
        self.timer = timer


class Extras:
    """State that few incarnations need, kept separate to save memory for the others."""

    __slots__ = ("abandoned", "background", "crash", "deferred", "monitoring", "monitors", "timers")

    def __init__(self) -> None:
        self.abandoned = False
        self.background: dict[trio.CancelScope, None] = {}
        self.crash: BaseException | None = None
        self.deferred: dict[Reply[Any], None] = {}
        self.monitors: dict[tuple[Ref[Any] | Reply[bool], Ref[Any] | Name | None], None] = {}
        self.monitoring: dict[tuple[Ref[Any], Ref[Any] | Name], None] = {}
        self.timers: dict[Hashable, Timer] = {}


class Host(Protocol):
    """The part of an actor system that references and names use."""

    token: trio.lowlevel.TrioToken
    on_event: Callable[[Event], object] | None

    def emit(self, event: Event) -> None: ...

    def report(self, event: Event) -> None: ...

    def ref(self, label: str) -> Ref[Any] | None: ...

    def unregister(self, ref: Ref[Any]) -> None: ...

    async def next_incarnation(self, name: Name, after: Ref[Any] | None) -> Ref[Any]: ...


class Ref(pykka.ActorRef[Any], Generic[A]):
    """One incarnation of an actor: a `pykka.ActorRef` whose `ask` and `tell` work in every thread.

    A ref is valid for one incarnation. Keep a `Name` if the actor may be restarted.
    """

    # The mailbox is part of the reference because there may be very many actors.
    __slots__ = (
        "_actor",
        "_current",
        "_extras",
        "_handled",
        "_home",
        "_killed",
        "_lane",
        "_limit",
        "_mailbox",
        "_number",
        "_parked",
        "_phase",
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
        self.actor_class: type[Any] = type(actor)
        self.name = ""
        self._number = next(_serial)
        self._system: Host | None = None
        self._home = get_ident()
        self._phase = Phase.NEW
        self._mailbox: deque[Any] = deque()
        self._limit = actor.mailbox_size
        self._lane: deque[Any] | None = None
        self._task: trio.lowlevel.Task | None = None
        self._parked = False
        self._scope: trio.CancelScope | None = None
        self._current: Reply[Any] | None = None
        self._slot: Slot | None = None
        self._handled = 0
        self._started_at: float | None = None
        self._killed = False
        self._stop_asked = False
        self._extras: Extras | None = None

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

    def _actor_weakref(self) -> A | None:  # type: ignore[override]
        return self._actor

    def is_alive(self) -> bool:
        """Whether the actor accepts messages. This may change before the caller acts on it."""
        return self._phase < Phase.ENDING

    def tell(self, message: Any) -> None:
        """Send a message without waiting. Callable from any thread; never blocks.

        Raises NotRunning if the actor has ended. A message to a full mailbox is dropped and reported as an event.
        """
        if get_ident() != self._home:
            if self._phase >= Phase.ENDING:
                raise self._not_running()
            self._call_soon(self._accept, message)
            return
        if self._phase >= Phase.ENDING:
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
        if self._phase >= Phase.ENDING:
            if type(item) is Reply:
                item._complete(None, self._not_running())
            else:
                self._emit(DeadLettered, self.label, item)
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
        if self._phase is Phase.ENDED:
            return
        if self._lane is None:
            self._lane = deque()
        self._lane.append(item)
        self._wake()

    def _wake(self) -> None:
        if self._parked:
            self._parked = False
            reschedule(self._task)  # type: ignore[arg-type]

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
        if type(loser) is Fired:
            message = loser.timer.message
            self._more().timers.pop(loser.timer.key, None)
        if type(loser) is Reply:
            loser._complete(None, Busy(f"the mailbox of {self.label!r} is full ({self._limit}); try again later"))
        self._emit(MailboxOverflowed, self.label, message)
        return not refuse

    # Deferred replies

    def _defer(self) -> Reply[Any]:
        """Take the reply to the current message over from the runtime."""
        reply = self._current
        if reply is None:
            raise RuntimeError("there is no request to take over; call defer() in the handler of an ask")
        self._current = None
        extras = self._more()
        if len(extras.deferred) > 64:
            # Replies that askers in other threads abandoned are removed here. Doing so rarely keeps the cost linear.
            extras.deferred = {old: None for old in extras.deferred if not old.done and not old.abandoned}
        extras.deferred[reply] = None
        return reply

    def _settled(self, reply: Reply[Any]) -> None:
        """Forget a reply that is answered, or that nothing waits for any more."""
        if self._extras is not None:
            self._extras.deferred.pop(reply, None)

    # Stop, crash and end

    def _stop_for(self, reply: Reply[bool]) -> None:
        if self._phase >= Phase.ENDED:
            reply._complete(False, None)
            return
        self._more().monitors[(reply, None)] = None
        self._request_stop()

    def _request_stop(self) -> None:
        if self._phase < Phase.ENDING and not self._stop_asked:
            self._stop_asked = True
            self._put_urgent(None)

    def _crash(self, reason: BaseException) -> None:
        """End the incarnation with an exception from outside its handlers, also during a message."""
        if self._phase < Phase.ENDING:
            extras = self._more()
            extras.crash = extras.crash or reason
            if self._scope is not None:
                self._scope.cancel()

    def _kill(self) -> None:
        """Cancel the actor, also during a message."""
        self._killed = True
        if self._scope is not None:
            self._scope.cancel()

    def _close(self, reason: BaseException | None) -> None:
        """Accept no more messages, release the name, and answer every pending request."""
        if self._phase >= Phase.ENDING:
            return
        self._phase = Phase.ENDING
        assert self._system is not None
        self._system.unregister(self)
        current, self._current = self._current, None
        if current is not None and not current.done:
            current._complete(None, Down(self.label, reason, begun=True))
        if self._extras is not None:
            for reply in list(self._extras.deferred):
                reply._complete(None, Down(self.label, reason, begun=True, handling=False))
            for timer in self._extras.timers.values():
                timer.cancel()
            self._extras.timers.clear()
        while self._mailbox:
            item = self._mailbox.popleft()
            if type(item) is Reply:
                item._complete(None, Down(self.label, reason, begun=False))
            elif type(item) is not Fired:
                self._emit(DeadLettered, self.label, item)
        if self._extras is not None:
            for scope in self._extras.background:
                scope.cancel()

    @property
    def _over(self) -> bool:
        """Whether the incarnation has ended."""
        return self._phase is Phase.ENDED

    @property
    def _stuck(self) -> bool:
        """Whether the incarnation, or its thread, still runs after it was cancelled."""
        return not self._over or (self._extras is not None and self._extras.abandoned)

    @property
    def _stop_seconds(self) -> float:
        """The time limit for the end of the incarnation, in seconds."""
        if self._slot is None:
            return LOOSE_SECONDS
        shutdown = self._slot.spec.shutdown
        return math.inf if shutdown is None else shutdown

    def _more(self) -> Extras:
        """Return the extras; create them if there are none."""
        if self._extras is None:
            self._extras = Extras()
        return self._extras

    def _not_running(self) -> NotRunning:
        return NotRunning(f"actor {self.label!r} is not running; ask it by name to reach its next incarnation")

    def _emit(self, kind: Callable[..., Event], *args: Any) -> None:
        """Report an event. It is built only if there is an event hook."""
        if self._system is not None and self._system.on_event is not None:
            self._system.emit(kind(*args))


@attrs.frozen(repr=False)
class Name:
    """Refers to the current incarnation of the actor registered as `label`. It stays valid over restarts.

    Two names of one system are equal if their labels are equal.
    """

    system: Host
    label: str

    def __repr__(self) -> str:
        return f"<Name {self.label}>"

    @property
    def ref(self) -> Ref[Any] | None:
        """The current incarnation, or None."""
        return self.system.ref(self.label)

    def present(self) -> Ref[Any]:
        """Return the current incarnation. Raises NotRunning if there is none."""
        ref = self.ref
        if ref is None:
            raise NotRunning(f"no actor is running under the name {self.label!r}; ask with retry=True to wait for one")
        return ref

    def is_alive(self) -> bool:
        """Whether an actor is registered under the name now."""
        return self.ref is not None

    def tell(self, message: Any) -> None:
        """Send a message without waiting. Callable from any thread. Reports a dead letter if no actor is running."""
        try:
            self.present().tell(message)
        except NotRunning:
            self.system.report(DeadLettered(self.label, message))

    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """As `Ref.ask`. Without an incarnation, raises NotRunning, or with `block=False` answers with it."""
        try:
            ref = self.present()
        except NotRunning as gone:
            if block:
                raise
            reply: Reply[Any] = Reply(message)
            reply.fail(gone)
            return reply
        return ref.ask(message, block=block, timeout=timeout)


class Slot:
    """A child's place under its supervisor (None for the root of a system). It outlives the child's incarnations."""

    __slots__ = ("class_name", "last_crash", "reason", "ref", "restarts", "spec", "supervisor", "timer")

    def __init__(self, spec: ChildSpec, supervisor: Ref[Any] | None) -> None:
        self.spec = spec
        self.supervisor = supervisor
        self.ref: Ref[Any] | None = None
        self.reason: BaseException | None = None
        self.class_name = ""
        self.restarts = 0
        self.last_crash: str | None = None
        self.timer: Timer | None = None

    def forget_wait(self) -> None:
        """Cancel the delayed restart, if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def ended(self, ref: Ref[Any], reason: BaseException | None) -> None:
        """Record the end of an incarnation and inform the supervisor."""
        self.reason = reason
        self.class_name = ref.actor_class.__qualname__
        if reason is not None:
            self.last_crash = describe(reason)
        if self.supervisor is not None:
            self.supervisor._put_urgent(Ended(self, ref, reason))


class Ended:
    """A message to a supervisor: an incarnation of a child has ended."""

    __slots__ = ("reason", "ref", "slot")

    def __init__(self, slot: Slot, ref: Ref[Any], reason: BaseException | None) -> None:
        self.slot = slot
        self.ref = ref
        self.reason = reason
