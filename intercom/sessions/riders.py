"""What is to reach an agent and rides on its calls' results, as a session's actor keeps it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime

from attrs import define, field

from intercom.model.steering import Instruction
from intercom.sessions.answers import LateVerdict
from intercom.sessions.messages import Delivery

#: How long a verdict is left to the task that asks after it, before it rides on another result.
FETCH_SECONDS = 60.0


@define
class Riders:
    """`verdicts` that have not reached the agent, by request, and `words`, by their ids; `riding` is what a result
    carries at this moment, by its call. `tasked` are requests that tasks ask after, and until when (in seconds since
    the epoch) their verdicts are theirs to tell."""

    verdicts: dict[str, LateVerdict] = field(factory=dict, init=False)
    words: dict[str, Instruction] = field(factory=dict, init=False)
    riding: dict[str, Delivery] = field(factory=dict, init=False)
    tasked: dict[str, float] = field(factory=dict, init=False)

    def free(
        self, now: Callable[[], datetime], own: str | None = None
    ) -> tuple[tuple[LateVerdict, ...], tuple[Instruction, ...]]:
        """What rides on no result: verdicts, but for that on `own` and those that are a task's to tell, and words."""
        if not self.verdicts and not self.words:
            # As a rule: whoever pings has nothing waiting for it.
            return (), ()
        riding = {id for delivery in self.riding.values() for id in (*delivery.requests, *delivery.instructions)}
        at = now().timestamp()
        free = (id for id in self.verdicts if id != own and id not in riding and not self._is_a_tasks(id, at))
        late = tuple(self.verdicts[id] for id in free)
        return late, tuple(word for id, word in self.words.items() if id not in riding)

    def ride(self, call: str, own: str | None, late: tuple[LateVerdict, ...], words: tuple[Instruction, ...]) -> None:
        """This call's result carries these, and the verdict on `own` as its answer."""
        if own is None and not late and not words:
            return
        told = (own,) if own is not None else ()
        requests = (*told, *(verdict.request_id for verdict in late))
        self.riding[call] = Delivery(call, requests, tuple(word.id for word in words))

    def unload(self, calls: Iterable[str]) -> None:
        """These results carry nothing any more: they have arrived, or were lost, and what rode on them may ride again
        unless it is told to have reached the agent."""
        for call in calls:
            self.riding.pop(call, None)

    def leave_to_task(self, request_id: str, now: datetime) -> None:
        """This request has its verdict: if a task asks after it, that has a while to fetch it."""
        if request_id in self.tasked:
            self.tasked[request_id] = now.timestamp() + FETCH_SECONDS

    def clock_changed(self, now: datetime) -> None:
        """What is left to tasks by a clock that was set back is left to them no longer than by this one."""
        latest = now.timestamp() + FETCH_SECONDS
        for id, until in self.tasked.items():
            if math.isfinite(until):
                self.tasked[id] = min(until, latest)

    def _is_a_tasks(self, request_id: str, at: float) -> bool:
        return at < self.tasked.get(request_id, -math.inf)

    def clear(self) -> None:
        """Nothing more is to reach the agent; what rides already goes on."""
        self.verdicts.clear()
        self.words.clear()
