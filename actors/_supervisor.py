"""The supervisor with a fixed list of children."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import trio

from actors import _decide
from actors._actor import Actor
from actors._children import Ended, Slot, kill_all, start, stop_in_order
from actors._ref import Ref
from actors.errors import GaveUp
from actors.events import ActorRestarted, RestartDelayed, SupervisorGaveUp
from actors.spec import Backoff, ChildSpec, Strategy

__all__ = ["Overseer", "Supervisor", "check_limits", "perform"]


class Overseer(Protocol):
    """What a child's slot needs of a supervisor."""

    alive: int

    @property
    def actor_ref(self) -> Ref[Any]:
        """The supervisor's own reference."""
        ...


class Supervisor(Actor):
    """Starts its children in order, restarts them by its strategy, and stops them in reverse order.

    `on_start` is through when every child's is; if one fails, those before it are stopped and the start fails. More
    than `max_restarts` restarts `within` so many seconds (a failed restart counts), and the supervisor stops its
    children and crashes with `GaveUp`, for its own supervisor to deal with. With a `backoff` it waits before each
    restart. Give a supervisor's own `ChildSpec` `shutdown=None`: it keeps its children's deadlines.
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
        self._rules = _decide.State(
            tuple(_decide.Child(spec.id, spec.restart) for spec in children), strategy, max_restarts, within, backoff
        )

    async def on_start(self) -> None:
        """Start the children, in order."""
        for slot in self._slots.values():
            failure = await start(self.actor_ref, slot)
            if failure is not None:
                raise failure
            self._rules, _ = _decide.decide(self._rules, _decide.Started(slot.spec.id), trio.current_time())

    async def _on_system(self, item: Any) -> None:
        event: _decide.Event
        if isinstance(item, Ended):
            slot = item.slot
            if slot.ref is not item.ref:
                return  # stopped by us, or its start failed: known already
            slot.ref = None
            event = _decide.Exited(slot.spec.id, crashed=item.reason is not None)
        else:
            event = item
        self._rules = await perform(self.actor_ref, self._rules, event, self._slots)

    async def _release(self, *, killed: bool) -> None:
        slots = list(reversed(self._slots.values()))
        for slot in slots:
            slot.forget_wait()
        if not killed:
            with trio.CancelScope() as self.actor_ref._scope:
                await stop_in_order(self.actor_ref, slots)
        with trio.CancelScope(shield=True):
            await kill_all(self.actor_ref, slots)


async def perform(boss: Ref[Any], state: _decide.State, event: _decide.Event, slots: dict[str, Slot]) -> _decide.State:
    """Decide what an event calls for and do it; returns the state it leads to.

    Raises GaveUp when the restart limit is exceeded, StopAsked when the supervisor is asked to stop meanwhile.
    """
    system = boss._system
    assert system is not None
    state, actions = _decide.decide(state, event, trio.current_time())
    plan = deque(actions)
    while plan:
        action = plan.popleft()
        slot = slots[action.id]
        match action:
            case _decide.Stop():
                await stop_in_order(boss, [slot])
            case _decide.Wait(seconds=seconds):
                backoff = state.backoff
                assert backoff is not None
                seconds *= 1 + backoff.jitter * system.rng.uniform(-1, 1)
                boss._emit(RestartDelayed, slot.spec.registered_name, seconds)
                due = _decide.Due(action.id)
                slot.forget_wait()
                slot.timer = system.timers.add(seconds, lambda _, due=due: boss._put_urgent(due))  # type: ignore[misc]
            case _decide.GiveUp():
                boss._emit(SupervisorGaveUp, boss.label, action.id, slot.reason)
                raise GaveUp(boss.label, action.id, state.max_restarts, state.within, slot.reason) from slot.reason
            case _decide.Start():
                slot.restarts += 1
                failure = await start(boss, slot)
                if failure is None:
                    boss._emit(ActorRestarted, slot.spec.registered_name, slot.restarts)
                    state, _ = _decide.decide(state, _decide.Started(action.id), trio.current_time())
                else:
                    slot.reason = failure.reason
                    state, actions = _decide.decide(state, _decide.StartFailed(action.id), trio.current_time())
                    plan = deque(actions)
    return state


def check_limits(max_restarts: int, within: float) -> None:
    """Raise ValueError unless the restart limit makes sense."""
    if max_restarts < 0 or within <= 0:
        raise ValueError("max_restarts must be 0 or more, and within more than 0 seconds")
