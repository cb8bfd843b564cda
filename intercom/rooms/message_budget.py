"""Limits that stop agents which only keep each other busy: a room's message budget, and rates. Pure, but for memory.

The loop guard counts a room's messages since a person wrote or the document changed. Agents that answer each other
without end make no such progress. It also counts all that teams do since a person wrote, because agents can change the
document without end, too.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from attrs import frozen

from intercom.model.room import Room

#: How many times as much as without progress teams may do without a person.
WITHOUT_PERSON: Final = 10
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
    def acts(self) -> int:
        """How many messages and changes of the document a room may take without a person."""
        return self.messages * WITHOUT_PERSON

    def warning(self, most: int) -> int:
        """Return the number of the act, of at most `most`, after which teams are warned."""
        # 0.8 * 35 is a little more than 28.
        return max(1, math.ceil(most * self.warn_at - _TOLERANCE))


@frozen
class Use:
    """How much of a budget is used, and whether that warns the teams or pauses the room now."""

    count: int
    warn: bool = False
    pause: bool = False


@frozen
class Judgement:
    """What follows from further acts: for the messages since progress, and for all acts since a person wrote."""

    messages: Use
    acts: Use


def judge(room: Room, budget: Budget, messages: int = 1, changes: int = 0) -> Judgement:
    """Judge further messages of teams and changes of the document, which the room takes. A change is progress.

    A warning is due once, when the count reaches it, and only before the last act of the budget. A pause is due with
    that act, and with each further one while the room is not paused. In a paused or closed room neither is due.
    """
    without_progress = 0 if changes else room.messages_since_progress
    count = 0 if changes else messages
    return Judgement(
        _use(room, budget, without_progress, count, budget.messages),
        _use(room, budget, room.acts_since_person, messages + changes, budget.acts),
    )


def _use(room: Room, budget: Budget, before: int, count: int, most: int) -> Use:
    after = before + count
    if most <= 0 or count <= 0 or room.is_paused or room.is_closed:
        return Use(after)
    first = budget.warning(most)
    return Use(after, warn=before < first <= after and first < most, pause=after >= most)


def is_spent(room: Room, budget: Budget, times: int = 1) -> bool:
    """Whether a room has used up one of its budgets, or so many times as much."""
    if budget.messages <= 0:
        return False
    return room.messages_since_progress >= budget.messages * times or room.acts_since_person >= budget.acts * times


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

    def give_back(self, key: str, limit: int, per_seconds: float) -> None:
        """Do not count an act that was allowed."""
        if key in self._paid_at:
            self._paid_at[key] -= per_seconds / limit
