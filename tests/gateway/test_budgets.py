"""Budgets count what is allowed, refuse what is too much, and say when to come back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.budgets import (
    MICROS,
    UNLIMITED,
    Allowed,
    Budget,
    Limit,
    Meter,
    Refused,
    Usage,
    amount,
    cancel,
    duration,
    finish,
    left,
    refusal,
    start,
)

AT = datetime(2026, 11, 25, 22, 0, tzinfo=UTC)
TODAY = AT.date()
FRESH = Meter(Usage(TODAY))


def used(budget: Budget, calls: int, meter: Meter = FRESH, tool: str = "search") -> Meter:
    """The meter after so many allowed calls at one instant, all still running."""
    for _ in range(calls):
        meter, answer = start(budget, meter, tool, 0.0, AT)
        assert isinstance(answer, Allowed)
    return meter


def refused(budget: Budget, meter: Meter, tool: str = "search", now: float = 0.0, at: datetime = AT) -> Refused:
    after, answer = start(budget, meter, tool, now, at)
    assert isinstance(answer, Refused)
    assert (after.paid_at, after.running) == (meter.paid_at, meter.running)
    return answer


def test_without_a_budget_every_call_is_allowed_for_thirty_seconds() -> None:
    meter, answer = start(UNLIMITED, used(UNLIMITED, 500), "search", 0.0, AT)
    assert isinstance(answer, Allowed)
    assert answer.timeout_seconds == 30
    assert answer.remaining == left(UNLIMITED, meter, 0.0, AT)
    assert (answer.remaining.burst, answer.remaining.calls, answer.remaining.concurrent) == (None, None, None)
    assert meter.usage == Usage(TODAY, 501)


@pytest.mark.parametrize(
    ("budget", "calls", "limits", "retry_after"),
    [
        (Budget(10, 20), 20, (Limit.RATE,), 0.1),
        (Budget(0.1), 1, (Limit.RATE,), 10),
        (Budget(concurrency_limit=5), 5, (Limit.CONCURRENCY,), None),
        (Budget(daily_quota=3), 3, (Limit.QUOTA,), 7200),
        (Budget(cost_per_call={"*": 400_000}, daily_cost=MICROS), 2, (Limit.COST,), 7200),
        (Budget(1, 2, concurrency_limit=2), 2, (Limit.RATE, Limit.CONCURRENCY), 1),
        (Budget(1, 2, concurrency_limit=2, daily_quota=2), 2, (Limit.RATE, Limit.CONCURRENCY, Limit.QUOTA), 7200),
    ],
)
def test_a_call_over_a_limit_is_refused_with_the_time_to_come_back(
    budget: Budget, calls: int, limits: tuple[Limit, ...], retry_after: float | None
) -> None:
    answer = refused(budget, used(budget, calls))
    assert answer.limits == limits
    assert answer.retry_after == (None if retry_after is None else pytest.approx(retry_after))


def test_a_new_day_begins_at_midnight_of_utc_wherever_the_server_is() -> None:
    budget = Budget(daily_quota=3)
    meter = used(budget, 3)
    tokyo = timezone(timedelta(hours=9))
    assert refused(budget, meter, at=AT.astimezone(tokyo)).remaining.resets_at == datetime(2026, 11, 26, tzinfo=UTC)
    later, answer = start(budget, meter, "search", 0.0, (AT + timedelta(hours=2)).astimezone(tokyo))
    assert isinstance(answer, Allowed)
    assert later.usage == Usage(date(2026, 11, 26), 1)


def test_a_clock_that_is_set_back_over_midnight_gives_nothing_twice() -> None:
    budget = Budget(daily_quota=3)
    spent = Meter(Usage(date(2026, 11, 26), 3))
    answer = refused(budget, spent)
    assert answer.remaining.calls == 0
    assert answer.retry_after == pytest.approx(26 * 3600)
    # A clock that was years ahead must not stop the downstream for years.
    far, allowed = start(budget, Meter(Usage(date(2031, 1, 1), 3)), "search", 0.0, AT)
    assert isinstance(allowed, Allowed)
    assert far.usage == Usage(TODAY, 1)


def test_the_quota_survives_a_restart_and_the_rest_begins_anew() -> None:
    budget = Budget(1, 3, concurrency_limit=3, daily_quota=5)
    kept = used(budget, 3).usage
    restarted = used(budget, 2, Meter(kept))
    assert refused(budget, restarted).limits == (Limit.QUOTA,)


def test_each_tool_costs_what_it_says() -> None:
    budget = Budget(cost_per_call={"*": 1_000, "search": 600_000, "free": 0}, daily_cost=MICROS)
    meter = used(budget, 1)
    assert refused(budget, meter).limits == (Limit.COST,)
    meter = used(budget, 400, meter, "fetch")
    assert refused(budget, meter, "fetch").remaining.cost == 0
    assert used(budget, 5, meter, "free").usage.cost == MICROS


def test_a_call_that_was_not_sent_does_not_count() -> None:
    budget = Budget(1, 2, concurrency_limit=2, daily_quota=2, cost_per_call={"*": 5}, daily_cost=10)
    meter = used(budget, 1)
    more, answer = start(budget, meter, "search", 0.0, AT)
    assert isinstance(answer, Allowed)
    assert cancel(budget, more, answer) == meter
    next_day = evolve(more, usage=Usage(TODAY + timedelta(days=1), 7, 70))
    assert cancel(budget, next_day, answer).usage == next_day.usage


@pytest.mark.parametrize(
    ("budget", "calls", "sentence"),
    [
        (
            Budget(10, 1),
            1,
            "github takes 10 calls a second, and these are used; nothing was sent: call again in 0.1 s",
        ),
        (
            Budget(concurrency_limit=1),
            1,
            "github takes 1 call at once, and these are used; nothing was sent: call again when a running call has "
            "ended",
        ),
        (
            Budget(0.5, concurrency_limit=1),
            1,
            "github takes 0.5 calls a second and 1 call at once, and these are used; nothing was sent: call again in "
            "2 s, once a running call has ended",
        ),
        (
            Budget(1, daily_quota=1),
            1,
            "github takes 1 call a day, and these are used; nothing was sent: go on without it, and call again after "
            "2026-11-26 00:00 UTC, in 2 h",
        ),
        (
            Budget(cost_per_call={"*": 1_500_000}, daily_cost=1_500_000),
            1,
            "github takes calls for 1.5 a day, and these are used; nothing was sent: go on without it, and call again "
            "after 2026-11-26 00:00 UTC, in 2 h",
        ),
    ],
)
def test_the_model_is_told_why_and_when_to_come_back(budget: Budget, calls: int, sentence: str) -> None:
    assert refusal("github", budget, refused(budget, used(budget, calls))) == sentence


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0, "0.1 s"),
        (0.31, "0.4 s"),
        (0.95, "1 s"),
        (1, "1 s"),
        (61.2, "62 s"),
        (120, "2 min"),
        (7199, "2 h"),
        (12_000, "3 h 20 min"),
    ],
)
def test_a_wait_is_rounded_up(seconds: float, written: str) -> None:
    assert duration(seconds) == written


@pytest.mark.parametrize(("cost", "written"), [(0, "0"), (1, "0.000001"), (1_500_000, "1.5"), (20 * MICROS, "20")])
def test_a_cost_is_written_without_needless_zeros(cost: int, written: str) -> None:
    assert amount(cost) == written


@pytest.mark.parametrize(
    "values",
    [
        {"requests_per_second": 0},
        {"burst_size": 0},
        {"concurrency_limit": 0},
        {"timeout_seconds": 0},
        {"daily_quota": -1},
        {"cost_per_call": {"*": -1}},
        {"cost_per_call": {"*": 3}, "daily_cost": 2},
    ],
)
def test_limits_that_allow_nothing_are_refused(values: Mapping[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Budget(**values)  # type: ignore[arg-type]


class NaiveModel:
    """All allowed calls, and their times: each limit is computed from the whole history."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.calls: list[tuple[float, datetime, int]] = []
        self.since_restart = 0
        self.running = 0

    def tokens(self, now: float) -> float:
        """A bucket that fills with time."""
        rate, most = self.budget.requests_per_second or 0, self.budget.burst_size
        level, last = float(most), now
        for at, _, _ in self.calls[self.since_restart :]:
            level = min(most, level + (at - last) * rate if at > last else level) - 1
            last = at
        return min(most, level + (now - last) * rate)

    def limits(self, cost: int, now: float, at: datetime) -> set[Limit]:
        budget, today = self.budget, [each for _, day, each in self.calls if day.date() == at.date()]
        found = {
            Limit.RATE: budget.requests_per_second is not None and self.tokens(now) < 1,
            Limit.CONCURRENCY: budget.concurrency_limit is not None and self.running >= budget.concurrency_limit,
            Limit.QUOTA: budget.daily_quota > 0 and len(today) >= budget.daily_quota,
            Limit.COST: budget.daily_cost > 0 and cost > 0 and sum(today) + cost > budget.daily_cost,
        }
        return {limit for limit, reached in found.items() if reached}


BUDGETS = st.builds(
    Budget,
    st.none() | st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0]),
    st.integers(1, 4),
    st.none() | st.integers(1, 3),
    st.just(5.0),
    st.integers(0, 6),
    st.just({"*": 1, "dear": 3, "free": 0}),
    st.sampled_from([0, 3, 7]),
)
# Times are whole eighths, which floats hold exactly.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 40).map(lambda eighths: eighths / 8) | st.sampled_from([7200.0])),
        st.tuples(st.just("call"), st.sampled_from(["search", "dear", "free"])),
        st.tuples(st.just("finish"), st.none()),
        st.tuples(st.just("cancel"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=60,
)


@given(BUDGETS, STEPS)
def test_budgets_answer_as_a_naive_model_does(budget: Budget, steps: list[tuple[str, object]]) -> None:
    model, meter, now, at = NaiveModel(budget), FRESH, 1_000.0, AT
    last: Allowed | None = None
    for what, value in steps:
        if what == "wait":
            assert isinstance(value, float)
            now, at = now + value, at + timedelta(seconds=value)
        elif what == "finish" and model.running:
            model.running -= 1
            meter = finish(meter)
        elif what == "restart":
            model.since_restart, model.running = len(model.calls), 0
            meter, last = Meter(meter.usage), None
        elif what == "cancel" and last is not None and model.running:
            # Only the newest call, and at once: a bucket that has overflowed since cannot give back exactly.
            if model.calls[-1][0] == now:
                model.calls.pop()
                model.running -= 1
                meter = cancel(budget, meter, last)
            last = None
        elif what == "call":
            assert isinstance(value, str)
            cost = budget.cost_of(value)
            expected = model.limits(cost, now, at)
            before = left(budget, meter, now, at)
            meter, answer = start(budget, meter, value, now, at)
            if isinstance(answer, Allowed):
                assert not expected
                last = answer
                model.calls.append((now, at, cost))
                model.running += 1
            else:
                assert set(answer.limits) == expected
                assert answer.remaining == before
                if answer.retry_after is None:
                    assert expected == {Limit.CONCURRENCY}
                else:
                    later = timedelta(seconds=answer.retry_after)
                    waited = start(budget, meter, value, now + answer.retry_after, at + later)[1]
                    assert isinstance(waited, Allowed) or waited.limits == (Limit.CONCURRENCY,)
        assert meter.running == model.running
