"""How many proposals a second the store's writer takes from 64 askers, and how long one asker waits.

python -m tests.bench.store_bench
"""

from __future__ import annotations

import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import trio

from actors import ChildSpec, Name, System, ask
from intercom.store import audit, sessions
from intercom.store.database import Database, OpenedDatabase
from intercom.store.requests import approvals
from intercom.store.writer import Writer
from intercom.store.writer_messages import Transact
from tests.store import cases

ROUNDS = 5
ASKERS = 64
EACH = 40


class Commits:
    """Counts what the writer's connection commits."""

    def __init__(self) -> None:
        self.number = 0

    def watch(self, opened: OpenedDatabase) -> None:
        opened.db.conn.set_trace_callback(self.see)

    def see(self, statement: str) -> None:
        self.number += statement == "commit"


def propose(db: Database, id: str) -> None:
    """One proposal with one file, and its audit entry."""
    approvals.insert(db, cases.approval(id))
    audit.record(db, cases.NOW, "proposed", "s1", "agent", id)


async def many(store: Name, asker: int) -> None:
    for number in range(EACH):
        await ask(store, Transact(partial(propose, id=f"{asker}/{number}")))


async def alone(store: Name) -> list[float]:
    took = []
    for number in range(200):
        begun = time.perf_counter()
        await ask(store, Transact(partial(propose, id=f"alone/{number}")))
        took.append((time.perf_counter() - begun) * 1000)
    return took


async def one_round() -> tuple[float, int, list[float]]:
    """Proposals a second from all askers at once, in how many commits, and one asker's waits in milliseconds."""
    commits = Commits()
    took, number, waits = 0.0, 0, []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "intercom.db"
        async with System([ChildSpec("store", lambda: Writer(path, on_opened=commits.watch))]) as system:
            store = system.named("store")
            await ask(store, Transact(lambda db: sessions.insert(db, cases.session("s1"))))
            before, begun = commits.number, time.perf_counter()
            async with trio.open_nursery() as nursery:
                for asker in range(ASKERS):
                    nursery.start_soon(many, store, asker)
            took, number = time.perf_counter() - begun, commits.number - before
            waits = await alone(store)
    return ASKERS * EACH / took, number, waits


async def main() -> None:
    rounds = [await one_round() for _ in range(ROUNDS)]
    rate, commits, _ = max(rounds, key=lambda found: found[0])
    waits = min((found[2] for found in rounds), key=statistics.median)
    p95 = statistics.quantiles(waits, n=20)[18]
    print(f"{ASKERS} askers: {rate:,.0f} proposals/s, {ASKERS * EACH} in {commits} commits (best of {ROUNDS})")
    print(f"one asker: p50 {statistics.median(waits):.2f} ms, p95 {p95:.2f} ms")


if __name__ == "__main__":
    trio.run(main)
