"""The loop guard warns, then pauses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.room import Room, RoomId, RoomStatus, TeamId
from intercom.rooms.message_budget import Budget, Judgement, Use, is_spent, judge

AT = datetime(2026, 11, 25, tzinfo=UTC)
ROOM = Room(RoomId("r"), "title", "", TeamId("t"), AT, AT)


def room(count: int, paused_by: str | None = None) -> Room:
    return evolve(ROOM, messages_since_progress=count, paused_by=paused_by)


@pytest.mark.parametrize(
    ("before", "budget", "count", "expected"),
    [
        (0, Budget(200), 1, Use(1)),
        (158, Budget(200), 1, Use(159)),
        (159, Budget(200), 1, Use(160, warn=True)),
        (160, Budget(200), 1, Use(161)),
        (198, Budget(200), 1, Use(199)),
        (199, Budget(200), 1, Use(200, pause=True)),
        (150, Budget(200), 60, Use(210, warn=True, pause=True)),
        (150, Budget(200), 0, Use(150)),
        (27, Budget(35), 1, Use(28, warn=True)),
        # The budget was larger before.
        (500, Budget(200), 1, Use(501, pause=True)),
        (0, Budget(1), 1, Use(1, pause=True)),
        (0, Budget(2), 1, Use(1)),
        (1, Budget(2), 1, Use(2, pause=True)),
        (9_999, Budget(0), 1, Use(10_000)),
        (4, Budget(10, warn_at=0.5), 1, Use(5, warn=True)),
        (9, Budget(10, warn_at=1), 1, Use(10, pause=True)),
        (0, Budget(10, warn_at=0), 1, Use(1, warn=True)),
    ],
)
def test_a_room_is_warned_and_then_paused(before: int, budget: Budget, count: int, expected: Use) -> None:
    assert judge(room(before), budget, count).messages == expected


@pytest.mark.parametrize(
    ("before", "changes", "expected"),
    [
        (0, 1, Judgement(Use(0), Use(1))),
        (1599, 1, Judgement(Use(0), Use(1600, warn=True))),
        (1600, 1, Judgement(Use(0), Use(1601))),
        (1999, 1, Judgement(Use(0), Use(2000, pause=True))),
        (1999, 0, Judgement(Use(101), Use(2000, pause=True))),
    ],
)
def test_changes_of_the_document_use_up_a_larger_budget(before: int, changes: int, expected: Judgement) -> None:
    busy = evolve(room(100), acts_since_person=before)
    assert judge(busy, Budget(200), 1 - changes, changes) == expected


@pytest.mark.parametrize(
    ("messages", "acts", "times", "expected"),
    [(9, 99, 1, False), (10, 0, 1, True), (0, 100, 1, True), (19, 199, 2, False), (20, 0, 2, True), (0, 200, 2, True)],
)
def test_a_budget_is_spent_with_its_last_act(messages: int, acts: int, times: int, expected: bool) -> None:
    busy = evolve(room(messages), acts_since_person=acts)
    assert is_spent(busy, Budget(10), times) == expected
    assert not is_spent(busy, Budget(0), times)


def test_a_paused_or_closed_room_is_not_paused_again() -> None:
    assert judge(room(300, paused_by="loop guard"), Budget(200)).messages == Use(301)
    assert judge(evolve(room(300), status=RoomStatus.CLOSED), Budget(200)).messages == Use(301)


@given(st.integers(1, 60), st.floats(0, 1), st.lists(st.integers(1, 7), max_size=60))
def test_a_pause_comes_with_the_last_message_and_one_warning_before_it(
    messages: int, warn_at: float, groups: list[int]
) -> None:
    budget = Budget(messages, warn_at)
    count, warnings = 0, 0
    for group in groups:
        judgement = judge(room(count), budget, group).messages
        assert judgement.count == count + group
        count += group
        warnings += judgement.warn
        assert judgement.pause == (count >= messages)
        if judgement.pause:
            break
    assert warnings == (budget.warning(messages) <= count and budget.warning(messages) < messages)
