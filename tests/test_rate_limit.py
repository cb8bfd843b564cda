"""A rate limit allows so much in a stretch of time, and says when there is more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.rate_limit import RateLimit, pay, remaining


def test_a_limit_allows_a_burst_and_then_says_how_long_to_wait() -> None:
    limit = RateLimit()
    assert [limit.allow("a", 100.0, 3, 60) for _ in range(3)] == [None] * 3
    assert limit.allow("a", 100.0, 3, 60) == pytest.approx(20)
    assert limit.allow("a", 115.0, 3, 60) == pytest.approx(5)
    assert limit.allow("b", 115.0, 3, 60) is None
    assert limit.allow("a", 120.0, 3, 60) is None
    assert limit.allow("a", 120.0, 3, 60) == pytest.approx(20)


def test_a_limit_of_nothing_allows_everything_and_remembers_nobody() -> None:
    limit = RateLimit()
    assert [limit.allow("a", 0.0, 0, 60) for _ in range(100)] == [None] * 100
    assert len(limit) == 0


def test_a_limit_that_becomes_shorter_counts_at_once() -> None:
    limit = RateLimit()
    assert limit.allow("a", 0.0, 1, 3_600) is None
    assert limit.allow("a", 1.0, 1, 10) == pytest.approx(10)


@given(
    st.integers(1, 5),
    st.floats(0.5, 100),
    st.lists(st.floats(0, 50), max_size=60),
    st.floats(0, 1e7),
)
def test_no_stretch_of_time_has_more_than_its_share_and_who_waits_is_served(
    most: int, per_seconds: float, pauses: list[float], began: float
) -> None:
    limit = RateLimit()
    now, allowed = began, []
    for pause in pauses:
        now += pause
        wait = limit.allow("a", now, most, per_seconds)
        if wait is not None:
            assert 0 < wait <= per_seconds / most + 1e-3
            now += wait
            assert limit.allow("a", now, most, per_seconds) is None
        allowed.append(now)
    for first, begin in enumerate(allowed):
        for last in range(first, len(allowed)):
            share = most * (1 + (allowed[last] - begin) / per_seconds)
            assert last - first + 1 <= share + 1e-3


@given(st.lists(st.sampled_from("abcdefghij"), max_size=100))
def test_what_a_limit_remembers_is_bounded_and_the_key_used_last_is_in_it(keys: list[str]) -> None:
    limit = RateLimit(keys=3)
    for now, key in enumerate(keys):
        if limit.allow(key, float(now), 1, 1_000) is None:
            assert limit.allow(key, float(now), 1, 1_000) is not None
        assert len(limit) <= 3


@given(st.integers(1, 9), st.floats(0.5, 100), st.lists(st.floats(0, 50), max_size=30))
def test_as_many_acts_are_allowed_as_remain(most: int, per_seconds: float, pauses: list[float]) -> None:
    paid_at = now = 1_000.0
    assert remaining(paid_at, now, most, per_seconds) == most
    for pause in pauses:
        now += pause
        left = remaining(paid_at, now, most, per_seconds)
        paid_at, wait = pay(paid_at, now, most, per_seconds)
        assert (wait == 0) == (left > 0)
        assert remaining(paid_at, now, most, per_seconds) == max(0, left - 1)
