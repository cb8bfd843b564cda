"""What a soak's samples say: what grew while the load was constant, and what stayed behind when it was over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import linear_regression

from attrs import frozen

from tests.soak.sample import Sample

MEMORY = ("rss", "pss")
COUNTS = ("actors", "tasks", "threads", "descriptors", "children")
#: The most that memory may grow, as a share.
MOST = 0.02
#: What threads and descriptors may differ by at two moments: idle worker threads end after ten seconds, and readers of
#: the database keep up to four connections (of a file, its log and its index) once they were needed.
SLACK = {"actors": 0, "tasks": 2, "threads": 6, "descriptors": 14, "children": 0}
#: What the watch on a workspace's policy takes, as long as the server lives: its actor, with two tasks that wait for
#: what happens; a worker thread that waits in the library for notices, and the library's own, which reads them from the
#: system by three descriptors.
WATCH = {"actors": 1, "tasks": 3, "threads": 2, "descriptors": 3, "children": 0}
WATCH_KINDS = {"PolicyWatcher": 1}
#: What the session of an agent takes that counts as here: its actor and its stall detector, under a supervisor.
AGENT = {"actors": 3, "tasks": 3, "threads": 0, "descriptors": 0, "children": 0}
AGENT_KINDS = {"Supervisor": 1, "SessionActor": 1, "StallDetector": 1}
#: How much has to happen each minute for a load to be one, far below what does.
LOAD = {"verdicts delivered": 60, "agents started by people": 2, "verdicts by taps in Slack": 10}


@frozen
class Line:
    """The straight line through measurements: its heights at the first and at the last."""

    first: float
    last: float

    @staticmethod
    def through(times: Sequence[float], values: Sequence[float]) -> Line:
        slope, start = linear_regression(times, values)
        return Line(start + slope * times[0], start + slope * times[-1])

    @property
    def growth(self) -> float:
        """How much it rises from end to end, as a share of where it begins (0.02: two percent)."""
        return (self.last - self.first) / self.first if self.first else 0.0


@frozen
class Kept:
    """What may stay when all have left: a watch on the policy of each workspace, and the sessions of so many guests:
    agents that came over HTTP without a session of HTTP's own, whose leaving nobody hears for half an hour."""

    watches: int = 0
    agents: int = 0

    def of(self, name: str) -> int:
        """How much of this they take."""
        return WATCH[name] * self.watches + AGENT[name] * self.agents

    def kinds(self) -> Counter[str]:
        """The actors that they are, by class."""
        found: Counter[str] = Counter()
        for kinds, count in ((WATCH_KINDS, self.watches), (AGENT_KINDS, self.agents)):
            found.update({kind: each * count for kind, each in kinds.items()})
        return found


@frozen
class Verdict:
    """`lines` runs through the samples after the warm-up, by what was measured; `faults` are sentences."""

    lines: dict[str, Line]
    faults: tuple[str, ...]


def verdict(before: Sample, samples: Sequence[Sample], after: Sample, *, warm: float, kept: Kept) -> Verdict:
    """Judge the samples that were taken `warm` seconds after the first, or later; there must be two."""
    judged = [sample for sample in samples if sample.at - samples[0].at >= warm]
    times = [sample.at for sample in judged]
    lines = {name: Line.through(times, [getattr(sample, name) for sample in judged]) for name in (*MEMORY, *COUNTS)}
    faults = [
        f"{name} grew by {100 * lines[name].growth:.2f} % at constant load, and may by {100 * MOST:g} %"
        for name in MEMORY
        if lines[name].growth > MOST
    ]
    for name in COUNTS:
        rise = lines[name].last - lines[name].first
        if rise > max(3.0, 0.1 * lines[name].first):
            faults.append(f"{name} rose by {rise:.1f} at constant load, from {lines[name].first:.1f}")
    return Verdict(lines, (*faults, *left(before, after, kept)))


def left(before: Sample, after: Sample, kept: Kept) -> list[str]:
    """What there is too much of when all have left, in sentences."""
    return [
        f"{name} leaked: {getattr(before, name)} before anybody came and {getattr(after, name)} when all had left"
        for name in COUNTS
        if getattr(after, name) > getattr(before, name) + SLACK[name] + kept.of(name)
    ]


def stayed(before: Mapping[str, int], after: Mapping[str, int], kept: Kept) -> list[str]:
    """The same of the actors of each class."""
    may = kept.kinds()
    return [
        f"{kind} leaked: {before.get(kind, 0)} before anybody came and {count} when all had left; {may[kind]} may stay"
        for kind, count in sorted(after.items())
        if count > before.get(kind, 0) + may[kind]
    ]


def idled(counts: Mapping[str, int], minutes: float) -> list[str]:
    """What there was too little of in so many minutes for the rest to say anything, in sentences."""
    return [
        f"there was next to no load: {counts.get(what, 0)} {what} in {minutes:g} min, and less than {least} a minute"
        for what, least in LOAD.items()
        if counts.get(what, 0) < least * minutes
    ]
