"""The limit that stops agents which only keep each other busy: a room's message budget. Pure.

The loop guard counts a room's messages since a person wrote or the document changed. Agents that answer each other
without end make no such progress. It also counts all that teams do since a person wrote, because agents can change the
document without end, too.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import frozen

from intercom.model.room import Room

#: How many times as much as without progress teams may do without a person.
WITHOUT_PERSON: Final = 10
#: Products of shares have rounding errors.
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
