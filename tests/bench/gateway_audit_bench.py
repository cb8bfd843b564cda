"""What recording costs a call of the gateway: in the journal on the caller's task, and in the audit log by the group.

A call's own time, of which that is a share, is measured in the same run: one call of a bare server through the gateway.

python -m tests.bench.gateway_audit_bench [calls]
"""

from __future__ import annotations

import random
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import trio
from attrs import evolve

from actors import ChildSpec, System
from intercom.gateway.call_journal import Journal, arguments_key
from intercom.gateway.call_log import RECORDER, InvocationLog
from intercom.gateway.messages import InvocationStatus
from intercom.store import audit_chain
from intercom.store.store_and_reader import Store
from intercom.store.writer import Writer
from tests.bench.gateway_bench import seconds_of_a_call

CALLS = 100_000
#: How many calls run at once.
AGENTS = 16
#: How many single-byte edits of the log are looked for.
EDITS = 1_000
#: The entries of the smaller log in which that is done: each edit is one whole verification.
EDITED = 200

CALLER = {"run_id": "3f6a2c1e-0a6c-4a75-9d0e-6c1a2a3b4c5d", "agent_id": "claude-code 7", "agent_role": "reviewer"}
ARGUMENTS = {"owner": "octocat", "repo": "hello-world", "path": "src/main.py", "page": 3, "per_page": 50}


async def record(directory: Path, calls: int) -> tuple[float, float, list[float]]:
    """Record so many calls, and return seconds of CPU, seconds of wall time, and the seconds of each on its task."""
    path = directory / "intercom.db"
    system = System([ChildSpec("store", lambda: Writer(path)), ChildSpec(RECORDER, lambda: recorder())])
    key = arguments_key(directory / "args.key")
    invocations = InvocationLog(Journal(directory / "gateway-calls.jsonl"), key, Store(system.named("store")))
    recorder = invocations.children()[0].start
    spent: list[float] = []
    async with system:
        await invocations.ready()

        async def agent(number: int) -> None:
            for count in range(calls // AGENTS):
                name = f"{number}/{count}"
                await invocations.ready()
                began = time.perf_counter()
                new = invocations.new(**CALLER, tool="github", method="get_file", arguments=ARGUMENTS, call=name)
                invocations.begin(new)
                between = time.perf_counter()
                await trio.lowlevel.checkpoint()
                after = time.perf_counter()
                ended = evolve(new, seconds=after - between, status=InvocationStatus.SUCCESS, cost=1500)
                invocations.finish(ended)
                spent.append(between - began + time.perf_counter() - after)

        cpu, wall = time.process_time(), time.perf_counter()
        async with trio.open_nursery() as nursery:
            for number in range(AGENTS):
                nursery.start_soon(agent, number)
        await invocations.settle()
        used = time.process_time() - cpu, time.perf_counter() - wall, spent
    invocations.close()
    return used


async def loop_alone(calls: int) -> float:
    """Return the seconds of CPU that the same tasks take without recording."""

    async def agent() -> None:
        for _ in range(calls // AGENTS):
            time.perf_counter()
            await trio.lowlevel.checkpoint()

    cpu = time.process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(AGENTS):
            nursery.start_soon(agent)
    return time.process_time() - cpu


def edits_found(database: Path, number: int) -> tuple[int, int]:
    """Edit one byte of an entry, verify, and undo that, so many times. Return how many of the edits were found."""
    chance = random.Random(17)
    columns = [name for name in audit_chain.Entry._fields if name != "id"]
    found = 0
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        ids = [id for (id,) in db.execute("select id from audit where kind = 'gateway_call'")]
        for _ in range(number):
            id, column = chance.choice(ids), chance.choice(columns)
            [(value,)] = db.execute(f"select {column} from audit where id = ?", (id,))
            content = bytearray(str(value).encode())
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(7)
            db.execute("begin")
            db.execute(f"update audit set {column} = cast(? as text) where id = ?", (bytes(content), id))
            db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
            found += bool(audit_chain.verify(db).faults)
            db.execute("rollback")
    return found, number


def main(calls: int) -> int:
    call_seconds = trio.run(seconds_of_a_call)
    idle = trio.run(loop_alone, calls)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name, "state")
        directory.mkdir(mode=0o700)
        cpu, wall, spent = trio.run(record, directory, calls)
        done = len(spent)
        each, task = (cpu - idle) / done * 1e6, statistics.median(spent) * 1e6
        began = time.perf_counter()
        verified = audit_chain.examine(directory / "intercom.db", directory / "none")
        took = time.perf_counter() - began
        size = (directory / "intercom.db").stat().st_size / done
    share = each / (call_seconds * 1e6)
    p99 = statistics.quantiles(spent, n=100)[98] * 1e6
    print(
        f"{done:,} calls recorded in {wall:.1f} s: {each:.0f} us of CPU a call, {share:.1%} of the "
        f"{call_seconds * 1000:.2f} ms that a call takes, to reach: <= 10 %"
    )
    print(f"on the caller's task: median {task:.0f} us, mean {statistics.mean(spent) * 1e6:.0f} us, p99 {p99:.0f} us")
    print(
        f"{verified.entries:,} entries verified in {took:.1f} s, {len(verified.faults)} faults; {size:.0f} bytes a call"
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name, "state")
        directory.mkdir(mode=0o700)
        trio.run(record, directory, EDITED)
        found, edits = edits_found(directory / "intercom.db", EDITS)
    print(f"{found:,} of {edits:,} single-byte edits found by verify")
    good = verified.entries == done and not verified.faults and found == edits and share <= 0.1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(int((sys.argv[1:] or [CALLS])[0])))
