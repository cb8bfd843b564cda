"""Cards by the hundred through every fault that Slack and the network have: none lost, none twice, none shown wrong.

The long run is `tox -e chaos`; `INTERCOM_STORM_SEED` and `INTERCOM_STORM_CARDS` make it another one.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import trio
import trio.testing

from tests.operators.slack.live.storm import Storm
from tests.slack_standin import serve
from tests.support.figures import Record, tell
from tests.support.task_tree import within

LONG = os.environ.get("INTERCOM_CHAOS") == "long"
CARDS = int(os.environ.get("INTERCOM_STORM_CARDS", "1000" if LONG else "30"))
SEED = int(os.environ.get("INTERCOM_STORM_SEED", "1"))
#: Real seconds after which it is stuck: far more than it takes.
STUCK = 3600 if LONG else 300


def rate() -> float:
    """How much faster than life it goes. The disk and the threads are real: on a machine that is slow or busy, Slack's
    patience would pass before they have done anything, a thousand times over. Too fast takes longer, too: at twenty
    times life's speed, most of the work was to repeat what was given up."""
    began = time.perf_counter()
    for _ in range(1_000_000):
        pass
    return min(20.0, 0.2 / (time.perf_counter() - began)) if LONG else 10.0


def test_cards_come_through_a_storm_of_faults(record_property: Record) -> None:
    clock = trio.testing.MockClock(rate=rate())

    async def weather() -> Storm:
        with within(STUCK), tempfile.TemporaryDirectory() as directory:
            async with serve(redeliver=(0, 10, 30)) as slack:
                storm = Storm(slack, Path(directory), clock, SEED, CARDS)
                await storm.run()
                return storm

    storm = trio.run(weather, clock=clock)
    tell(record_property, f"Slack in a storm, seed {SEED}", storm.counts)
    assert storm.faults == []
    assert storm.counts["cards"] == CARDS == len(storm.answers)
