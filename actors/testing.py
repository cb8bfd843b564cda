"""Test tools for actors: a probe, an event recorder, a fault injector, a leak check, virtual time."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal, TypeVar

import attrs
import trio
import trio.testing

from actors._actor import Actor
from actors._ref import Name, Ref
from actors._system import System
from actors._thread import ThreadActor
from actors.events import Event

T = TypeVar("T")


class Probe(Actor):
    """A stand-in for another actor. It records its messages and answers with `answer(message)`, which may raise."""

    def __init__(self, answer: Callable[[Any], Any] | None = None) -> None:
        self.received: list[Any] = []
        self._unread: deque[Any] = deque()
        self._answer = answer
        self._arrived = trio.lowlevel.ParkingLot()

    def on_receive(self, message: Any) -> Any:
        """Record the message and return the configured answer."""
        self.received.append(message)
        self._unread.append(message)
        self._arrived.unpark_all()
        return None if self._answer is None else self._answer(message)

    async def expect(self, kind: type[T], *, timeout: float = 1.0) -> T:
        """Wait for the next unread message, which must be a `kind`. Raises AssertionError after `timeout` seconds."""
        with trio.move_on_after(timeout):
            while not self._unread:
                await self._arrived.park()
        if not self._unread:
            raise AssertionError(f"no message within {timeout:g} s; a {kind.__name__} was expected")
        message = self._unread.popleft()
        if not isinstance(message, kind):
            raise AssertionError(f"a {kind.__name__} was expected; {message!r} came")
        return message

    async def expect_nothing(self, *, seconds: float = 1.0) -> None:
        """Raise AssertionError if there is an unread message or one arrives within `seconds`."""
        with trio.move_on_after(seconds):
            while not self._unread:
                await self._arrived.park()
        if self._unread:
            raise AssertionError(f"no message was expected; {self._unread[0]!r} came")


def start_probe(system: System, name: str = "", answer: Callable[[Any], Any] | None = None) -> Probe:
    """Start a probe under the name of the actor it replaces, and return it. Its ref is `probe.actor_ref`."""
    probe = Probe(answer)
    system.adopt(probe, name)
    return probe


class Recorder:
    """An event hook that records events: `System(..., on_event=recorder)`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._arrived = trio.lowlevel.ParkingLot()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._arrived.unpark_all()

    def of(self, kind: type[T]) -> list[T]:
        """Return the events of one kind so far."""
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(self, kind: type[T], count: int = 1, *, timeout: float = 60.0) -> T:
        """Wait for `count` events of a kind and return the last of them. Raises trio.TooSlowError."""
        with trio.fail_after(timeout):
            while len(self.of(kind)) < count:
                await self._arrived.park()
        return self.of(kind)[count - 1]


@attrs.define
class Injection:
    """A fault that `inject` has set. `fired` is true once it was raised."""

    exc: BaseException
    fired: bool = False

    def strike(self) -> None:
        """Raise the fault, the first time only."""
        if self.fired:
            return
        self.fired = True
        raise self.exc


def inject(
    system: System,
    target: str | Name | Ref[Any] | type[Actor],
    exc: BaseException,
    when: Literal["now", "next message", "next start"] | int = "next message",
) -> Injection:
    """Make one actor fail once with `exc`: the actor of a name or a ref, or any one of a class.

    `when` is "now" (also during a handler or while idle), "next message", or a number (the n-th message from now). With
    "next start" the `on_start` of the next incarnation fails. Messages to supervisors about their children do not
    count. Raises LookupError if no actor matches, except for "next start".
    """
    injection = Injection(exc)
    if when == "next start":

        def look(actor: Actor) -> None:
            if _fits(actor.actor_ref, target):
                system.before_start.remove(look)
                _guard(actor, "on_start", 1, injection)

        system.before_start.append(look)
        return injection
    victims = [ref for ref in system.living() if _fits(ref, target)]
    if not victims:
        raise LookupError(f"no living actor fits {target!r}; start it before faults are injected")
    if when == "now":
        injection.fired = True
        victims[0]._crash(exc)
        return injection
    for ref in victims:
        actor = ref._actor
        batches = isinstance(actor, ThreadActor) and type(actor).receive_batch is not ThreadActor.receive_batch
        _guard(actor, "receive_batch" if batches else "on_receive", 1 if when == "next message" else when, injection)
    return injection


def _fits(ref: Ref[Any], target: str | Name | Ref[Any] | type[Actor]) -> bool:
    if isinstance(target, type):
        return issubclass(ref.actor_class, target)
    if isinstance(target, Ref):
        return ref is target
    return ref.name == (target.label if isinstance(target, Name) else target)


def _guard(actor: Any, method: str, count: int, injection: Injection) -> None:
    """Wrap a method of one incarnation. Its `count`-th call raises the fault."""
    original = getattr(actor, method)
    left = count

    @functools.wraps(original)
    def guarded(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left <= 0:
            injection.strike()
        return original(*args)

    setattr(actor, method, guarded)


@contextlib.asynccontextmanager
async def no_leaks() -> AsyncIterator[None]:
    """Raise AssertionError if tasks or threads of the body still run after it."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    threads = set(threading.enumerate())
    yield
    await trio.testing.wait_all_tasks_blocked()
    left = trio.lowlevel.current_statistics().tasks_living - tasks
    if left > 0:
        raise AssertionError(f"{left} tasks were left running")
    # Trio keeps idle worker threads for a while; they are no leak.
    more = [t.name for t in threading.enumerate() if t not in threads and not t.name.startswith("Trio thread")]
    if more:
        raise AssertionError(f"threads were left running: {', '.join(more)}")


def run_virtual(async_fn: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run `trio.run` with a clock that jumps to the next deadline whenever all tasks wait."""
    return trio.run(async_fn, *args, clock=trio.testing.MockClock(autojump_threshold=0))
