"""What must reach a session's agent: decisions that no call has received, and instructions.

One record for each thing says where it is now. The values are frozen: each change returns a new one. They know neither
clock nor store. After a restart they are made again of what the store has as undelivered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

from attrs import evolve, field, frozen

from intercom.model.session import Instruction
from intercom.sessions.messages import Delivery
from intercom.sessions.request_kinds import LateVerdict

#: How long a decision is reserved for the task that polls it, in seconds, before another result may carry it.
FETCH_SECONDS = 60.0


@frozen
class Item:
    """One thing that must reach the agent: the decision about a request, or an instruction.

    `content` is None while the request is undecided, and once the agent need not be told any more. The results of
    `calls` carry it now. `reserved_until` is set if a task polls the request: before that time (in seconds since the
    epoch, infinite while the request is undecided) no other result may carry the decision.

    `is_granted` says that the current policy gives this answer: the policy is asked again before the agent is told.
    `is_refused` says that the decision does not count, and that people were told so.
    """

    id: str
    content: LateVerdict | Instruction | None = None
    calls: frozenset[str] = frozenset()
    reserved_until: float = -math.inf
    is_granted: bool = False
    is_refused: bool = False


@frozen
class PendingDeliveries:
    """The records of one session, by request id and by instruction id, oldest first."""

    items: Mapping[str, Item] = field(factory=dict)

    def item(self, id: str) -> Item:
        """Return the record of this id. An id of which nothing is known has an empty one."""
        return self.items.get(id) or Item(id)

    def has(self, id: str) -> bool:
        """Return whether the agent must still be told this."""
        return self.item(id).content is not None

    def pending(self, now: datetime, own: str | None = None) -> tuple[tuple[LateVerdict, ...], tuple[Instruction, ...]]:
        """Return what the next result may carry: what no result carries, and no task has reserved. `own` is the request
        that this result answers, so its decision is left out."""
        at = now.timestamp()
        free = [
            item.content
            for item in self.items.values()
            if item.id != own and not item.calls and item.reserved_until <= at
        ]
        late = tuple(each for each in free if isinstance(each, LateVerdict))
        return late, tuple(each for each in free if isinstance(each, Instruction))

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions that the agent must still be told, wherever they are."""
        return tuple(item.content for item in self.items.values() if isinstance(item.content, Instruction))

    @property
    def polled(self) -> tuple[str, ...]:
        """The ids of undecided requests that tasks poll."""
        return tuple(item.id for item in self.items.values() if item.reserved_until == math.inf)

    def is_reserved(self, request_id: str) -> bool:
        """Return whether a task polls this request, or has polled it until its decision."""
        return self.item(request_id).reserved_until > -math.inf

    # --- what must be told -------------------------------------------------------------------------------------------

    def put(self, *contents: LateVerdict | Instruction) -> PendingDeliveries:
        """Add what the agent must be told. A later decision about the same request replaces the earlier one."""
        return self._with(evolve(self.item(_id(each)), content=each) for each in contents)

    def drop(self, ids: Iterable[str]) -> PendingDeliveries:
        """Remove what the agent need not be told any more. Results that carry it already are not affected."""
        return self._with(evolve(self.item(id), content=None) for id in ids)

    def clear(self) -> PendingDeliveries:
        """Remove everything that the agent has not been told."""
        return self.drop(self.items)

    # --- where it is -------------------------------------------------------------------------------------------------

    def attach(self, delivery: Delivery | None) -> PendingDeliveries:
        """Note what a call's result carries, in place of what an earlier result of this call carried."""
        if delivery is None:
            return self
        rest = self.detach((delivery.call,))
        items = (rest.item(id) for id in (*delivery.requests, *delivery.instructions))
        return rest._with(evolve(item, calls=item.calls | {delivery.call}) for item in items)

    def detach(self, calls: Iterable[str]) -> PendingDeliveries:
        """Note that these results carry nothing any more: they arrived, or were lost. What was not recorded as
        delivered is pending again, unless another result carries it."""
        ended = frozenset(calls)
        carried = (item for item in self.items.values() if item.calls & ended)
        return self._with(evolve(item, calls=item.calls - ended) for item in carried)

    def delivered(self, ids: Iterable[str]) -> PendingDeliveries:
        """Note that it is recorded that the agent has these."""
        return self._with(Item(id, is_refused=self.item(id).is_refused) for id in ids)

    def reserve(self, request_ids: Iterable[str], until: float = math.inf) -> PendingDeliveries:
        """Reserve the decisions about these requests for the tasks that poll them; until minus infinity: for none."""
        return self._with(evolve(self.item(id), reserved_until=until) for id in request_ids)

    def leave_to_task(self, request_id: str, now: datetime) -> PendingDeliveries:
        """Reserve the decision on this request for `FETCH_SECONDS`, if a task polls it."""
        if not self.is_reserved(request_id):
            return self
        return self.reserve((request_id,), now.timestamp() + FETCH_SECONDS)

    def clock_changed(self, now: datetime) -> PendingDeliveries:
        """Shorten the reservations to `FETCH_SECONDS` from now, because the clock may have been set back."""
        latest = now.timestamp() + FETCH_SECONDS
        return self.reserve(
            (item.id for item in self.items.values() if latest < item.reserved_until < math.inf), latest
        )

    # --- whether it counts -------------------------------------------------------------------------------------------

    def grant(self, request_id: str, is_granted: bool) -> PendingDeliveries:
        """Note whether the current policy gives the recorded answer to this question."""
        return self._with((evolve(self.item(request_id), is_granted=is_granted),))

    def refuse(self, request_id: str) -> PendingDeliveries:
        """Note that the recorded decision about this request does not count, and that people were told so."""
        return self._with((evolve(self.item(request_id), is_refused=True),))

    def _with(self, changed: Iterable[Item]) -> PendingDeliveries:
        items = dict(self.items)
        for item in changed:
            if item == Item(item.id):
                items.pop(item.id, None)
            else:
                items[item.id] = item
        return PendingDeliveries(items)


def _id(content: LateVerdict | Instruction) -> str:
    return content.request_id if isinstance(content, LateVerdict) else content.id
