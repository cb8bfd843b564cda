"""What a soak's samples say: what grew while the load was constant, and what stayed behind when it was over."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from tests.soak.line import Line, fit
from tests.soak.sample import Sample

MEMORY = ("rss", "pss")
COUNTS = ("actors", "tasks", "threads", "descriptors", "children")
#: The most that memory may grow, as a share.
MOST = 0.02
#: What threads and descriptors may differ by at two moments: idle worker threads end after ten seconds, and readers of
#: the database keep up to four connections (of a file, its log and its index) once they were needed.
SLACK = {"actors": 0, "tasks": 2, "threads": 6, "descriptors": 14, "children": 0}


@frozen
class Verdict:
    """`lines` runs through the samples after the warm-up, by what was measured; `faults` are sentences."""

    lines: dict[str, Line]
    faults: tuple[str, ...]


def verdict(before: Sample, samples: Sequence[Sample], after: Sample, *, warm: float, kept: int) -> Verdict:
    """Judge the samples that were taken `warm` seconds after the first, or later; there must be two.

    So many things may be `kept` when all have left, each with a few actors, tasks and descriptors: a watch on the
    policy of each workspace, and the sessions of agents over HTTP, whose leaving nobody hears for half an hour.
    """
    judged = [sample for sample in samples if sample.at - samples[0].at >= warm]
    times = [sample.at for sample in judged]
    lines = {name: fit(times, [getattr(sample, name) for sample in judged]) for name in (*MEMORY, *COUNTS)}
    faults = [
        f"{name} grew by {100 * lines[name].growth:.2f} % at constant load, and may by {100 * MOST:g} %"
        for name in MEMORY
        if lines[name].growth > MOST
    ]
    for name in COUNTS:
        rise = lines[name].last - lines[name].first
        if rise > max(3.0, 0.1 * lines[name].first):
            faults.append(f"{name} rose by {rise:.1f} at constant load, from {lines[name].first:.1f}")
        allowed = getattr(before, name) + SLACK[name] + (0 if name == "children" else 3 * kept)
        if getattr(after, name) > allowed:
            stood = f"{getattr(before, name)} before anybody came and {getattr(after, name)} when all had left"
            faults.append(f"{name} leaked: {stood}")
    return Verdict(lines, tuple(faults))
