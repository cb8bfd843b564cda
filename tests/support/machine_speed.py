"""Limits of time that hold on a slow or a busy machine too.

A limit in a test is set for an idle machine of today, and tells work that is bounded from work that is not: it is far
above what is needed. A machine that is three times slower, or has as many other things to do, needs three times that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]

#: Seconds that `_work` takes on an idle machine of today.
_USUAL = 0.05


def is_below(limit: float, seconds: float, clock: Clock = time.process_time) -> bool:
    """Whether something that took so many seconds of `clock` was within a limit, set for an idle machine of today.

    If it was not, a piece of work is done to see how much longer that takes here and now, and the limit is so much
    longer.
    """
    return seconds < limit or seconds < limit * max(1.0, _taken(clock) / _USUAL)


def _taken(clock: Clock) -> float:
    began = clock()
    _work()
    return clock() - began


def _work() -> int:
    total = 0
    for number in range(2_250_000):
        total += number & 7
    return total
