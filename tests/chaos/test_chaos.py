"""Kill everything, lose nothing.

Agents (real MCP clients behind real shims) work, operators answer at random, and meanwhile the server is killed at
every crash point and at random instants, actors are crashed, shims are killed. Then the judge compares what everybody
was told. `INTERCOM_CHAOS=long` makes it twenty agents and hundreds of kills; `INTERCOM_CHAOS_SEED` chooses other dice.
"""

from __future__ import annotations

import os
from contextlib import nullcontext

from tests.chaos.judge import Report, judge
from tests.chaos.plans import long_run, long_service_run, short_run, short_service_run
from tests.chaos.rig import Plan, rig
from tests.support import server_forks
from tests.support.figures import Record, tell

LONG = os.environ.get("INTERCOM_CHAOS") == "long"
SEED = os.environ.get("INTERCOM_CHAOS_SEED", "1")
#: How many decisions there are at least, of which agents wait for most.
DECIDED = 80 if LONG else 40


def run(plan: Plan) -> Report:
    """Run a plan to its end and judge it."""
    with server_forks.real_starts() if LONG else nullcontext(), rig(plan) as home:
        home.start()
        home.strike_all()
        home.kill_servers()
        home.kill_shims()
        home.until_decided(DECIDED)
        if plan.service:
            home.until_decided(3, by="slack/")
        home.finish()
        assert home.struck() == list(plan.faults), "every fault came true, in order"
        return judge(home)


def test_whatever_falls_nothing_is_lost_and_nothing_done_twice(record_property: Record) -> None:
    plan = long_run(SEED) if LONG else short_run(SEED)
    report = run(plan)
    tell(record_property, f"chaos, seed {SEED}", report.counts)
    assert not report.faults, "\n".join(report.faults[:20])
    assert report.counts["verdicts delivered"] > DECIDED / 2, "there was something to lose"
    assert report.counts["files written"] > DECIDED / 8


def test_nor_with_everything_that_a_service_has_at_once(record_property: Record) -> None:
    plan = long_service_run(SEED) if LONG else short_service_run(SEED)
    report = run(plan)
    tell(record_property, f"chaos with everything at once, seed {SEED}", report.counts)
    assert not report.faults, "\n".join(report.faults[:20])
    assert report.counts["verdicts delivered"] > DECIDED / 2, "there was something to lose"
    assert report.counts["verdicts by taps in Slack"] > 0, "people in Slack had a part in it"
