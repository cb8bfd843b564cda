"""Budgets: how many calls a downstream takes at once, in a stretch of time and in a day, and what they may cost. Pure.

`start` counts a call or refuses it, and says what remains. A `Meter` is what one downstream has used. Only its `usage`
outlives the server: the store keeps one row for each day. Days are those of UTC.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Final

from attrs import evolve, field, frozen
from attrs.validators import deep_mapping, instance_of, optional

from intercom.model.rate_limit import pay, remaining
from intercom.model.setting_checks import SECONDS, between

#: The time limit of a call (seconds) if none is configured.
TIMEOUT_SECONDS: Final = 30.0
#: Costs are whole millionths of the unit in which people write them, so that sums are exact.
MICROS: Final = 1_000_000
#: The key of `cost_per_call` for all tools that it does not name.
ANY_TOOL: Final = "*"
_MOST: Final = 10**15


@frozen
class Budget:
    """The limits of one downstream. Without a rate, calls are not spread over time; 0 means any number in a day.

    `cost_per_call` maps the names of tools, or `*`, to what one call costs in millionths. So is `daily_cost`.
    """

    requests_per_second: float | None = field(default=None, validator=optional(between(0, 1e6, above=True)))
    burst_size: int = field(default=1, validator=between(1, 1_000_000))
    concurrency_limit: int | None = field(default=None, validator=optional(between(1, 100_000)))
    timeout_seconds: float = field(default=TIMEOUT_SECONDS, validator=SECONDS)
    daily_quota: int = field(default=0, validator=between(0, _MOST))
    cost_per_call: Mapping[str, int] = field(factory=dict, validator=deep_mapping(instance_of(str), between(0, _MOST)))
    daily_cost: int = field(default=0, validator=between(0, _MOST))

    def __attrs_post_init__(self) -> None:
        dearest = max(self.cost_per_call.values(), default=0)
        if self.daily_cost and dearest > self.daily_cost:
            raise ValueError(f"daily_cost must be at least the cost of one call, {amount(dearest)}")

    def cost_of(self, tool: str) -> int:
        """Return what a call of this tool costs, in millionths."""
        return self.cost_per_call.get(tool, self.cost_per_call.get(ANY_TOOL, 0))

    @property
    def per_seconds(self) -> float:
        """The seconds in which a used-up burst is available again. There must be a rate."""
        assert self.requests_per_second is not None
        return self.burst_size / self.requests_per_second


#: The limits of a downstream whose file has no budget: only the time limit of a call.
UNLIMITED: Final = Budget()


@frozen
class Usage:
    """What a downstream used on one day: calls, and their cost in millionths. The store keeps it."""

    day: date
    calls: int = 0
    cost: int = 0


@frozen
class Meter:
    """What a downstream has used: today, of its rate (`paid_at`, see `rate_limit.pay`), and the calls that run."""

    usage: Usage
    paid_at: float = -math.inf
    running: int = 0


class Limit(StrEnum):
    """The limit that refuses a call."""

    RATE = "rate"
    CONCURRENCY = "concurrency"
    QUOTA = "quota"
    COST = "cost"


@frozen
class Remaining:
    """What may still be used; None where there is no limit. The day's limits start again at `resets_at`."""

    burst: int | None
    concurrent: int | None
    calls: int | None
    cost: int | None
    resets_at: datetime


@frozen
class Allowed:
    """The call may be sent, and is counted. It ends after `timeout_seconds` at the latest."""

    timeout_seconds: float
    cost: int
    day: date
    remaining: Remaining


@frozen
class Refused:
    """The call must not be sent, and is not counted.

    After `retry_after` seconds all of these limits allow it, if no other call comes first. It is None if only the
    number of running calls is in the way: one of them must end.
    """

    limits: tuple[Limit, ...]
    retry_after: float | None
    remaining: Remaining


def start(budget: Budget, meter: Meter, tool: str, now: float, at: datetime) -> tuple[Meter, Allowed | Refused]:
    """Count a call of `tool`, or refuse it. `now` is seconds on a monotonic clock, `at` the same instant, aware.

    Call `finish` when an allowed call has ended in any way, or `cancel` if it was not sent after all.
    """
    usage, cost = _today(meter.usage, at), budget.cost_of(tool)
    waits: dict[Limit, float] = {}
    paid_at = meter.paid_at
    if budget.requests_per_second is not None:
        paid_at, wait = pay(paid_at, now, budget.burst_size, budget.per_seconds)
        if wait:
            waits[Limit.RATE] = wait
    if budget.concurrency_limit is not None and meter.running >= budget.concurrency_limit:
        waits[Limit.CONCURRENCY] = 0.0
    if budget.daily_quota and usage.calls >= budget.daily_quota:
        waits[Limit.QUOTA] = (_resets_at(usage) - at).total_seconds()
    if budget.daily_cost and cost and usage.cost + cost > budget.daily_cost:
        waits[Limit.COST] = (_resets_at(usage) - at).total_seconds()
    if waits:
        meter = Meter(usage, meter.paid_at, meter.running)
        return meter, Refused(tuple(waits), max(waits.values()) or None, left(budget, meter, now, at))
    counted = Meter(Usage(usage.day, usage.calls + 1, usage.cost + cost), paid_at, meter.running + 1)
    return counted, Allowed(budget.timeout_seconds, cost, usage.day, left(budget, counted, now, at))


def finish(meter: Meter) -> Meter:
    """Count the end of an allowed call."""
    return Meter(meter.usage, meter.paid_at, max(0, meter.running - 1))


def cancel(budget: Budget, meter: Meter, allowed: Allowed) -> Meter:
    """Do not count an allowed call that was never sent, for example because a person rejected it."""
    usage, paid_at = meter.usage, meter.paid_at
    if usage.day == allowed.day:
        usage = evolve(usage, calls=max(0, usage.calls - 1), cost=max(0, usage.cost - allowed.cost))
    if budget.requests_per_second is not None:
        paid_at -= 1 / budget.requests_per_second
    return finish(evolve(meter, usage=usage, paid_at=paid_at))


def left(budget: Budget, meter: Meter, now: float, at: datetime) -> Remaining:
    """Return what may still be used at this instant. For `now` and `at` see `start`."""
    usage = _today(meter.usage, at)
    rate, concurrent = budget.requests_per_second, budget.concurrency_limit
    return Remaining(
        None if rate is None else remaining(meter.paid_at, now, budget.burst_size, budget.per_seconds),
        None if concurrent is None else max(0, concurrent - meter.running),
        max(0, budget.daily_quota - usage.calls) if budget.daily_quota else None,
        max(0, budget.daily_cost - usage.cost) if budget.daily_cost else None,
        _resets_at(usage),
    )


def refusal(name: str, budget: Budget, refused: Refused) -> str:
    """Return the sentence for the model whose call of downstream `name` was refused: why, and when to come back."""
    reasons = {
        Limit.RATE: f"{_calls(budget.requests_per_second)} a second",
        Limit.CONCURRENCY: f"{_calls(budget.concurrency_limit)} at once",
        Limit.QUOTA: f"{_calls(budget.daily_quota)} a day",
        Limit.COST: f"calls for {amount(budget.daily_cost)} a day",
    }
    # If the day's limit is reached, it does not help that the others' are soon free.
    daily = [limit for limit in refused.limits if limit in (Limit.QUOTA, Limit.COST)]
    what = f"{name} takes {' and '.join(reasons[limit] for limit in daily or refused.limits)}, and these are used"
    if daily:
        resets = f"{refused.remaining.resets_at:%Y-%m-%d %H:%M} UTC, in {duration(refused.retry_after or 0)}"
        return f"{what}; nothing was sent: go on without it, and call again after {resets}"
    if refused.retry_after is None:
        return f"{what}; nothing was sent: call again when a running call has ended"
    ended = ", once a running call has ended" if Limit.CONCURRENCY in refused.limits else ""
    return f"{what}; nothing was sent: call again in {duration(refused.retry_after)}{ended}"


def _calls(number: float | None) -> str:
    return "1 call" if number == 1 else f"{number or 0:.10g} calls"


def amount(millionths: int) -> str:
    """Write a cost in the unit in which people write it, without needless zeros."""
    whole, part = divmod(millionths, MICROS)
    return f"{whole}.{part:06}".rstrip("0").rstrip(".")


def duration(seconds: float) -> str:
    """Write a wait for a sentence, rounded up: "0.4 s", "12 s", "5 min", "3 h 20 min"."""
    if seconds < 1:
        return f"{max(1, math.ceil(seconds * 10 - 1e-6)) / 10:g} s"
    whole = math.ceil(seconds - 1e-6)
    if whole < 120:
        return f"{whole} s"
    minutes = math.ceil(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def _today(usage: Usage, at: datetime) -> Usage:
    """Begin a new day. If the clock was set back over midnight, the later day goes on, so nothing is used twice."""
    today = at.astimezone(UTC).date()
    return usage if today <= usage.day <= today + timedelta(days=1) else Usage(today)


def _resets_at(usage: Usage) -> datetime:
    return datetime.combine(usage.day + timedelta(days=1), time(), UTC)
