"""The supervisor whose children are started and stopped on request."""

from __future__ import annotations

from typing import Any, ClassVar

import trio

from actors import _decide
from actors._actor import Actor
from actors._children import Slot, kill_all, start, stop_in_order, stop_together
from actors._ref import Ref
from actors._supervisor import check_limits, event_of, note_started, perform
from actors.errors import AlreadyStarted, TooManyChildren, UnknownChild
from actors.messages import StartChild, StopChild
from actors.spec import Backoff

__all__ = ["DynamicSupervisor"]


class DynamicSupervisor(Actor):
    """A supervisor that starts and stops children on request (`StartChild`, `StopChild`).

    It restarts each child alone, stops all at the same time, and forgets those that end for good. Restart limits and
    `backoff` work as in `Supervisor`, over all children together. `max_children` None means no limit. While a child's
    `on_start` runs, other requests wait.
    """

    mailbox_size = 100_000
    is_supervisor: ClassVar[bool] = True

    def __init__(
        self,
        max_children: int | None = None,
        max_restarts: int = 3,
        within: float = 5.0,
        backoff: Backoff | None = None,
    ) -> None:
        check_limits(max_restarts, within)
        self.alive = 0
        self._max_children = max_children
        self._slots: dict[str, Slot] = {}
        self._children: dict[str, _decide.Child] = {}
        self._rules = _decide.State((), max_restarts=max_restarts, within=within, backoff=backoff)

    async def on_receive(self, message: Any) -> Any:
        """Handle `StartChild` and `StopChild`. Log any other message."""
        match message:
            case StartChild():
                return await self._start_child(message)
            case StopChild():
                return await self._stop_child(message)
            case _:
                return super().on_receive(message)

    async def _start_child(self, message: StartChild) -> Ref[Any]:
        spec = message.spec
        there = self._slots.get(spec.id)
        if there is not None:
            raise AlreadyStarted(spec.id, there.ref)
        if self._max_children is not None and len(self._slots) >= self._max_children:
            raise TooManyChildren(
                f"supervisor {self.actor_ref.label!r} has {self._max_children} children; stop one first"
            )
        slot = self._slots[spec.id] = Slot(spec, self)
        failure = await start(self.actor_ref, slot)
        if failure is not None:
            del self._slots[spec.id]
            raise failure
        self._children[spec.id] = _decide.Child(spec.id, spec.restart)
        note_started(self._children, spec.id)
        assert slot.ref is not None
        return slot.ref

    async def _stop_child(self, message: StopChild) -> None:
        slot = self._slots.get(message.id)
        if slot is None:
            raise UnknownChild(f"supervisor {self.actor_ref.label!r} has no child {message.id!r}")
        await stop_in_order(self.actor_ref, [slot])
        self._forget(message.id)

    async def _on_system(self, item: Any) -> None:
        event = event_of(item)
        if event is not None:
            self._rules = await perform(self.actor_ref, self._rules, event, self._children, self._slots)
            child = self._children.get(event.id)
            if child is not None and child.phase is _decide.Phase.GONE:
                self._forget(event.id)

    def _forget(self, child_id: str) -> None:
        self._slots.pop(child_id).forget_wait()
        del self._children[child_id]

    async def _release(self, *, killed: bool) -> None:
        slots = list(self._slots.values())
        for slot in slots:
            slot.forget_wait()
        if not killed:
            with trio.CancelScope() as self.actor_ref._scope:
                await stop_together(self.actor_ref, slots, lambda: self.alive)
        with trio.CancelScope(shield=True):
            await kill_all(self.actor_ref, slots)
