"""Agents over HTTP: ping against a bare SDK server on hypercorn; 200 sessions that wait and report progress;
1,000 that are held, and what each costs in memory."""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from intercom.local import own_files
from intercom.local.places import places
from intercom.operators.ctl.client import request
from intercom.sessions.request_kinds import APPROVED
from tests.bench.bench_rig import SHIM, home, row
from tests.bench.http_peer import HttpPeer

WAITING = int(os.environ.get("WAITING", "200"))
HELD = int(os.environ.get("HELD", "1000"))
ROUNDS, CALLS = 150, 10


def main() -> None:
    pings()
    for legacy in (False, True):
        waiting(legacy)
    for legacy in (False, True):
        held(legacy)


def pings() -> None:
    with home() as root, server(root) as (port, token, _), bare() as other:
        for legacy in (False, True):
            ours = HttpPeer(port, "/mcp?agent=bench", token, legacy=legacy)
            theirs = HttpPeer(other, "/mcp", None, legacy=legacy)
            for _ in range(100):
                ours.call("ping", {})
                theirs.call("echo", {})
            mine, echoes = [], []
            # In many short turns, so that both meet the same noise.
            for _ in range(ROUNDS):
                mine.append(median(ours, "ping"))
                echoes.append(median(theirs, "echo"))
            ping, echo = statistics.median(mine), statistics.median(echoes)
            row(f"bare SDK server, echo, {era(legacy)}", echo)
            row(f"ping over HTTP, {era(legacy)}", ping, echo, "to reach: <= 1.5x")
            low, middle, high = statistics.quantiles(one / other for one, other in zip(mine, echoes, strict=True))
            print(f"  the same turn by turn: median {middle:.2f}x, half of them within {low:.2f}x and {high:.2f}x")
            ours.close()
            theirs.close()


def waiting(legacy: bool) -> None:
    """Verdicts one by one while all others wait."""
    with home() as root, server(root) as (port, token, memory):
        HttpPeer(port, "/mcp?agent=first", token, legacy=legacy).call("ping", {})
        idle = memory()
        agents = opened(port, token, WAITING, legacy, progress=True)
        cost = (memory() - idle) / WAITING
        cards = {card["title"]: card["request_id"] for card in request(places(), "pending", {})}
        times = []
        for number, agent in enumerate(agents):
            began = time.perf_counter()
            request(places(), "approve", {"id": cards[f"change {number}"], "verdict_id": uuid.uuid4().hex})
            content = agent.receive()["structuredContent"]
            times.append(time.perf_counter() - began)
            assert content == {"status": "approved", "request_id": cards[f"change {number}"], "message": APPROVED}, (
                content
            )
        times.sort()
        print(f"{WAITING} sessions that wait with progress, {era(legacy)}: all answered right")
        print(f"  memory per session                 {cost / 1024:8.1f} KiB")
        print(f"  from verdict to reply, median      {times[len(times) // 2] * 1000:8.2f} ms")
        print(f"  from verdict to reply, p95         {times[int(len(times) * 0.95)] * 1000:8.2f} ms", flush=True)


def held(legacy: bool) -> None:
    with home() as root, server(root) as (port, token, memory):
        HttpPeer(port, "/mcp?agent=first", token, legacy=legacy).call("ping", {})
        idle = memory()
        began = time.perf_counter()
        agents = opened(port, token, HELD, legacy)
        took = time.perf_counter() - began
        used = memory()
        began = time.perf_counter()
        for card in request(places(), "pending", {}):
            request(places(), "approve", {"id": card["request_id"]})
        for agent in agents:
            assert agent.receive()["structuredContent"]["status"] == "approved"
        answered = time.perf_counter() - began
        reach = "to reach: <= 180 KB" if legacy else "to reach: <= 100 KB"
        print(f"{HELD} sessions held, {era(legacy)}")
        print(f"  memory per session over idle       {(used - idle) / HELD / 1000:8.1f} KB  {reach}")
        print(f"  server                             {used / 2**20:8.0f} MiB")
        print(f"  opening and asking                 {took:8.2f} s   ({HELD / took:.0f}/s)")
        print(f"  answering all                      {answered:8.2f} s   ({HELD / answered:.0f}/s)", flush=True)


def opened(port: int, token: str, count: int, legacy: bool, *, progress: bool = False) -> list[HttpPeer]:
    """So many agents, each with a clearance that waits."""
    agents = []
    for number in range(count):
        agent = HttpPeer(port, f"/mcp?agent=held-{number}", token, legacy=legacy)
        proposal = {"title": f"change {number}", "diff": f"{number}\n", "file_path": f"f{number}.txt"}
        agent.send("check_clearance", proposal, progress=progress)
        agents.append(agent)
    while pending(port, token) < count:
        time.sleep(0.2)
    return agents


def pending(port: int, token: str) -> int:
    """How much waits for a person, counted without a list of it, which would leave its own mark on the memory."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked) as answer:
        told = answer.read().decode()
    found = re.findall(r'^intercom_pending\{kind="approval"\} (\S+)$', told, re.MULTILINE)
    return int(float(found[0])) if found else 0


def median(peer: HttpPeer, tool: str) -> float:
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        peer.call(tool, {})
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def era(legacy: bool) -> str:
    return "2025-11-25" if legacy else "2026-07-28"


@contextmanager
def server(root: Path) -> Iterator[tuple[int, str, Any]]:
    """A server with HTTP: its port, its token, and its memory in bytes when asked."""
    file = root / "c" / "agent-intercom" / "config.toml"
    file.write_text(f'http_port = 0\ndefault_workspace_root = "{root / "w"}"\n{file.read_text()}')
    process = subprocess.Popen([*SHIM, "serve"], stderr=subprocess.DEVNULL)
    where = places()
    while not os.path.exists(where.http_address_file):
        time.sleep(0.05)
    port = int(Path(where.http_address_file).read_text().rpartition(":")[2])
    try:
        yield port, own_files.http_token(where), lambda: psutil.Process(process.pid).memory_info().rss
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def bare() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.bare_http_server", str(port)])
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
