"""From the start of the inbox to the first card on its screen: a real server, a card that waits, a real terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from tests.bench.bench_rig import CTL, SHIM, Peer, home, row

ROUNDS = 15
TITLE = "Rename the column"
PROPOSAL = {"title": TITLE, "diff": "renamed\n", "file_path": "notes.txt", "risk_level": "low"}
#: Seconds after which a text has failed to come.
LONGEST = 30.0


def until_shown(command: list[str], text: str, times: int = 1) -> float:
    """Run a command on a terminal of its own until it has printed `text` so often, and end it. Returns the seconds."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"})
    too_late = threading.Timer(LONGEST, os.kill, (pid, 9))
    too_late.start()
    seen = b""
    with contextlib.suppress(OSError):
        while seen.count(text.encode()) < times:
            seen += os.read(terminal, 65536)
    took = time.perf_counter() - began
    too_late.cancel()
    # Not asked to end itself: what it writes then would wait for somebody to read it.
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert seen.count(text.encode()) >= times, f"{text!r} never came"
    return took


def both(what: str, work: Callable[[], float], base: float | None = None, reach: str = "") -> None:
    """Print the median of the rounds, and the least: on a busy machine that is the nearest to a quiet one."""
    times = [work() for _ in range(ROUNDS)]
    row(f"{what}, median of {ROUNDS}", statistics.median(times), base, reach)
    row(f"{what}, least", min(times), base, reach)


def python() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import json, socket"], check=True)
    return time.perf_counter() - began


def main() -> None:
    with home() as root:
        agent = Peer([*SHIM, "--workspace", str(root / "w")])
        agent.greet()
        agent.send("tools/call", {"name": "check_clearance", "arguments": PROPOSAL})
        until_shown([*CTL, "watch", "--plain"], TITLE)
        both("python -c 'import json, socket'", python)
        both("ctl watch --plain, to the card", lambda: until_shown([*CTL, "watch", "--plain"], TITLE))
        both("the inbox, to the card", lambda: until_shown(CTL, TITLE), reach="to reach: <= 500 ms")
        # The first frame takes no keys; the inbox draws the card again.
        both("the inbox, until it takes keys", lambda: until_shown(CTL, TITLE, 2))
        agent.close()


if __name__ == "__main__":
    main()
