"""A person's shell at a terminal of its own, which nothing else in a test has started.

It is the leader of a POSIX session with a controlling terminal, as a terminal window gives it, and an orphan, as its
parent there is none of the agent's.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

#: Becomes an orphan that leads a session at the terminal it is given, then runs one command after the other. Standard
#: input and output stay what they were: the terminal is only what controls it.
SHELL = """
import fcntl, json, os, subprocess, sys, termios
if os.fork():
    os._exit(0)
os.setsid()
terminal = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
print(json.dumps({"pid": os.getpid()}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    done = subprocess.run(**asked, capture_output=True, text=True)
    print(json.dumps({"code": done.returncode, "out": done.stdout, "err": done.stderr}), flush=True)
"""


class PersonShell:
    """`pid` is the shell's, `device` its terminal's path. Commands run one at a time."""

    def __init__(self, process: subprocess.Popen[str], pid: int, device: str) -> None:
        self.pid = pid
        self.device = device
        self._process = process
        self._busy = threading.Lock()

    def run(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None = None,
        *,
        input: str = "",
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here, as the person who sits at this terminal does."""
        asked = {
            "args": list(arguments),
            "env": dict(os.environ if environ is None else environ),
            "input": input,
            "cwd": None if cwd is None else str(cwd),
            "timeout": timeout,
        }
        with self._busy:
            said = self._ask(asked)
        return subprocess.CompletedProcess(list(arguments), said["code"], said["out"], said["err"])

    async def run_async(
        self, arguments: Sequence[str], environ: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        return await trio.to_thread.run_sync(partial(self.run, arguments, environ, **options))

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said


@functools.cache
def the_person() -> PersonShell:
    """One shell for all tests of this process, for those that only need a person."""
    opened = person_shell()
    atexit.register(opened.__exit__, None, None, None)
    return opened.__enter__()


@contextmanager
def person_shell() -> Iterator[PersonShell]:
    """A shell at a terminal, which is closed at the end: what runs in it gets SIGHUP then."""
    master, slave = os.openpty()
    device = os.ttyname(slave)
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SHELL, device],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # Only when its parent is gone is it nobody's child.
        process.wait()
        assert process.stdout is not None
        yield PersonShell(process, json.loads(process.stdout.readline())["pid"], device)
    finally:
        for each in (process.stdin, process.stdout):
            if each is not None:
                each.close()
        os.close(slave)
        os.close(master)
