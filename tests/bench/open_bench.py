"""Opening sessions: 2,000 agents over HTTP one by one, in turns with a bare SDK server on hypercorn.

An open is a connection, the handshake if the protocol version has one, and the first answered call. Connections stay
open. At ours, each agent gets a session of its own, with a row that is on disk before the answer.
"""

from __future__ import annotations

import os
import resource
import statistics
import struct
import time
from collections.abc import Callable
from functools import partial

from tests.bench.bench_rig import home, row
from tests.bench.held_bench import Agent
from tests.bench.http_bench import bare, era, server
from tests.bench.http_peer import HttpPeer

SESSIONS = int(os.environ.get("SESSIONS", "2000"))
#: How many sessions are opened at one server before it is the other's turn.
TURN = 10
#: How many rows a run prints.
ROWS = 20
PROCESSES = 100
SHIMS = 500

Open = Callable[[int], HttpPeer]


def main() -> None:
    # Every connection takes a descriptor here, and one in a server, which inherits the limit.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for legacy in (False, True):
        with home() as root, server(root) as (port, token, _), bare() as other:
            by_one_client(partial(ours, port, token, legacy), partial(theirs, other, legacy), era(legacy))
    for legacy in (False, True):
        with home() as root, server(root) as (port, token, _), bare() as other:
            by_new_processes(partial(ours, port, token, legacy), partial(theirs, other, legacy), era(legacy))
    over_stdio()


def ours(port: int, token: str, legacy: bool, number: int) -> HttpPeer:
    peer = HttpPeer(port, f"/mcp?agent=open-{number}", token, legacy=legacy)
    assert peer.call("ping", {})["structuredContent"]["acknowledged"]
    return peer


def theirs(port: int, legacy: bool, _number: int) -> HttpPeer:
    peer = HttpPeer(port, "/mcp", None, legacy=legacy)
    peer.call("echo", {})
    return peer


def by_one_client(ours: Open, theirs: Open, version: str) -> None:
    """All agents connect from this process."""
    kept = [ours(-1), theirs(-1)]

    def turn(open: Open, first: int) -> None:
        kept.extend(open(number) for number in range(first, first + TURN))

    print(f"{SESSIONS} sessions of one client, {version}: opened a second")
    times: list[tuple[float, float]] = []
    for first in range(0, SESSIONS, TURN):
        times.append((timed(partial(turn, ours, first)), timed(partial(turn, theirs, first))))
        if len(times) % (SESSIONS // TURN // ROWS) == 0:
            show(f"up to the {first + TURN}th", times[-(SESSIONS // TURN // ROWS) :])
    show("all", times, "to reach: >= 40 %")
    for peer in kept:
        peer.close()


def show(what: str, times: list[tuple[float, float]], reach: str = "") -> None:
    mine, bare = (TURN * len(times) / sum(each) for each in zip(*times, strict=True))
    print(f"  {what:<20} {mine:7.0f}   bare {bare:7.0f}   {mine / bare:5.0%}  {reach}", flush=True)


def by_new_processes(ours: Open, theirs: Open, version: str) -> None:
    """Every agent is a process of its own, which the server has never seen."""
    ours(-1), theirs(-1)
    mine, others = [], []
    for number in range(PROCESSES):
        mine.append(in_a_child(partial(ours, number)))
        others.append(in_a_child(partial(theirs, number)))
    row(f"open by a new process at a bare server, {version}", statistics.median(others))
    row(f"the same at ours, {version}", statistics.median(mine), statistics.median(others))


def in_a_child(work: Callable[[], object]) -> float:
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writes, struct.pack("d", timed(work)))
        os._exit(0)
    os.close(writes)
    (took,) = struct.unpack("d", os.read(reads, 8))
    os.close(reads)
    os.waitpid(pid, 0)
    return float(took)


def over_stdio() -> None:
    """Shims' connections, without a process for each: their hello, the handshake and the first call."""
    with home() as root, server(root):
        agents: list[Agent] = []

        def some(first: int) -> None:
            for number in range(first, first + 100):
                agents.append(Agent(number, str(root / "w")))
                agents[-1].call(1, "ping", {})
                assert agents[-1].receive(1)["result"]["structuredContent"]["acknowledged"]

        print(f"{SHIMS} sessions over stdio: opened a second")
        for first in range(0, SHIMS, 100):
            print(f"  up to the {first + 100}th        {100 / timed(partial(some, first)):7.0f}", flush=True)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
