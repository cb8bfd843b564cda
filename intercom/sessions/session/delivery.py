"""What is to reach an agent: who waits for which request, and what is attached to the next result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from attrs import define, field, frozen

from actors import Reply
from intercom.model.instruction import Instruction
from intercom.sessions.answers import LateVerdict
from intercom.sessions.messages import Delivery

#: How long a decision is reserved for the task that polls it, in seconds, before another result may carry it.
FETCH_SECONDS = 60.0


@define
class PendingDeliveries:
    """`verdicts` and `words` (instructions) that have not reached the agent, by request id and by their own id.
    `riding` is what results carry now, by call. `tasked` are requests that tasks poll, and until when (in seconds since
    the epoch) their decisions are reserved for them."""

    verdicts: dict[str, LateVerdict] = field(factory=dict, init=False)
    words: dict[str, Instruction] = field(factory=dict, init=False)
    riding: dict[str, Delivery] = field(factory=dict, init=False)
    tasked: dict[str, float] = field(factory=dict, init=False)

    def free(
        self, now: Callable[[], datetime], own: str | None = None
    ) -> tuple[tuple[LateVerdict, ...], tuple[Instruction, ...]]:
        """Return what no result carries: instructions, and decisions except that on `own` and reserved ones."""
        if not self.verdicts and not self.words:
            # The usual case: nothing is pending.
            return (), ()
        riding = {id for delivery in self.riding.values() for id in (*delivery.requests, *delivery.instructions)}
        at = now().timestamp()
        free = (id for id in self.verdicts if id != own and id not in riding and not self._is_a_tasks(id, at))
        late = tuple(self.verdicts[id] for id in free)
        return late, tuple(word for id, word in self.words.items() if id not in riding)

    def ride(self, call: str, own: str | None, late: tuple[LateVerdict, ...], words: tuple[Instruction, ...]) -> None:
        """Attach these to this call's result, whose answer is the decision on `own`."""
        if own is None and not late and not words:
            return
        told = (own,) if own is not None else ()
        requests = (*told, *(verdict.request_id for verdict in late))
        self.riding[call] = Delivery(call, requests, tuple(word.id for word in words))

    def unload(self, calls: Iterable[str]) -> None:
        """Detach everything from these results: they arrived, or were lost. What was not recorded as delivered is
        pending again."""
        for call in calls:
            self.riding.pop(call, None)

    def leave_to_task(self, request_id: str, now: datetime) -> None:
        """Reserve the decision on this request for its task for `FETCH_SECONDS`, if a task polls it."""
        if request_id in self.tasked:
            self.tasked[request_id] = now.timestamp() + FETCH_SECONDS

    def clock_changed(self, now: datetime) -> None:
        """Shorten the reservations to `FETCH_SECONDS` from now, because the clock may have been set back."""
        latest = now.timestamp() + FETCH_SECONDS
        for id, until in self.tasked.items():
            if math.isfinite(until):
                self.tasked[id] = min(until, latest)

    def _is_a_tasks(self, request_id: str, at: float) -> bool:
        return at < self.tasked.get(request_id, -math.inf)

    def clear(self) -> None:
        """Drop everything that is pending. What results carry already is not affected."""
        self.verdicts.clear()
        self.words.clear()


@frozen
class Waiter:
    """A waiting call. `ticket` tells it from an earlier one of the same name whose end was not seen. `task` is the task
    whose end it waits for, if any. `alone` says that its answer carries nothing else."""

    call: str
    ticket: str
    reply: Reply[Any]
    task: str | None = None
    alone: bool = False


@define
class Waiters:
    """The waiting calls by request id. True if any call waits; `in` tests one request."""

    _by_request: dict[str, list[Waiter]] = field(factory=dict, init=False)

    def came(self, request_id: str, waiter: Waiter) -> bool:
        """Add a waiting call. Returns whether it is the only one for this request."""
        entries = self._by_request.setdefault(request_id, [])
        entries.append(waiter)
        return len(entries) == 1

    def forget(self, request_id: str, call: str, ticket: str) -> bool:
        """Remove a waiting call, if it is there. Returns whether it was the last for this request."""
        entries = [each for each in self.of(request_id) if (each.call, each.ticket) != (call, ticket)]
        if entries:
            self._by_request[request_id] = entries
            return False
        return self._by_request.pop(request_id, None) is not None

    def of(self, request_id: str) -> tuple[Waiter, ...]:
        """Return the calls that wait for this request."""
        return tuple(self._by_request.get(request_id, ()))

    def take(self, request_id: str) -> tuple[Waiter, ...]:
        """Remove the calls that wait for this request, and return them."""
        return tuple(self._by_request.pop(request_id, ()))

    def requests(self) -> tuple[str, ...]:
        """Return the requests that a call waits for."""
        return tuple(self._by_request)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_request

    def __bool__(self) -> bool:
        return bool(self._by_request)
