"""Run the soak: `python -m tests.soak [--minutes N]`; prints a sample every ten seconds, and at the end what grew.

The load is that of the chaos runs (`tests/chaos`), at a steady pace and with nothing killed: agents behind shims and
over HTTP, people at the local socket and in Slack, sessions that are started and end. Their judge has its say, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import psutil

from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal
from tests.chaos.judge import judge
from tests.chaos.plans import soak_run
from tests.chaos.rig import Rig, rig
from tests.soak.sample import Sample, kinds, take
from tests.soak.verdict import COUNTS, Verdict, verdict

#: Seconds between samples; seconds at the beginning in which a server may still fill its caches.
EVERY, WARM = 10.0, 300.0
#: Seconds after the load until the actors of sessions that were left have been stopped.
REST = 150.0


def main() -> int:
    """Returns 0 when nothing grew and nothing was lost, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    minutes = float(os.environ.get("INTERCOM_SOAK_MINUTES", "30"))
    parser.add_argument("--minutes", type=float, default=minutes, help=f"how long the load lasts ({minutes:g})")
    seconds = parser.parse_args().minutes * 60
    with rig(soak_run("1")) as house:
        house.open_service()
        pid = house.server()
        before = _settled(house, pid)
        _say("before", before)
        house.start()
        samples = _samples(house, pid, seconds)
        house.stop_agents()
        after = _rested(house, pid, before)
        _say("after", after)
        stayed = kinds(house.places)
        kept = _kept(house)
        house.finish()
        report = judge(house)
    found = verdict(before, samples, after, warm=min(WARM, seconds / 4), kept=kept)
    _print(found, dict(report.counts))
    print(f"actors that stayed: {dict(stayed.most_common())}")
    for fault in [*report.faults, *found.faults]:
        print(f"FAULT: {fault}")
    return 1 if report.faults or found.faults else 0


def _samples(house: Rig, pid: int, seconds: float) -> list[Sample]:
    samples: list[Sample] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(EVERY)
        house.look()
        samples.append(take(pid, house.places))
        _say(f"{len(samples) * EVERY:5.0f} s", samples[-1])
    return samples


def _settled(house: Rig, pid: int) -> Sample:
    """The server before anybody has come, as soon as it answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return take(pid, house.places)
        except (IntercomError, NoServer, Refusal, psutil.Error):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _rested(house: Rig, pid: int, before: Sample) -> Sample:
    """The server when everybody has left and it has tidied up, or has had the time to."""
    deadline, left = time.monotonic() + REST, 3 * _kept(house)
    while True:
        now = take(pid, house.places)
        if time.monotonic() > deadline or all(getattr(now, name) <= getattr(before, name) + left for name in COUNTS):
            return now
        time.sleep(1)


def _kept(house: Rig) -> int:
    """How many workspaces there are, and agents over HTTP: each may leave something for half an hour."""
    return len(house.workspaces()) + sum(agent["over_http"] for agent in house.agents)


def _say(when: str, sample: Sample) -> None:
    print(f"{when:>8}: {sample.told()}", flush=True)


def _print(found: Verdict, counts: dict[str, int]) -> None:
    for what in sorted(counts):
        print(f"{counts[what]:9,}  {what}")
    for name, line in found.lines.items():
        print(f"{name:>12}: {line.first:14,.1f} -> {line.last:14,.1f}  {100 * line.growth:+6.2f} %")


if __name__ == "__main__":
    sys.exit(main())
