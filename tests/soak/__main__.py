"""Run the soak: `python -m tests.soak [--minutes N]`; prints a sample every ten seconds, and at the end what grew.

The load is that of the chaos runs (`tests/chaos`), at a steady pace and with nothing killed: agents behind shims and
over HTTP, people at the local socket and in Slack, sessions that are started and end. Their judge has its say, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

import psutil

from intercom.model.errors import IntercomError
from intercom.operators.ctl.client import NoServer, Refusal
from tests.chaos.judge import judge
from tests.chaos.plans import soak_run
from tests.chaos.rig import Rig, rig
from tests.soak.sample import Sample, kinds, take
from tests.soak.verdict import Kept, Verdict, idled, left, stayed, verdict

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
    with rig(soak_run("1")) as home:
        home.open_service()
        pid = home.server()
        before, kinds_before = _settled(home, pid)
        _say("before", before)
        home.start()
        samples = _samples(home, pid, seconds)
        home.stop_agents()
        kept = _kept(home)
        after, kinds_after = _rested(home, pid, before, kinds_before, kept)
        _say("after", after)
        home.finish()
        report = judge(home)
    found = verdict(before, samples, after, warm=min(WARM, seconds / 4), kept=kept)
    _print(found, dict(report.counts))
    print(f"actors that stayed: {dict((kinds_after - kinds_before).most_common())}")
    faults = [*report.faults, *found.faults, *stayed(kinds_before, kinds_after, kept)]
    faults += idled(report.counts, seconds / 60)
    for fault in faults:
        print(f"FAULT: {fault}")
    return 1 if faults else 0


def _samples(home: Rig, pid: int, seconds: float) -> list[Sample]:
    samples: list[Sample] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(EVERY)
        home.look()
        samples.append(take(pid, home.places))
        _say(f"{len(samples) * EVERY:5.0f} s", samples[-1])
    return samples


def _settled(home: Rig, pid: int) -> tuple[Sample, Counter[str]]:
    """The server before anybody has come, as soon as it answers and all its parts are there; the classes of its
    actors."""
    deadline, there = time.monotonic() + 30, None
    while True:
        try:
            now, before = kinds(home.places), there
            if now == before or time.monotonic() > deadline:
                return take(pid, home.places), now
            there = now
        except (IntercomError, NoServer, Refusal, psutil.Error):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.5)


def _rested(home: Rig, pid: int, before: Sample, kinds_before: Counter[str], kept: Kept) -> tuple[Sample, Counter[str]]:
    """The same when everybody has left and it has tidied up, or has had the time to."""
    deadline = time.monotonic() + REST
    while True:
        now, of_kinds = take(pid, home.places), kinds(home.places)
        if time.monotonic() > deadline or not (left(before, now, kept) or stayed(kinds_before, of_kinds, kept)):
            return now, of_kinds
        time.sleep(1)


def _kept(home: Rig) -> Kept:
    """The workspaces, and the agents over HTTP in the era without its sessions: in the other a client ends its own."""
    agents = [agent for agent in home.agents if agent["over_http"] and agent["mode"] == "auto"]
    return Kept(len(home.workspaces()), len(agents))


def _say(when: str, sample: Sample) -> None:
    print(f"{when:>8}: {sample.told()}", flush=True)


def _print(found: Verdict, counts: dict[str, int]) -> None:
    for what in sorted(counts):
        print(f"{counts[what]:9,}  {what}")
    for name, line in found.lines.items():
        print(f"{name:>12}: {line.first:14,.1f} -> {line.last:14,.1f}  {100 * line.growth:+6.2f} %")


if __name__ == "__main__":
    sys.exit(main())
