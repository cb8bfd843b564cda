"""Rate limits: so many acts in so many seconds, at once or spread over the time.

They use the "generic cell rate algorithm": a limit remembers only the time at which all allowed acts are paid for.
Times are seconds on a monotonic clock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

#: Keys that a RateLimit remembers. The key used longest ago is forgotten first.
KEYS: Final = 10_000
#: Clocks add rounding errors to times. No limit is finer than this many seconds.
_TOLERANCE: Final = 1e-6


def pay(paid_at: float, now: float, limit: int, per_seconds: float) -> tuple[float, float]:
    """Return the next `paid_at` and 0 if an act is allowed now, or the same `paid_at` and the seconds to wait.

    `paid_at` is what the act before returned; for the first, any time that is not later than `now`. `limit` and
    `per_seconds` are more than 0. What is refused does not count. An act that waits as long as told is allowed, if no
    other comes first.
    """
    interval = per_seconds / limit
    begin = _since(paid_at, now, per_seconds)
    wait = begin + interval - per_seconds - now
    return (paid_at, wait) if wait > _TOLERANCE else (begin + interval, 0.0)


def remaining(paid_at: float, now: float, limit: int, per_seconds: float) -> int:
    """Return how many acts are allowed at `now`, one after the other."""
    unpaid = now + per_seconds - _since(paid_at, now, per_seconds)
    return min(limit, int((unpaid + _TOLERANCE) * limit / per_seconds))


def _since(paid_at: float, now: float, per_seconds: float) -> float:
    # The limit may have been another before, and a clock may be set back.
    return min(max(paid_at, now), now + per_seconds)


class RateLimit:
    """Allows so many acts in so many seconds, for each key. It is not safe for several threads."""

    def __init__(self, keys: int = KEYS) -> None:
        self._keys = keys
        self._paid_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid_at)

    def allow(self, key: str, now: float, limit: int, per_seconds: float) -> float | None:
        """Allow an act, or return the seconds after which it will be allowed. A limit of 0 allows everything."""
        if limit <= 0 or per_seconds <= 0:
            return None
        paid_at, wait = pay(self._paid_at.get(key, now), now, limit, per_seconds)
        if wait:
            return wait
        self._paid_at[key] = paid_at
        self._paid_at.move_to_end(key)
        if len(self._paid_at) > self._keys:
            self._paid_at.popitem(last=False)
        return None

    def give_back(self, key: str, limit: int, per_seconds: float) -> None:
        """Do not count an act that was allowed."""
        if key in self._paid_at:
            self._paid_at[key] -= per_seconds / limit
