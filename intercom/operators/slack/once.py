"""Deduplication of acts in memory: a repetition gets the answer of the first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from attrs import define, field

#: How many acts are remembered; a redelivery comes within minutes.
REMEMBERED = 1024

Answer = dict[str, Any] | None


@define
class Once:
    """Remembers acts in memory only. Acts that must not repeat after a restart are also recorded under their id."""

    _answers: dict[str, Answer] = field(factory=dict, init=False)
    _under_way: dict[str, trio.Event] = field(factory=dict, init=False)

    async def run(self, act_id: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Run `work` once for each act and return its answer; concurrent and later repetitions get the same answer. If
        `work` raises, the next repetition runs it again."""
        while (first := self._under_way.get(act_id)) is not None:
            await first.wait()
        if act_id in self._answers:
            return self._answers[act_id]
        done = self._under_way[act_id] = trio.Event()
        try:
            answer = await work()
            if len(self._answers) >= REMEMBERED:
                del self._answers[next(iter(self._answers))]
            self._answers[act_id] = answer
            return answer
        finally:
            del self._under_way[act_id]
            done.set()
