"""How many requests Slack takes: a token bucket for each method, and for each channel where posting is counted so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import trio

from tests.slack import limits


class Rates:
    """Off when `rates` is empty. `rates` gives requests a second and burst by method."""

    def __init__(self, rates: Mapping[str, tuple[float, int]]) -> None:
        self.rates = dict(rates)
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}  # tokens, when they were counted

    def wait(self, method: str, args: Mapping[str, Any]) -> int:
        """Whole seconds until this call is welcome; 0 when it is now, and it is counted then."""
        if method not in self.rates:
            return 0
        rate, burst = self.rates[method]
        key = (method, str(args.get("channel", "")) if method in limits.BY_CHANNEL else "")
        now = trio.current_time()
        tokens, at = self._buckets.get(key, (float(burst), now))
        tokens = min(float(burst), tokens + (now - at) * rate)
        if tokens < 1:
            self._buckets[key] = (tokens, now)
            return max(1, math.ceil((1 - tokens) / rate))
        self._buckets[key] = (tokens - 1, now)
        return 0
