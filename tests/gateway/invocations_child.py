"""A process that records calls until it is killed, and says which have begun and which have ended.

`python -m tests.gateway.invocations_child DIRECTORY KILL N` kills itself in the middle of the N-th line of the journal
("line"), at the N-th passage of a crash point (its name), or not at all ("never"): then its parent kills it.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import trio

from intercom.gateway import call_journal, call_log
from intercom.gateway.call_log import InvocationLog
from intercom.model import crash_points
from tests.gateway.recording import done, log_in, new

#: Files are changed every few calls.
FULL = 4_000
AGENTS = 8


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_in_line(number: int) -> None:
    """Write only half of the line of this number, as the system may when it kills the process."""
    left = number
    write = os.write

    def half(descriptor: int, data: bytes) -> int:
        nonlocal left
        if data.lstrip(b"\n").startswith(b'{"event":'):
            left -= 1
            if left == 0:
                write(descriptor, data[: len(data) // 2])
                die()
        return write(descriptor, data)

    call_journal.os.write = half  # type: ignore[attr-defined]


def kill_at(point: str, number: int) -> None:
    left = number

    def hook(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            die()

    crash_points.hook = hook


async def agent(log: InvocationLog, number: int) -> None:
    for count in range(100_000):
        call = new(log, f"{os.getpid()}/{number}/{count}", {"number": count})
        await log.ready()
        log.begin(call)
        os.write(1, f"begun {call.id}\n".encode())
        await trio.lowlevel.checkpoint()
        log.finish(done(call))
        os.write(1, f"ended {call.id}\n".encode())


async def main(directory: Path, kill: str, number: int) -> None:
    # Groups come quickly, so that a kill meets one.
    call_log.COLLECT_SECONDS = 0.001  # type: ignore[misc]
    system, log = log_in(directory, full=FULL)
    async with system:
        await log.ready()
        if kill == "line":
            kill_in_line(number)
        elif kill != "never":
            kill_at(kill, number)
        async with trio.open_nursery() as nursery:
            for each in range(AGENTS):
                nursery.start_soon(agent, log, each)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
