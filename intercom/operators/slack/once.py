"""The same act once: who comes with an act that is being carried out, or was, gets the answer of the first."""

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
    """Remembers in memory only: what must not happen twice after a restart is on record under the act's id."""

    _answers: dict[str, Answer] = field(factory=dict, init=False)
    _under_way: dict[str, trio.Event] = field(factory=dict, init=False)

    async def run(self, act_id: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer of `work`, which is not begun while the same act is under way, and not after it succeeded. When it
        raised, the next to come tries again."""
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
