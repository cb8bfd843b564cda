"""Rooms against AgentChatBus 0.2.2 from PyPI doing the same, and against the same web server doing nothing.

    python -m tests.bench.rooms_bench [part...]      parts: seen, posts, parked; all if none is named

`seen` is the time from a post to a waiter that has the message. `posts` is how many a second 20 writers can make.
`parked` is what 10,000 waiting calls cost, and how long it takes until one post has answered all of them.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from subprocess import Popen

import psutil

from tests.bench.chat_bus import BusHttpPoster, BusPoster, BusWaiter, ChatBus, installed
from tests.bench.http_peer import HttpConnection
from tests.bench.rooms_peer import HttpPoster, HttpWaiter, McpPoster, McpWaiter, Poster, Room, Waiter
from tests.rooms.node import Node, free_port, nodes
from tests.support.postgres import new_server

#: Posts that are measured for each figure of `seen`, and those before that are not.
ROUNDS, WARM = int(os.environ.get("ROUNDS", "200")), 20
#: The pause before each post, in seconds, in which waits arrive.
SETTLE = 0.02
MANY = 20
#: Seconds in which writers post, and how often each server has its turn.
POSTING, TURNS = float(os.environ.get("POSTING", "5")), 3
PARKED = int(os.environ.get("PARKED", "10000"))
#: The teams that make these calls. Each that joins is told of all others.
TEAMS = 100
#: Calls of the rival that wait. Each is an MCP session there.
RIVAL_PARKED = int(os.environ.get("RIVAL_PARKED", "500"))
IDLE = float(os.environ.get("IDLE", "20"))
#: Nothing but the load: no guard, no limits, nobody dropped.
CONFIG = "[rooms]\nloop_budget = 0\nmax_wait_seconds = 600\nactive_seconds = 43200\ndisconnected_seconds = 86400\n"


def main(parts: Sequence[str]) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for part in (seen, posts, parked):
        if not parts or part.__name__ in parts:
            part()


# --- from a post to a waiter -----------------------------------------------------------------------------------------


def seen() -> None:
    print(f"from a post to a waiter that has the message, {ROUNDS} posts")
    with ExitStack() as stack:
        (node,) = stack.enter_context(nodes(config=CONFIG))
        bus = stack.enter_context(installed())
        for waiting in (1, MANY):
            reach = "to reach: <= 5 ms median" if waiting == 1 else "to reach: <= 15 ms median"
            base = rival_seen(bus, BusPoster, waiting)
            show(f"AgentChatBus over MCP, {waiters_of(waiting)}", base)
            show(
                f"AgentChatBus, posted over HTTP, {waiters_of(waiting)}", rival_seen(bus, BusHttpPoster, waiting), base
            )
            show(
                f"rooms over HTTP, {waiters_of(waiting)}",
                ours(node, node, HttpPoster, HttpWaiter, waiting),
                base,
                reach,
            )
            show(f"rooms over MCP, {waiters_of(waiting)}", ours(node, node, McpPoster, McpWaiter, waiting), base, reach)
        postgres = stack.enter_context(new_server(fsync=True))
        cluster = stack.enter_context(nodes(2, postgres.url(postgres.new_database()), CONFIG))
        for waiting in (1, MANY):
            taken = ours(cluster[0], cluster[1], HttpPoster, HttpWaiter, waiting)
            reach = "to reach: <= 10 ms median" if waiting == 1 else ""
            show(f"rooms, the post at one node, {waiters_of(waiting)} at another", taken, None, reach)


def waiters_of(count: int) -> str:
    return "one waiter" if count == 1 else f"{count} waiters"


def ours(
    writes: Node,
    reads: Node,
    poster: Callable[[int, Room, str], Poster],
    waiter: Callable[[int, Room, str, int], Waiter],
    waiting: int,
) -> list[float]:
    room = Room(writes.port)
    token, _ = room.join(writes.port, "Writer")
    tokens = [room.join(reads.port, f"Waiter {number}")[0] for number in range(waiting)]
    end = room.end(reads.port)
    return visible(poster(writes.port, room, token), [waiter(reads.port, room, each, end) for each in tokens], ROUNDS)


def rival_seen(bus: ChatBus, poster: Callable[[ChatBus, str], Poster], waiting: int) -> list[float]:
    thread = bus.thread(f"seen {waiting} by {poster.__name__}")
    rounds = ROUNDS if poster is BusPoster else ROUNDS // 5
    return visible(poster(bus, thread), [BusWaiter(bus, thread) for _ in range(waiting)], rounds)


def visible(poster: Poster, waiters: Sequence[Waiter], rounds: int) -> list[float]:
    """Seconds from each post until each waiter had the message."""
    taken = []
    for number in range(WARM + rounds):
        for waiter in waiters:
            waiter.wait()
        poster.prepare()
        time.sleep(SETTLE)
        began = time.perf_counter()
        poster.send(f"message {number}")
        times = answered(began, [*waiters, poster])
        if number >= WARM:
            taken += times[:-1]
    assert not poster.errors
    return taken


def answered(began: float, callers: Sequence[Waiter | Poster]) -> list[float]:
    """Read until all these calls are answered; the seconds of each, since the moment `began`."""
    times = [0.0] * len(callers)
    with select.epoll() as poll:
        left = {}
        for number, caller in enumerate(callers):
            left[caller.socket.fileno()] = number
            poll.register(caller.socket.fileno(), select.EPOLLIN)
        while left:
            ready = poll.poll(60)
            assert ready, f"{len(left)} calls were not answered within a minute"
            for file, _ in ready:
                if callers[left[file]].take():
                    times[left.pop(file)] = time.perf_counter() - began
                    poll.unregister(file)
    return times


def show(what: str, taken: Sequence[float], base: Sequence[float] | None = None, reach: str = "") -> None:
    middle, late = median_and_p95(taken)
    ratio = f"{middle / median_and_p95(base)[0]:6.2f}x" if base else " " * 7
    print(f"  {what:<58} {middle * 1000:8.2f} ms  p95 {late * 1000:8.2f} ms {ratio}  {reach}", flush=True)


def median_and_p95(taken: Sequence[float]) -> tuple[float, float]:
    return statistics.median(taken), statistics.quantiles(taken, n=20)[-1]


# --- posts a second --------------------------------------------------------------------------------------------------


def posts() -> None:
    print(f"posts a second with {MANY} writers, {TURNS} turns of {POSTING:g} s")
    with ExitStack() as stack:
        (node,) = stack.enter_context(nodes(config=CONFIG))
        bare, bare_pid = stack.enter_context(bare_server())
        bus = stack.enter_context(installed())
        postgres = stack.enter_context(new_server(fsync=True))
        (clustered,) = stack.enter_context(nodes(1, postgres.url(postgres.new_database()), CONFIG))
        room, other = Room(node.port), Room(clustered.port)
        thread = bus.thread("posts")
        tokens = [_joined(room, node, number) for number in range(MANY)]
        others = [_joined(other, clustered, number) for number in range(MANY)]
        sides: dict[str, tuple[int, Callable[[int], Poster]]] = {
            "the same web server doing nothing": (bare_pid, lambda _: BarePoster(bare)),
            "rooms on SQLite": (node.pid, lambda number: HttpPoster(node.port, room, tokens[number])),
            "rooms on PostgreSQL": (clustered.pid, lambda number: HttpPoster(clustered.port, other, others[number])),
            "AgentChatBus": (bus.pid, lambda _: BusHttpPoster(bus, thread)),
        }
        rates: dict[str, list[float]] = {what: [] for what in sides}
        used: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for _ in range(TURNS):
            for what, (pid, writer) in sides.items():
                writers = [writer(number) for number in range(MANY)]
                before = cpu_of(psutil.Process(pid))
                rates[what].append(posted(writers, POSTING))
                used[what] += round(1e6 * (cpu_of(psutil.Process(pid)) - before))
                errors[what] += sum(each.errors for each in writers)
        bare_rate = statistics.median(rates["the same web server doing nothing"])
        for what, each in rates.items():
            rate = statistics.median(each)
            cpu = used[what] / sum(each) / POSTING
            reach = "to reach: >= 500, >= 90 %" if what.startswith("rooms") else ""
            share = f"{rate:8.0f} /s  {rate / bare_rate:5.0%}  {cpu:6.0f} us of CPU each"
            print(f"  {what:<36} {share}  {errors[what]} errors  {reach}", flush=True)
        made = sum(round(rate * POSTING) for rate in rates["rooms on SQLite"])
        assert room.end(node.port) >= made + MANY, "what was answered is in the feed"


def _joined(room: Room, node: Node, number: int) -> str:
    return room.join(node.port, f"Writer {number}")[0]


class BarePoster:
    def __init__(self, port: int) -> None:
        self.errors = 0
        self._connection = HttpConnection(port, {"X-Team-ID": "x" * 69})

    @property
    def socket(self) -> socket.socket:
        return self._connection.socket

    def prepare(self) -> None:
        """Nothing is needed."""

    def send(self, text: str) -> None:
        path = "/api/sessions/4f5b1a7e-9a54-4f0e-8b0e-0d1a2b3c4d5e/messages"
        self._connection.send("POST", path, {"content": {"text": text}})

    def take(self) -> bool:
        found = self._connection.take()
        self.errors += found is not None and found.status != 200
        return found is not None


def posted(writers: Sequence[Poster], seconds: float) -> float:
    """How many posts a second these new writers make, each one after the other, without those that failed."""
    count = 0
    with select.epoll() as poll:
        by_file = {}

        def send(writer: Poster) -> None:
            file = writer.socket.fileno()
            if file not in by_file:
                by_file[file] = writer
                with suppress(FileExistsError):
                    poll.register(file, select.EPOLLIN)
            writer.send("found that Y is the right approach because Z, and W follows")

        began = time.perf_counter()
        for writer in writers:
            send(writer)
        left = len(writers)
        while left:
            ready = poll.poll(60)
            assert ready, "posts were not answered within a minute"
            for file, _ in ready:
                writer = by_file.get(file)
                if writer is None:
                    # A server that ends a connection with its error.
                    poll.unregister(file)
                    continue
                if not writer.take():
                    continue
                if writer.errors:
                    # It may have another connection now, perhaps under the same number.
                    del by_file[file]
                count += 1
                if time.perf_counter() - began < seconds:
                    send(writer)
                else:
                    left -= 1
        count -= sum(writer.errors for writer in writers)
        return count / (time.perf_counter() - began)


@contextmanager
def bare_server() -> Iterator[tuple[int, int]]:
    """The web server alone: its port and its process."""
    port = free_port()
    process = Popen([sys.executable, "-m", "tests.bench.bare_json_server", str(port)])
    try:
        _connected(port).close()
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def _connected(port: int) -> HttpConnection:
    deadline = time.monotonic() + 30
    while True:
        try:
            return HttpConnection(port)
        except OSError:
            assert time.monotonic() < deadline, f"nothing answers at port {port}"
            time.sleep(0.05)


# --- parked calls ----------------------------------------------------------------------------------------------------


def parked() -> None:
    with nodes(config=CONFIG) as (node,):
        print(f"{PARKED} calls of {TEAMS} teams that wait at one node, over plain HTTP")
        room = Room(node.port)
        tokens = [room.join(node.port, f"Waiter {number}")[0] for number in range(TEAMS)]
        end = room.end(node.port)

        def waiter(number: int) -> Waiter:
            return HttpWaiter(node.port, room, tokens[number % TEAMS], end)

        park(node.pid, lambda: HttpPoster(node.port, room, room.token), waiter, PARKED, ours=True)
    with installed() as bus:
        print(f"{RIVAL_PARKED} calls that wait at AgentChatBus")
        thread = bus.thread("parked")
        park(bus.pid, lambda: BusPoster(bus, thread), lambda _: BusWaiter(bus, thread), RIVAL_PARKED, ours=False)


def park(pid: int, poster: Callable[[], Poster], make: Callable[[int], Waiter], count: int, *, ours: bool) -> None:
    server = psutil.Process(pid)
    time.sleep(2)
    before = server.memory_info().rss
    began = time.perf_counter()
    waiters = []
    for number in range(count):
        waiters.append(make(number))
        waiters[-1].wait()
    settle(server)
    opened = time.perf_counter() - began
    each = (server.memory_info().rss - before) / count / 1000
    cpu = cpu_of(server)
    time.sleep(IDLE)
    idle = (cpu_of(server) - cpu) / IDLE
    # It comes last: a connection without a request is closed after some seconds.
    writer = poster()
    writer.prepare()
    began, cpu = time.perf_counter(), cpu_of(server)
    writer.send("the one that all wait for")
    times = sorted(answered(began, [*waiters, writer])[:-1])
    used = cpu_of(server) - cpu
    print(f"  memory of each                   {each:8.1f} KB    {'to reach: <= 20 KB' if ours else ''}")
    print(f"  idle CPU over {IDLE:g} s               {idle:8.1%}       {'to reach: <= 5 %' if ours else ''}")
    print(f"  the first and the median answer  {times[0]:8.2f} s  {times[len(times) // 2]:8.2f} s")
    print(f"  all answered by one post         {times[-1]:8.2f} s     {'to reach: <= 2 s' if ours else ''}")
    print(f"  processor time of that           {used:8.2f} s")
    print(f"  connecting and asking            {opened:8.2f} s     ({count / opened:.0f}/s)", flush=True)


def settle(server: psutil.Process) -> None:
    """Wait until the server has nothing more to do."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        cpu = cpu_of(server)
        time.sleep(0.5)
        if cpu_of(server) - cpu < 0.05:
            return


def cpu_of(server: psutil.Process) -> float:
    """Processor time that the process has used, in seconds."""
    times = server.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main(sys.argv[1:])
