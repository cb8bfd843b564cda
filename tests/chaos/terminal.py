"""An operator's terminal: requests at the local socket that come from a person's process and not from the test's.

A server lets nobody act who has no controlling terminal, or whom an agent has started (`intercom.local.processes`).
The process here leads a POSIX session at a pseudo-terminal of its own, and its parent is gone: so the rig's operators
are recognised as people are, and the configuration need not trust everybody.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

from intercom.local.places import Places
from intercom.model.errors import IntercomError, IpcError
from intercom.operators.ctl.client import PATIENCE, NoServer, Refusal, request

ROOT = Path(__file__).resolve().parents[2]


class Terminal:
    """One terminal, opened with its first request to the server at `places`. Requests go out one at a time."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._busy = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._ends: tuple[int, int] | None = None

    def request(self, command: str, fields: dict[str, Any], *, patience: float = PATIENCE) -> Any:
        """As `intercom.operators.ctl.client.request`, from this terminal."""
        with self._busy:
            process = self._opened()
            process.stdin.write(json.dumps({"command": command, "fields": fields, "patience": patience}) + "\n")
            process.stdin.flush()
            said = json.loads(process.stdout.readline() or '{"lost": "the terminal is closed"}')
        if "refused" in said:
            raise Refusal(said["refused"])
        if "no_server" in said:
            raise NoServer(said["no_server"])
        if "lost" in said:
            raise IpcError(said["lost"])
        return said["data"]

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, and the terminal with it. No request may be under way."""
        with self._busy:
            if self._process is not None:
                for pipe in (self._process.stdin, self._process.stdout):
                    pipe.close()
                self._process = None
            if self._ends is not None:
                for end in self._ends:
                    os.close(end)
                self._ends = None

    def _opened(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._ends = os.openpty()
            there = {name: getattr(self._places, name) for name in Places.__slots__}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.terminal", os.ttyname(self._ends[1]), json.dumps(there)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            # Its parent ends, so that it descends from nothing of the test's.
            self._process.wait()
        return self._process


def _answer(at: Places, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"data": request(at, asked["command"], asked["fields"], patience=asked["patience"])}
    except Refusal as refusal:
        return {"refused": {"error": str(refusal), "error_code": refusal.code, "details": refusal.details}}
    except NoServer as nobody:
        return {"no_server": str(nobody)}
    except (OSError, IntercomError) as lost:
        return {"lost": str(lost)}


def _main(device: str, at: Places) -> None:
    if os.fork():
        os._exit(0)
    os.setsid()
    fcntl.ioctl(os.open(device, os.O_RDWR), termios.TIOCSCTTY, 0)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(at, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(sys.argv[1], Places(**json.loads(sys.argv[2])))
