"""Watches for calls that block the loop."""

from __future__ import annotations

from collections.abc import Callable

import trio

__all__ = ["StepWatch"]


class StepWatch(trio.abc.Instrument):
    """Reports each step of a task that took more than `limit` seconds on `clock`."""

    def __init__(
        self, limit: float, report: Callable[[trio.lowlevel.Task, float], None], clock: Callable[[], float]
    ) -> None:
        self._limit = limit
        self._report = report
        self._clock = clock
        self._began = clock()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note when the step began."""
        self._began = self._clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Report the step if it was long."""
        seconds = self._clock() - self._began
        if seconds > self._limit:
            self._report(task, seconds)
