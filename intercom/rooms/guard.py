"""Limits that stop agents which only keep each other busy: a room's message budget, and rates. Pure, but for memory.

The loop guard counts a room's messages since a person wrote or the document changed. Agents that answer each other
without end make no such progress.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from attrs import frozen

from intercom.model.room import Room

#: Keys that a RateLimit remembers. The key used longest ago is forgotten first.
KEYS: Final = 10_000
#: Clocks add rounding errors to times. No limit is finer than this many seconds.
_TOLERANCE: Final = 1e-6


@frozen
class Budget:
    """How many messages a room may take without progress; 0 means any number. `warn_at` is the share that brings a
    warning."""

    messages: int
    warn_at: float = 0.8

    @property
    def first_warning(self) -> int:
        """The number of the message after which teams are warned."""
        # 0.8 * 35 is a little more than 28.
        return max(1, math.ceil(self.messages * self.warn_at - _TOLERANCE))


@frozen
class Judgement:
    """What follows from further messages: the new count, whether to warn the teams, and whether to pause the room."""

    messages_since_progress: int
    warn: bool = False
    pause: bool = False


def judge(room: Room, budget: Budget, count: int = 1) -> Judgement:
    """Judge `count` further messages of teams, which the room takes.

    The warning is due once, when the count reaches it, and only before the last message of the budget. The pause is due
    with that message, and with each further one while the room is not paused.
    """
    before = room.messages_since_progress
    after = before + count
    if budget.messages <= 0 or count <= 0:
        return Judgement(after)
    first = budget.first_warning
    return Judgement(
        after,
        warn=before < first <= after and first < budget.messages,
        pause=after >= budget.messages and not room.is_paused,
    )


class RateLimit:
    """Allows so many acts in so many seconds, for each key: at once, or spread over the time.

    Times are seconds on a monotonic clock. It uses the "generic cell rate algorithm": for each key, it remembers only
    the time at which all allowed acts are paid for. It is not safe for several threads.
    """

    def __init__(self, keys: int = KEYS) -> None:
        self._keys = keys
        self._paid_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid_at)

    def allow(self, key: str, now: float, limit: int, per_seconds: float) -> float | None:
        """Allow an act, or return the seconds after which it will be allowed. A limit of 0 allows everything.

        What is refused does not count. An act that waits as long as told is allowed, if no other comes first.
        """
        if limit <= 0 or per_seconds <= 0:
            return None
        interval = per_seconds / limit
        # The limit may have been another before, and a clock may be set back.
        paid_at = min(max(self._paid_at.get(key, now), now), now + per_seconds)
        wait = paid_at + interval - per_seconds - now
        if wait > _TOLERANCE:
            return wait
        self._paid_at[key] = paid_at + interval
        self._paid_at.move_to_end(key)
        if len(self._paid_at) > self._keys:
            self._paid_at.popitem(last=False)
        return None
