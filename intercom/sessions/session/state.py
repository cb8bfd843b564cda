"""The state of a session: its row, its agent, and what must reach the agent (decisions and instructions).

It is one frozen value. Each method that changes something returns a new value, and uses neither clock nor store.
`SessionActor.change` calls such a method and keeps what it returns. After a restart the state is made again of what the
store has. The calls that wait for a decision are not part of it: `SessionActor.waiters` holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

from attrs import evolve, field, frozen

from intercom.model.session import Instruction, Session, SessionStatus
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

    `is_unattended` says that no call waits for the pending request, as its card says. `is_granted` says that the
    current policy gives this answer: the policy is asked again before the agent is told. `is_refused` says that the
    decision does not count, and that people were told so.
    """

    id: str
    content: LateVerdict | Instruction | None = None
    calls: frozenset[str] = frozenset()
    reserved_until: float = -math.inf
    is_unattended: bool = False
    is_granted: bool = False
    is_refused: bool = False


@frozen
class SessionState:
    """The state of one session.

    `items` are the records by request id and by instruction id, oldest first. `agent_here` says that the agent is
    connected, `turn_over` that it has ended its turn and made no call since. `has_stop_hook` says that it asks for
    instructions before it ends a turn. `successor` is the id of the session that follows this one, if a checkpoint of
    this one was restored.
    """

    row: Session
    items: Mapping[str, Item] = field(factory=dict)
    agent_here: bool = False
    turn_over: bool = False
    has_stop_hook: bool = False
    successor: str | None = None

    # --- the agent ---------------------------------------------------------------------------------------------------

    @property
    def is_reachable(self) -> bool:
        """Whether instructions can reach the agent: it is connected, and has not ended its turn."""
        return self.agent_here and not self.turn_over

    @property
    def is_at_work(self) -> bool:
        """Whether the agent should be active: its silence may be a stall."""
        return self.is_reachable and self.row.status is SessionStatus.ACTIVE

    def moved(self, row: Session, successor: str | None = None) -> SessionState:
        """Note the session's row as the store has it now, and its successor if it has got one."""
        return evolve(self, row=row, successor=successor or self.successor)

    def agent_came(self) -> SessionState:
        """Note that the agent is connected."""
        return evolve(self, agent_here=True, turn_over=False)

    def agent_left(self) -> SessionState:
        """Note that the agent is not connected any more."""
        return evolve(self, agent_here=False)

    def turn_ends(self, *, is_over: bool) -> SessionState:
        """Note that the agent's stop hook has asked for instructions. `is_over`: it got none, so the turn ends."""
        return evolve(self, has_stop_hook=True, turn_over=is_over)

    # --- what the agent must be told ---------------------------------------------------------------------------------

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
        items = (item for item in self.items.values() if item.id != own and not item.calls)
        free = [item.content for item in items if item.reserved_until <= at]
        late = tuple(each for each in free if isinstance(each, LateVerdict))
        return late, tuple(each for each in free if isinstance(each, Instruction))

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions that the agent must still be told, wherever they are."""
        return tuple(item.content for item in self.items.values() if isinstance(item.content, Instruction))

    def queue(self, *contents: LateVerdict | Instruction) -> SessionState:
        """Add what the agent must be told. A later decision about the same request replaces the earlier one."""
        return self._with(evolve(self.item(_id(each)), content=each) for each in contents)

    def drop(self, ids: Iterable[str]) -> SessionState:
        """Remove what the agent need not be told any more. Results that carry it already are not affected."""
        return self._with(evolve(self.item(id), content=None) for id in ids)

    # --- where it is -------------------------------------------------------------------------------------------------

    def attach(self, delivery: Delivery | None) -> SessionState:
        """Note what a call's result carries, in place of what an earlier result of this call carried. The agent made
        the call, so its turn is not over."""
        state = evolve(self, turn_over=False) if self.turn_over else self
        if delivery is None:
            return state
        rest = state.detach((delivery.call,))
        items = (rest.item(id) for id in (*delivery.requests, *delivery.instructions))
        return rest._with(evolve(item, calls=item.calls | {delivery.call}) for item in items)

    def detach(self, calls: Iterable[str]) -> SessionState:
        """Note that these results carry nothing any more: they arrived, or were lost. What was not recorded as
        delivered is pending again, unless another result carries it."""
        ended = frozenset(calls)
        carried = (item for item in self.items.values() if item.calls & ended)
        return self._with(evolve(item, calls=item.calls - ended) for item in carried)

    def delivered(self, ids: Iterable[str]) -> SessionState:
        """Note that it is recorded that the agent has these."""
        return self._with(Item(id, is_refused=self.item(id).is_refused) for id in ids)

    # --- what waits for a decision -----------------------------------------------------------------------------------

    @property
    def unattended(self) -> frozenset[str]:
        """The ids of pending requests that no call waits for, as their cards say."""
        return frozenset(item.id for item in self.items.values() if item.is_unattended)

    @property
    def mismarked(self) -> tuple[str, ...]:
        """The ids of undecided requests that tasks poll, and whose cards do not say that the agent came or left."""
        polled = (item for item in self.items.values() if item.reserved_until == math.inf)
        return tuple(item.id for item in polled if item.is_unattended is self.agent_here)

    def is_reserved(self, request_id: str) -> bool:
        """Return whether a task polls this request, or has polled it until its decision."""
        return self.item(request_id).reserved_until > -math.inf

    def waits(self, request_id: str) -> SessionState:
        """Note that a call waits for this request, so the agent's turn is not over."""
        return evolve(self.attend(request_id), turn_over=False)

    def attend(self, request_id: str) -> SessionState:
        """Note that this request is not unattended: a call waits for it, or it is decided."""
        return self._with((evolve(self.item(request_id), is_unattended=False),))

    def leave_alone(self, *request_ids: str) -> SessionState:
        """Note that no call waits for these requests. A request is attended nevertheless if a task polls it and the
        agent is connected."""
        polled = {id for id in request_ids if self.agent_here and self.is_reserved(id)}
        return self._with(evolve(self.item(id), is_unattended=id not in polled) for id in request_ids)

    def reserve(self, request_ids: Iterable[str], until: float = math.inf) -> SessionState:
        """Reserve the decisions about these requests for the tasks that poll them; until minus infinity: for none."""
        return self._with(evolve(self.item(id), reserved_until=until) for id in request_ids)

    def leave_to_task(self, request_id: str, now: datetime) -> SessionState:
        """Reserve the decision on this request for `FETCH_SECONDS`, if a task polls it."""
        if not self.is_reserved(request_id):
            return self
        return self.reserve((request_id,), now.timestamp() + FETCH_SECONDS)

    def reopen(self, request_id: str) -> SessionState:
        """Note that the decision on this request was taken back before any result carried it."""
        item = evolve(self.item(request_id), content=None)
        return self._with((evolve(item, reserved_until=math.inf) if self.is_reserved(request_id) else item,))

    def clock_changed(self, now: datetime) -> SessionState:
        """Shorten the reservations to `FETCH_SECONDS` from now, because the clock may have been set back."""
        latest = now.timestamp() + FETCH_SECONDS
        late = (item.id for item in self.items.values() if latest < item.reserved_until < math.inf)
        return self.reserve(late, latest)

    # --- whether it counts -------------------------------------------------------------------------------------------

    def grant(self, request_id: str, is_granted: bool) -> SessionState:
        """Note whether the current policy gives the recorded answer to this question."""
        return self._with((evolve(self.item(request_id), is_granted=is_granted),))

    def refuse(self, request_id: str) -> SessionState:
        """Note that the recorded decision about this request does not count, and that people were told so."""
        return self._with((evolve(self.item(request_id), is_refused=True),))

    def _with(self, changed: Iterable[Item]) -> SessionState:
        items = dict(self.items)
        for item in changed:
            if item == Item(item.id):
                items.pop(item.id, None)
            else:
                items[item.id] = item
        return evolve(self, items=items)


def _id(content: LateVerdict | Instruction) -> str:
    return content.request_id if isinstance(content, LateVerdict) else content.id
