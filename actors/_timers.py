"""The timers of a system: one heap, served by one task."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Hashable
from typing import Any

import trio

_order = itertools.count()


class Timer:
    """A call at `deadline` (seconds on Trio's clock), unless it is cancelled first."""

    __slots__ = ("call", "deadline", "key", "message", "order", "timers")

    def __init__(self, timers: Timers, deadline: float, call: Callable[[Timer], None]) -> None:
        self.timers = timers
        self.deadline = deadline
        self.order = next(_order)
        self.call: Callable[[Timer], None] | None = call
        self.key: Hashable = None
        self.message: Any = None

    def __lt__(self, other: Timer) -> bool:
        return (self.deadline, self.order) < (other.deadline, other.order)

    def cancel(self) -> None:
        """Cancel the call. Does nothing after the call was made."""
        if self.call is not None:
            self.call = None
            self.timers.forget_one()


class Timers:
    """The heap of timers. Timers fire only while `run` runs."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._cancelled = 0
        self._scope = trio.CancelScope()
        self._closed = False

    def close(self) -> None:
        """Stop firing timers."""
        self._closed = True
        self._scope.cancel()

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, seconds: float, call: Callable[[Timer], None]) -> Timer:
        """Schedule `call(timer)` on the loop after `seconds`."""
        timer = Timer(self, trio.current_time() + seconds, call)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer:
            self._scope.deadline = timer.deadline
        return timer

    def forget_one(self) -> None:
        """Count a cancelled entry. Rebuild the heap if most of its entries are cancelled."""
        self._cancelled += 1
        # Otherwise an actor that resets a long timer with every message would fill the memory.
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [timer for timer in self._heap if timer.call is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    async def run(self) -> None:
        """Fire timers at their deadlines, until `close`."""
        while not self._closed:
            self._scope = trio.CancelScope(deadline=self._heap[0].deadline if self._heap else math.inf)
            with self._scope:
                await trio.sleep_forever()
            now = trio.current_time()
            while self._heap and self._heap[0].deadline <= now:
                timer = heapq.heappop(self._heap)
                call, timer.call = timer.call, None
                if call is None:
                    self._cancelled -= 1
                else:
                    call(timer)
