"""A system of actors: one tree of supervisors on one Trio loop."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from threading import get_ident
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, cast

import attrs
import trio

from actors._ref import Name, Phase, Ref, Slot
from actors._timers import Timers
from actors.errors import NameTaken, NotRunning, StartFailed, SystemFailed
from actors.events import Event, StepTooLong, StopOverran
from actors.spec import Behaviour, ChildSpec

A = TypeVar("A", bound=Behaviour)

logger = logging.getLogger("actors")

current_system: contextvars.ContextVar[System | None] = contextvars.ContextVar("current_system", default=None)

# Seconds a cancelled actor has to end before it is reported stuck.
GRACE = 1.0

_STATES = ("new", "starting", "running", "ending", "down")

Park = Callable[[], Awaitable[None]]


@attrs.frozen
class StopReport:
    """The result of a system's stop: its duration, the cancelled actors, and those that did not end even then."""

    seconds: float
    killed: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()


@attrs.frozen
class Info:
    """The status of one actor.

    `state` is new, starting, running, ending or down. `mailbox` is the number of waiting messages, `handled` the number
    that this incarnation has begun. `restarts` and `last_crash` (None: never crashed) cover all incarnations.
    `started_at` is when this incarnation came up, in the system's clock (None while it is not up).
    """

    id: str
    name: str
    class_name: str
    state: str
    mailbox: int = 0
    handled: int = 0
    restarts: int = 0
    last_crash: str | None = None
    started_at: float | None = None
    children: tuple[Info, ...] = ()


class System:
    """Starts a tree of actors on entry and stops it on exit: `async with System(root) as system`.

    `root` is the spec of the root, usually a supervisor, or a list of specs, which become children of a plain
    one-for-one supervisor. `on_event` gets every event, on the loop's thread, and must return at once. `clock` supplies
    the wall-clock seconds for `started_at`, and `rng` the jitter of backoffs. A task step longer than `step_limit`
    seconds (None: no limit) is reported as `StepTooLong`.

    Entry raises StartFailed if the tree does not start. If the root goes down for good, the body is cancelled and the
    exit raises SystemFailed. Every exit, also by cancellation, stops the tree in order.
    """

    #: Makes the root of a list. `actors._supervisor` sets it, which imports this module.
    plain_root: ClassVar[Callable[[Sequence[ChildSpec]], ChildSpec]]

    def __init__(
        self,
        root: ChildSpec | Sequence[ChildSpec],
        *,
        on_event: Callable[[Event], object] | None = None,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        step_limit: float | None = 0.1,
        step_clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.on_event = on_event
        self.clock = clock
        self.rng = rng or random.Random()
        self.timers = Timers()
        self.before_start: list[Callable[[Any], None]] = []
        self.token: trio.lowlevel.TrioToken
        self._root = Slot(root if isinstance(root, ChildSpec) else System.plain_root(root), None)
        self._loose: dict[Ref[Any], None] = {}
        self._names: dict[str, Ref[Any]] = {}
        self._expected: dict[str, list[Callable[[], object]]] = {}
        self._thread = get_ident()
        self._outside: System | None = None
        # The actors run in their own nursery, inside `_hosts`. The user's body runs in `_body`.
        self._hosts = trio.open_nursery()
        self._nursery: trio.Nursery | None = None
        self._body = trio.CancelScope()
        self._finished = trio.Event()
        self._changes = trio.lowlevel.ParkingLot()
        self._stopping = False
        self._report: StopReport | None = None
        self._killed: list[str] = []
        self._stuck: list[str] = []
        self._failure: BaseException | None = None
        self._interrupt: KeyboardInterrupt | None = None
        self._watch = StepWatch(math.inf if step_limit is None else step_limit, self._step_too_long, step_clock)

    # Start and stop

    async def __aenter__(self) -> Self:
        if self._nursery is not None:
            raise RuntimeError("a system is opened once; make a new one")
        self.token = trio.lowlevel.current_trio_token()
        self._thread = get_ident()
        self._outside = current_system.get()
        current_system.set(self)
        hosts = await self._hosts.__aenter__()
        self._nursery = await hosts.start(self._host)
        trio.lowlevel.add_instrument(self._watch)
        try:
            await self._start_root()
        except BaseException:
            await self._leave()
            raise
        self._body.__enter__()
        return self

    async def _host(self, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        # Cancelling the body must not cancel the actors: they are stopped in order.
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.timers.run)
                task_status.started(nursery)
                await self._finished.wait()
                self.timers.close()

    async def _start_root(self) -> None:
        spec = self._root.spec
        try:
            ref = self.launch_child(self._root)
        except Exception as exc:
            raise StartFailed(spec.id, exc) from exc
        while ref._started_at is None and not ref._over:
            await self._changes.park()
        if self._interrupt is not None:
            raise self._interrupt
        if ref._started_at is None:
            reason = self._root.reason
            raise reason if isinstance(reason, StartFailed) else StartFailed(spec.id, reason) from reason

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        absorbed = self._body.__exit__(exc_type, exc, tb)
        await self._leave()
        if isinstance(exc, trio.Cancelled) and not absorbed:
            return False
        if self._interrupt is not None:
            raise self._interrupt
        if self._failure is not None:
            raise SystemFailed(self._root.spec.id, self._failure) from self._failure
        return absorbed

    async def _leave(self) -> None:
        try:
            await self.stop()
        except BaseException:
            # The stop was interrupted, so no time limit counts any more.
            assert self._nursery is not None
            self._nursery.cancel_scope.cancel()
            raise
        finally:
            self._finished.set()
            await self._hosts.__aexit__(None, None, None)
            current_system.set(self._outside)
            trio.lowlevel.remove_instrument(self._watch)

    async def stop(self) -> StopReport:
        """Stop the tree in order and return the report. A second call returns the same report.

        An actor must not call this, because it would wait for itself. It calls `request_stop` instead.
        """
        if self._report is None:
            with trio.CancelScope(shield=True):
                await self._stop_in_order()
        assert self._report is not None
        return self._report

    async def _stop_in_order(self) -> None:
        begun = trio.current_time()
        self._stopping = True
        for waiting in list(self._expected.values()):
            for wake in list(waiting):
                wake()
        for ref in [*self._loose, *([self._root.ref] if self._root.ref is not None else [])]:
            await self.stop_together([ref], self._changes.park)
        self._report = StopReport(trio.current_time() - begun, tuple(self._killed), tuple(self._stuck))

    @property
    def is_stopping(self) -> bool:
        """Whether the tree is being stopped or has been stopped. Actors that stop now are not started again."""
        return self._stopping

    def request_stop(self) -> None:
        """Cancel the body of the `async with`, which stops the system. Callable from any thread and from actors."""
        self._on_loop(self._body.cancel)

    # Names and refs

    def named(self, label: str) -> Name:
        """Return the stable name of the actor that is registered under `label`, now or later."""
        return Name(self, label)

    def ref(self, label: str) -> Ref[Any] | None:
        """Return the incarnation that is registered under the name now, or None."""
        return self._names.get(label)

    async def next_incarnation(self, name: Name, after: Ref[Any] | None) -> Ref[Any]:
        """Wait for an incarnation other than `after`. Raises NotRunning if the system is stopping."""
        token = trio.lowlevel.current_trio_token()
        waiting = self._expected.setdefault(name.label, [])
        while True:
            changed = trio.Event()
            # The asker may be on the loop of another thread.
            wake = changed.set if token is self.token else functools.partial(token.run_sync_soon, changed.set)
            waiting.append(wake)
            try:
                ref = self._names.get(name.label)
                if ref is not None and ref is not after:
                    return ref
                if self._stopping:
                    raise NotRunning(
                        f"no actor will run under the name {name.label!r} any more: the system is stopping"
                    )
                await changed.wait()
            finally:
                waiting.remove(wake)

    def living(self) -> Iterator[Ref[Any]]:
        """Iterate over the incarnations that have not ended, supervisors before their children."""
        yield from self._loose
        yield from _refs_below(self._root)

    def inspect(self) -> Info:
        """Return a snapshot of the tree. Actors without a supervisor are the last children of the root."""
        root = _info_of_slot(self._root)
        return attrs.evolve(root, children=(*root.children, *(_info(ref, ref.label, 0, None) for ref in self._loose)))

    def adopt(self, actor: A, name: str = "") -> Ref[A]:
        """Start an actor without a supervisor. It is the first to be stopped when the system stops."""
        ref = self._launch(actor, None, name)
        self._loose[ref] = None
        return ref

    # Called by actors and supervisors

    def launch_child(self, slot: Slot) -> Ref[Any]:
        """Start an incarnation of a child. Raises what its `start` raises, NameTaken, or NotRunning."""
        ref = slot.ref = self._launch(slot.spec.start(), slot, slot.spec.registered_name)
        return ref

    def _launch(self, actor: A, slot: Slot | None, name: str) -> Ref[A]:
        if self._nursery is None or self._report is not None:
            raise NotRunning("the actor system is not open; start actors inside `async with System(...)`")
        if name in self._names:
            raise NameTaken(f"the name {name!r} is taken; give the child another name")
        ref = cast("Ref[A]", actor.actor_ref)
        if ref._phase is not Phase.NEW:
            raise RuntimeError(f"actor {ref.label!r} was started before; make a new one for every start")
        ref._system = self
        ref._home = self._thread
        ref._slot = slot
        ref._phase = Phase.STARTING
        if name:
            ref.name = name
            self._names[name] = ref
            for wake in list(self._expected.get(name, ())):
                wake()
        for look in self.before_start:
            look(actor)
        self._nursery.start_soon(actor._live, name=ref.actor_class.__qualname__)
        return ref

    def unregister(self, ref: Ref[Any]) -> None:
        """Release the name of an incarnation that accepts no more messages."""
        if ref.name:
            self._names.pop(ref.name, None)

    def started(self, ref: Ref[Any]) -> None:
        """Handle the start of an incarnation: wake its supervisor."""
        if ref._slot is self._root:
            self._changes.unpark_all()
        elif ref._slot is not None and ref._slot.supervisor is not None:
            ref._slot.supervisor._wake()

    def ended(self, ref: Ref[Any], reason: BaseException | None) -> None:
        """Handle the end of an incarnation: inform its supervisor, and end the system if it was the root."""
        if isinstance(reason, KeyboardInterrupt):
            self._interrupt = reason
            self._body.cancel()
        if ref._slot is None:
            del self._loose[ref]
        else:
            ref._slot.ended(ref, reason)
        if reason is not None and ref._slot is self._root:
            self._failure = reason
            self._body.cancel()
        self._changes.unpark_all()

    async def stop_together(self, refs: Iterable[Ref[Any]], park: Park) -> None:
        """Stop incarnations at the same time, each within its own time limit. Then cancel it.

        `park` sleeps until one of them may have ended.
        """
        begun = trio.current_time()
        by_limit: dict[float, list[Ref[Any]]] = {}
        for ref in refs:
            ref._request_stop()
            by_limit.setdefault(ref._stop_seconds, []).append(ref)
        for seconds in sorted(by_limit):
            await _all_over(by_limit[seconds], begun + seconds - trio.current_time(), park)
            await self.kill(by_limit[seconds], park)

    async def kill(self, refs: Iterable[Ref[Any]], park: Park) -> None:
        """Cancel the incarnations that still run. Wait until they have ended or are known to be stuck."""
        late = [ref for ref in refs if not ref._over]
        for ref in late:
            ref._kill()
        for ref in late:
            # A cancelled supervisor uses its children's grace periods, and then ends by itself.
            await _all_over([ref], math.inf if ref.actor_class.is_supervisor else GRACE, park)
            (self._stuck if ref._stuck else self._killed).append(ref.label)
            self.emit(StopOverran(ref.label, ref._stop_seconds, ref._stuck))

    def run_in_background(
        self, ref: Ref[Any], async_fn: Callable[..., Awaitable[object]], args: tuple[Any, ...]
    ) -> trio.CancelScope:
        """Run a background task of an incarnation; see `Actor.spawn`."""
        scope = trio.CancelScope()
        if ref._phase >= Phase.ENDING:
            scope.cancel()
        background = ref._more().background
        background[scope] = None

        async def run() -> None:
            try:
                with scope:
                    await async_fn(*args)
            except trio.Cancelled:
                raise
            except BaseException as exc:
                ref._crash(exc)
            finally:
                del background[scope]
                ref._wake()

        assert self._nursery is not None
        self._nursery.start_soon(run, name=f"{ref.label} in the background")
        return scope

    def emit(self, event: Event) -> None:
        """Call the event hook, on the loop's thread. An exception of the hook is logged and otherwise ignored."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:
                logger.exception("the event hook of the actor system failed at %r", event)

    def report(self, event: Event) -> None:
        """Call the event hook, from any thread."""
        self._on_loop(self.emit, event)

    def _on_loop(self, call: Callable[..., object], *args: Any) -> None:
        if get_ident() == self._thread:
            call(*args)
        else:
            with contextlib.suppress(trio.RunFinishedError):
                self.token.run_sync_soon(call, *args)

    def _step_too_long(self, task: trio.lowlevel.Task, seconds: float) -> None:
        actor = next((ref for ref in self.living() if ref._task is task), None)
        self.emit(StepTooLong(task.name if actor is None else actor.label, seconds))


async def _all_over(refs: Iterable[Ref[Any]], seconds: float, park: Park) -> None:
    """Wait until the incarnations have ended, at most `seconds`."""
    # Each is looked at until it has ended, and then no more: looking at all at each ending would be quadratic.
    waiting = list(refs)
    with trio.move_on_after(max(seconds, 0)):
        while waiting:
            if waiting[-1]._over:
                waiting.pop()
            else:
                await park()


def _info_of_slot(slot: Slot) -> Info:
    if slot.ref is None:
        name = slot.spec.registered_name
        return Info(slot.spec.id, name, slot.class_name, "down", restarts=slot.restarts, last_crash=slot.last_crash)
    return _info(slot.ref, slot.spec.id, slot.restarts, slot.last_crash)


def _info(ref: Ref[Any], id: str, restarts: int, last_crash: str | None) -> Info:
    # Positional arguments and one construction each: a tree may have thousands, and this blocks the loop.
    return Info(
        id,
        ref.label,
        ref.actor_class.__qualname__,
        _STATES[ref._phase],
        len(ref._mailbox),
        ref._handled,
        restarts,
        last_crash,
        ref._started_at,
        tuple(_info_of_slot(slot) for slot in _slots_below(ref)),
    )


def _refs_below(slot: Slot) -> Iterator[Ref[Any]]:
    """Iterate over the incarnation in a child's place and all incarnations below it, top down."""
    if slot.ref is not None and not slot.ref._over:
        yield slot.ref
        for below in _slots_below(slot.ref):
            yield from _refs_below(below)


def _slots_below(ref: Ref[Any]) -> Iterable[Slot]:
    return () if ref._actor is None else ref._actor._child_slots()


class StepWatch(trio.abc.Instrument):
    """Reports each step of a task that took more than `limit` seconds on `clock`: it blocked the loop."""

    def __init__(
        self, limit: float, report: Callable[[trio.lowlevel.Task, float], None], clock: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._report = report
        self._clock = clock
        self._began = clock()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Record when the step began."""
        self._began = self._clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Report the step if it was long."""
        seconds = self._clock() - self._began
        if seconds > self._limit:
            self._report(task, seconds)
