"""What a server holds at one moment: memory, actors, tasks, threads, descriptors, processes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import psutil
from attrs import asdict, frozen

from intercom.local.places import Places
from intercom.operators.ctl.client import request

MEBIBYTE = 2**20


@frozen
class Sample:
    """`at` is in seconds of `time.monotonic`; `rss` and `pss` are in bytes, of the server's own process."""

    at: float
    rss: int
    pss: int
    actors: int
    tasks: int
    threads: int
    descriptors: int
    children: int

    def told(self) -> str:
        """One line of it."""
        counts = {name: value for name, value in asdict(self).items() if name not in ("at", "rss", "pss")}
        memory = f"rss {self.rss / MEBIBYTE:7.1f} MiB, pss {self.pss / MEBIBYTE:7.1f} MiB"
        return ", ".join([memory, *(f"{name} {value}" for name, value in counts.items())])


def take(pid: int, where: Places) -> Sample:
    """Measure the server with this pid. Raises IntercomError when it does not answer, psutil.Error when it is gone."""
    process = psutil.Process(pid)
    told = request(where, "tree", {}, patience=10)
    memory = process.memory_full_info()
    return Sample(
        at=time.monotonic(),
        rss=memory.rss,
        pss=memory.pss,
        actors=_count(told["tree"]),
        tasks=told["tasks"],
        threads=process.num_threads(),
        descriptors=process.num_fds(),
        children=len(process.children(recursive=True)),
    )


def kinds(where: Places) -> Counter[str]:
    """How many actors of each class live."""
    found: Counter[str] = Counter()
    nodes = [request(where, "tree", {}, patience=10)["tree"]]
    while nodes:
        node = nodes.pop()
        found[node["class_name"]] += node["state"] != "down"
        nodes += node["children"]
    return found


def _count(node: dict[str, Any]) -> int:
    """The actors that live in this part of the tree."""
    return (node["state"] != "down") + sum(_count(child) for child in node["children"])
