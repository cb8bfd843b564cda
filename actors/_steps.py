"""Detection of calls that block the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

__all__ = ["StepWatch"]


class StepWatch(trio.abc.Instrument):
    """Reports each step of a task that took more than `limit` seconds on `clock`.

    A handler called within another task's step (see `_ask`) is reported separately. Its time does not count for that
    task.
    """

    def __init__(
        self, limit: float, report: Callable[[trio.lowlevel.Task | Any, float], None], clock: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._report = report
        self.clock = clock
        self.began = clock()
        self._apart = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Record when the step began."""
        self._apart = 0.0
        self.began = self.clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Report the step if it was long."""
        seconds = self.clock() - self.began - self._apart
        if seconds > self._limit:
            self._report(task, seconds)

    def handled_within(self, ref: Any, seconds: float) -> None:
        """Account for a handler that was called within this step."""
        self._apart += seconds
        if seconds > self._limit:
            self._report(ref, seconds)
