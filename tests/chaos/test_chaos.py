"""Kill everything, lose nothing.

Agents (real MCP clients behind real shims) work, operators answer at random, and meanwhile the server is killed at
every crash point and at random instants, actors are crashed, shims are killed. Then the judge compares what everybody
was told. `INTERCOM_CHAOS=long` makes it twenty agents and hundreds of kills; `INTERCOM_CHAOS_SEED` chooses other dice.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.chaos.judge import Report, judge
from tests.chaos.plans import long_run, short_run
from tests.chaos.rig import Plan, rig

SEED = os.environ.get("INTERCOM_CHAOS_SEED", "1")


def run(plan: Plan) -> Report:
    """Run a plan to its end and judge it."""
    with rig(plan) as house:
        house.start()
        house.strike_all()
        house.kill_servers()
        house.kill_shims()
        house.finish()
        assert house.struck() == list(plan.faults), "every fault came true, in order"
        return judge(house)


def table(counts: Counter[str]) -> str:
    """The counts, one a line."""
    return "\n".join(f"{counts[what]:7d}  {what}" for what in sorted(counts))


def test_whatever_falls_nothing_is_lost_and_nothing_done_twice(capsys: pytest.CaptureFixture[str]) -> None:
    plan = long_run(SEED) if os.environ.get("INTERCOM_CHAOS") == "long" else short_run(SEED)
    report = run(plan)
    with capsys.disabled():
        print(f"\nchaos, seed {SEED}:\n{table(report.counts)}")
    assert not report.faults, "\n".join(report.faults[:20])
    assert report.counts["verdicts delivered"] > 50, "there was something to lose"
    assert report.counts["files written"] > 10
