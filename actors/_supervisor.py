"""The supervisor with a fixed list of children."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import attrs
import trio

from actors import _decide
from actors._actor import Actor
from actors._children import Ended, Slot, kill_all, start, stop_in_order
from actors._ref import Ref
from actors.errors import GaveUp
from actors.events import ActorRestarted, RestartDelayed, SupervisorGaveUp
from actors.spec import Backoff, ChildSpec, Strategy

__all__ = ["Overseer", "Supervisor", "check_limits", "event_of", "note_started", "perform"]


class Overseer(Protocol):
    """The part of a supervisor that a child's slot uses."""

    alive: int

    @property
    def actor_ref(self) -> Ref[Any]:
        """The supervisor's own reference."""
        ...


class Supervisor(Actor):
    """Starts its children in order, restarts them by its strategy, and stops them in reverse order.

    `on_start` returns when all children are up. If a child does not start, those before it are stopped and the start
    fails. After more than `max_restarts` restarts (failed ones count) `within` that many seconds, it stops its children
    and crashes with `GaveUp`; its own supervisor handles that. With a `backoff` it waits before each restart. Set
    `shutdown=None` in a supervisor's own `ChildSpec`: its children's time limits apply.
    """

    mailbox_size = 100_000
    is_supervisor: ClassVar[bool] = True

    def __init__(
        self,
        children: Sequence[ChildSpec] = (),
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        max_restarts: int = 3,
        within: float = 5.0,
        backoff: Backoff | None = None,
    ) -> None:
        check_limits(max_restarts, within)
        self.alive = 0
        self._slots = {spec.id: Slot(spec, self) for spec in children}
        if len(self._slots) != len(children):
            raise ValueError("two children have the same id; give each its own")
        self._children = {spec.id: _decide.Child(spec.id, spec.restart) for spec in children}
        self._rules = _decide.State((), strategy, max_restarts, within, backoff)

    async def on_start(self) -> None:
        """Start the children in order."""
        for slot in self._slots.values():
            failure = await start(self.actor_ref, slot)
            if failure is not None:
                raise failure
            note_started(self._children, slot.spec.id)

    async def _on_system(self, item: Any) -> None:
        event = event_of(item)
        if event is not None:
            self._rules = await perform(self.actor_ref, self._rules, event, self._children, self._slots)

    async def _release(self, *, killed: bool) -> None:
        slots = list(reversed(self._slots.values()))
        for slot in slots:
            slot.forget_wait()
        if not killed:
            with trio.CancelScope() as self.actor_ref._scope:
                await stop_in_order(self.actor_ref, slots)
        with trio.CancelScope(shield=True):
            await kill_all(self.actor_ref, slots)


def event_of(item: Any) -> _decide.Event | None:
    """Translate an urgent message for the rules. Return None if the end of that incarnation is already known."""
    if not isinstance(item, Ended):
        due: _decide.Due = item
        return due
    if item.slot.ref is not item.ref:
        return None
    item.slot.ref = None
    return _decide.Exited(item.slot.spec.id, crashed=item.reason is not None)


def note_started(children: dict[str, _decide.Child], child_id: str) -> None:
    """Mark a child as up."""
    alone = _decide.State((children[child_id],))
    after, _ = _decide.decide(alone, _decide.Started(child_id), trio.current_time())
    children[child_id] = after.children[0]


async def perform(
    boss: Ref[Any],
    rules: _decide.State,
    event: _decide.Event,
    children: dict[str, _decide.Child],
    slots: dict[str, Slot],
) -> _decide.State:
    """Decide what to do about an event, and do it. Update `children` and return the rules for the next event.

    Raises GaveUp if the restart limit is exceeded, and StopAsked if the supervisor is asked to stop.
    """
    plan: deque[_decide.Action] = deque()

    def decide(event: _decide.Event) -> None:
        nonlocal rules
        # One-for-one rules concern one child only. The cost of a decision is then independent of the number of
        # children.
        alone = rules.strategy is Strategy.ONE_FOR_ONE
        concerned = (children[event.id],) if alone else tuple(children.values())
        before = attrs.evolve(rules, children=concerned)
        after, actions = _decide.decide(before, event, trio.current_time())
        children.update((child.id, child) for child in after.children)
        rules = attrs.evolve(after, children=())
        plan.clear()
        plan.extend(actions)

    if event.id not in children:
        return rules  # a dynamic child that was stopped during its restart delay
    decide(event)
    while plan:
        action = plan.popleft()
        slot = slots[action.id]
        match action:
            case _decide.Stop():
                await stop_in_order(boss, [slot])
            case _decide.Wait(seconds=seconds):
                _wait(boss, rules, slot, seconds)
            case _decide.GiveUp():
                boss._emit(SupervisorGaveUp, boss.label, action.id, slot.reason)
                raise GaveUp(boss.label, action.id, rules.max_restarts, rules.within, slot.reason) from slot.reason
            case _:  # Start
                slot.restarts += 1
                failure = await start(boss, slot)
                if failure is None:
                    boss._emit(ActorRestarted, slot.spec.registered_name, slot.restarts)
                    note_started(children, action.id)
                else:
                    slot.reason = failure.reason
                    decide(_decide.StartFailed(action.id))
    return rules


def _wait(boss: Ref[Any], rules: _decide.State, slot: Slot, seconds: float) -> None:
    """Schedule a delayed restart."""
    system, backoff = boss._system, rules.backoff
    assert system is not None
    assert backoff is not None
    seconds *= 1 + backoff.jitter * system.rng.uniform(-1, 1)
    boss._emit(RestartDelayed, slot.spec.registered_name, seconds)
    slot.forget_wait()
    slot.timer = system.timers.add(seconds, lambda _: boss._put_urgent(_decide.Due(slot.spec.id)))


def check_limits(max_restarts: int, within: float) -> None:
    """Raise ValueError if the restart limit is not valid."""
    if max_restarts < 0 or within <= 0:
        raise ValueError("max_restarts must be 0 or more, and within more than 0 seconds")
