"""How supervisors start and stop their children."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import trio

from actors._life import StopAsked, seconds_to_end
from actors._ref import Ref
from actors.errors import StartFailed, describe
from actors.spec import ChildSpec

if TYPE_CHECKING:
    from actors._supervisor import Overseer
    from actors._timers import Timer

__all__ = ["Ended", "Slot", "kill_all", "start", "stop_in_order", "stop_one", "stop_together"]

Park = Callable[[], Awaitable[None]]

# Seconds a cancelled actor has to end before it is reported stuck.
GRACE = 1.0


class Slot:
    """A child's place under its supervisor (None for the root of a system). It outlives the child's incarnations."""

    __slots__ = ("class_name", "last_crash", "reason", "ref", "restarts", "spec", "supervisor", "timer")

    def __init__(self, spec: ChildSpec, supervisor: Overseer | None) -> None:
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

    def wake_supervisor(self) -> None:
        """Wake the supervisor, which then checks its condition again."""
        assert self.supervisor is not None
        self.supervisor.actor_ref._wake()

    def ended(self, ref: Ref[Any], reason: BaseException | None) -> None:
        """Record the end of an incarnation and inform the supervisor."""
        self.reason = reason
        self.class_name = ref.actor_class.__qualname__
        if reason is not None:
            self.last_crash = describe(reason)
        if self.supervisor is not None:
            self.supervisor.alive -= 1
            self.supervisor.actor_ref._put_urgent(Ended(self, ref, reason))


class Ended:
    """A message to a supervisor: an incarnation of a child has ended."""

    __slots__ = ("reason", "ref", "slot")

    def __init__(self, slot: Slot, ref: Ref[Any], reason: BaseException | None) -> None:
        self.slot = slot
        self.ref = ref
        self.reason = reason


async def start(boss: Ref[Any], slot: Slot) -> StartFailed | None:
    """Start a child and wait until its `on_start` has returned. Return the failure, or None.

    Raises StopAsked if the supervisor is asked to stop while it waits.
    """
    system = boss._system
    assert system is not None
    slot.reason = None
    try:
        ref = slot.ref = system.launch(slot.spec.start(), slot, slot.spec.registered_name)
    except Exception as exc:
        slot.last_crash = describe(exc)
        return StartFailed(slot.spec.id, exc)
    assert slot.supervisor is not None
    slot.supervisor.alive += 1
    while ref._started_at is None and not ref._over:
        if boss._stop_asked:
            raise StopAsked
        await boss._park()
    if ref._started_at is not None:
        return None
    slot.ref = None
    return StartFailed(slot.spec.id, slot.reason)


async def stop_in_order(boss: Ref[Any], slots: Iterable[Slot]) -> None:
    """Stop children one after another, each within its own time limit."""
    for slot in slots:
        if slot.ref is not None:
            await stop_one(slot.ref, boss._park)
        slot.ref = None


async def stop_one(ref: Ref[Any], park: Park) -> None:
    """Stop an incarnation. Cancel it after its time limit, and report it stuck if it still does not end."""
    ref._request_stop()
    await _ended_within(park, seconds_to_end(ref), lambda: ref._over)
    await _cancel([ref], park)


async def stop_together(boss: Ref[Any], slots: Iterable[Slot], alive: Callable[[], int]) -> None:
    """Stop children at the same time, each within its own time limit. `alive` counts those that have not ended."""
    begun = trio.current_time()
    waves: dict[float, list[Ref[Any]]] = {}
    for slot in slots:
        if slot.ref is not None:
            slot.ref._request_stop()
            waves.setdefault(seconds_to_end(slot.ref), []).append(slot.ref)
    stuck: list[Ref[Any]] = []

    def over() -> bool:
        # Counting keeps this linear. A loop over all children at each ending would be quadratic.
        return alive() <= sum(not ref._over for ref in stuck)

    for seconds in sorted(waves):
        await _ended_within(boss._park, begun + seconds - trio.current_time(), over)
        await _cancel(waves[seconds], boss._park)
        stuck.extend(ref for ref in waves[seconds] if not ref._over)


async def kill_all(boss: Ref[Any], slots: Iterable[Slot]) -> None:
    """Cancel the children that still run. Wait until they have ended or are known to be stuck."""
    await _cancel([slot.ref for slot in slots if slot.ref is not None], boss._park)


async def _cancel(refs: Iterable[Ref[Any]], park: Park) -> None:
    late = [ref for ref in refs if not ref._over]
    for ref in late:
        ref._kill()
    for ref in late:
        await _ended_within(park, _grace(ref), lambda ref=ref: ref._over)  # type: ignore[misc]
        assert ref._system is not None
        ref._system.overran(ref, seconds_to_end(ref), stuck=ref._stuck)


async def _ended_within(park: Park, seconds: float, over: Callable[[], bool]) -> None:
    with trio.move_on_after(max(seconds, 0)):
        while not over():
            await park()


def _grace(ref: Ref[Any]) -> float:
    # A cancelled supervisor uses its children's grace periods, and then ends by itself.
    return math.inf if getattr(ref.actor_class, "is_supervisor", False) else GRACE
