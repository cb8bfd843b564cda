"""Supervisors: one with a fixed list of children, one whose children are started and stopped on request."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import attrs
import trio

from actors import _restart_rules
from actors._actor import Actor, StopAsked
from actors._ref import Ended, Ref, Slot
from actors._system import System
from actors.errors import AlreadyStarted, GaveUp, StartFailed, TooManyChildren, UnknownChild, describe
from actors.events import ActorRestarted, RestartDelayed, SupervisorGaveUp
from actors.messages import StartChild, StopChild
from actors.spec import Backoff, ChildSpec, Strategy


class _AnySupervisor(Actor):
    """The part that both kinds share: it starts children, and carries out what the rules decide."""

    mailbox_size = 100_000
    is_supervisor: ClassVar[bool] = True

    def __init__(self, strategy: Strategy, max_restarts: int, within: float, backoff: Backoff | None) -> None:
        if max_restarts < 0 or within <= 0:
            raise ValueError("max_restarts must be 0 or more, and within more than 0 seconds")
        self._slots: dict[str, Slot] = {}
        self._children: dict[str, _restart_rules.Child] = {}
        self._rules = _restart_rules.State((), strategy, max_restarts, within, backoff)

    def _child_slots(self) -> Collection[Slot]:
        return self._slots.values()

    async def _start(self, slot: Slot) -> StartFailed | None:
        """Start a child and wait until its `on_start` has returned. Return the failure, or None.

        Raises StopAsked if this supervisor is asked to stop while it waits.
        """
        slot.reason = None
        try:
            ref = self.system.launch_child(slot)
        except Exception as exc:
            slot.last_crash = describe(exc)
            return StartFailed(slot.spec.id, exc)
        while ref._started_at is None and not ref._over:
            if self.actor_ref._stop_asked:
                raise StopAsked
            await self.actor_ref._park()
        if ref._started_at is None:
            slot.ref = None
            return StartFailed(slot.spec.id, slot.reason)
        self._apply(_restart_rules.Started(slot.spec.id))
        return None

    async def _stop_in_order(self, slots: Collection[Slot]) -> None:
        """Stop children one after another, each within its own time limit."""
        for slot in slots:
            if slot.ref is not None:
                await self.system.stop_together([slot.ref], self.actor_ref._park)
            slot.ref = None

    async def _stop_children(self) -> None:
        """Stop all children, in this kind's order."""

    async def _release(self, *, killed: bool) -> None:
        for slot in self._slots.values():
            slot.forget_wait()
        if not killed:
            with trio.CancelScope() as self.actor_ref._scope:
                await self._stop_children()
        with trio.CancelScope(shield=True):
            left = [slot.ref for slot in reversed(self._slots.values()) if slot.ref is not None]
            await self.system.kill(left, self.actor_ref._park)

    async def _on_system(self, item: Any) -> None:
        event: _restart_rules.Event = item
        if isinstance(item, Ended):
            if item.slot.ref is not item.ref:
                return  # the end of that incarnation is already known
            item.slot.ref = None
            event = _restart_rules.Exited(item.slot.spec.id, crashed=item.reason is not None)
        if event.id in self._children:  # or a dynamic child was stopped during its restart delay
            await self._perform(deque(self._apply(event)))

    def _apply(self, event: _restart_rules.Event) -> tuple[_restart_rules.Action, ...]:
        """Note an event, and return what to do about it."""
        # One-for-one rules concern one child only. The cost of a decision is then independent of the number of
        # children.
        alone = self._rules.strategy is Strategy.ONE_FOR_ONE
        concerned = (self._children[event.id],) if alone else tuple(self._children.values())
        before = attrs.evolve(self._rules, children=concerned)
        after, actions = _restart_rules.decide(before, event, trio.current_time())
        self._children.update((child.id, child) for child in after.children)
        self._rules = attrs.evolve(after, children=())
        return actions

    async def _perform(self, plan: deque[_restart_rules.Action]) -> None:
        """Carry out a plan. Raises GaveUp if the restart limit is exceeded."""
        me = self.actor_ref
        while plan:
            action = plan.popleft()
            slot = self._slots[action.id]
            match action:
                case _restart_rules.Stop():
                    await self._stop_in_order([slot])
                case _restart_rules.Wait(seconds=seconds):
                    self._delay(slot, seconds)
                case _restart_rules.GiveUp():
                    rules = self._rules
                    me._emit(SupervisorGaveUp, me.label, action.id, slot.reason)
                    raise GaveUp(me.label, action.id, rules.max_restarts, rules.within, slot.reason) from slot.reason
                case _:  # Start
                    slot.restarts += 1
                    failure = await self._start(slot)
                    if failure is None:
                        me._emit(ActorRestarted, slot.spec.registered_name, slot.restarts)
                    else:
                        slot.reason = failure.reason
                        plan = deque(self._apply(_restart_rules.StartFailed(action.id)))

    def _delay(self, slot: Slot, seconds: float) -> None:
        """Schedule a delayed restart."""
        backoff = self._rules.backoff
        assert backoff is not None
        seconds *= 1 + backoff.jitter * self.system.rng.uniform(-1, 1)
        self.actor_ref._emit(RestartDelayed, slot.spec.registered_name, seconds)
        slot.forget_wait()
        over = _restart_rules.Due(slot.spec.id)
        slot.timer = self.system.timers.add(seconds, lambda _: self.actor_ref._put_urgent(over))


class Supervisor(_AnySupervisor):
    """Starts its children in order, restarts them by its strategy, and stops them in reverse order.

    `on_start` returns when all children are up. If a child does not start, those before it are stopped and the start
    fails. After more than `max_restarts` restarts (failed ones count) `within` that many seconds, it stops its children
    and crashes with `GaveUp`; its own supervisor handles that. With a `backoff` it waits before each restart. Set
    `shutdown=None` in a supervisor's own `ChildSpec`: its children's time limits apply.
    """

    def __init__(
        self,
        children: Sequence[ChildSpec] = (),
        strategy: Strategy = Strategy.ONE_FOR_ONE,
        max_restarts: int = 3,
        within: float = 5.0,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(strategy, max_restarts, within, backoff)
        self._slots = {spec.id: Slot(spec, self.actor_ref) for spec in children}
        if len(self._slots) != len(children):
            raise ValueError("two children have the same id; give each its own")
        self._children = {spec.id: _restart_rules.Child(spec.id, spec.restart) for spec in children}

    async def on_start(self) -> None:
        """Start the children in order."""
        for slot in self._slots.values():
            failure = await self._start(slot)
            if failure is not None:
                raise failure

    async def _stop_children(self) -> None:
        await self._stop_in_order([*reversed(self._slots.values())])


class DynamicSupervisor(_AnySupervisor):
    """A supervisor that starts and stops children on request (`StartChild`, `StopChild`).

    It restarts each child alone, stops all at the same time, and forgets those that end for good. Restart limits and
    `backoff` work as in `Supervisor`, over all children together. `max_children` None means no limit. While a child's
    `on_start` runs, other requests wait.
    """

    def __init__(
        self,
        max_children: int | None = None,
        max_restarts: int = 3,
        within: float = 5.0,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(Strategy.ONE_FOR_ONE, max_restarts, within, backoff)
        self._max_children = max_children

    async def on_receive(self, message: Any) -> Any:
        """Handle `StartChild` and `StopChild`. Log any other message."""
        match message:
            case StartChild():
                return await self._start_child(message.spec)
            case StopChild():
                return await self._stop_child(message.id)
            case _:
                return super().on_receive(message)

    async def _start_child(self, spec: ChildSpec) -> Ref[Any]:
        there = self._slots.get(spec.id)
        if there is not None:
            raise AlreadyStarted(spec.id, there.ref)
        if self._max_children is not None and len(self._slots) >= self._max_children:
            raise TooManyChildren(
                f"supervisor {self.actor_ref.label!r} has {self._max_children} children; stop one first"
            )
        slot = self._slots[spec.id] = Slot(spec, self.actor_ref)
        self._children[spec.id] = _restart_rules.Child(spec.id, spec.restart)
        failure = await self._start(slot)
        if failure is not None:
            self._forget(spec.id)
            raise failure
        assert slot.ref is not None
        return slot.ref

    async def _stop_child(self, child_id: str) -> None:
        slot = self._slots.get(child_id)
        if slot is None:
            raise UnknownChild(f"supervisor {self.actor_ref.label!r} has no child {child_id!r}")
        await self._stop_in_order([slot])
        self._forget(child_id)

    async def _on_system(self, item: Any) -> None:
        await super()._on_system(item)
        child_id = item.slot.spec.id if isinstance(item, Ended) else item.id
        child = self._children.get(child_id)
        if child is not None and child.phase is _restart_rules.Phase.GONE:
            self._forget(child_id)

    def _forget(self, child_id: str) -> None:
        self._slots.pop(child_id).forget_wait()
        del self._children[child_id]

    async def _stop_children(self) -> None:
        running = [slot.ref for slot in self._slots.values() if slot.ref is not None]
        await self.system.stop_together(running, self.actor_ref._park)


def _plain_root(children: Sequence[ChildSpec]) -> ChildSpec:
    return ChildSpec("root", functools.partial(Supervisor, tuple(children)), shutdown=None)


System.plain_root = _plain_root
