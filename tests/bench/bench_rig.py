"""What the switchboard's benchmarks share: an isolated home, raw MCP over pipes, and times."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from intercom.local import own_files

SHIM = [sys.executable, "-P", "-m", "intercom.cli.main"]
CTL = [sys.executable, "-P", "-m", "intercom.cli.ctl"]
CLIENT = {"name": "claude-code", "version": "1"}


@contextmanager
def home() -> Iterator[Path]:
    """A directory of its own for configuration, state, sockets and workspace; its server is stopped at the end."""
    root = Path(tempfile.mkdtemp(prefix="ib-", dir="/tmp"))
    before = dict(os.environ)
    for name, part in (("XDG_RUNTIME_DIR", "r"), ("XDG_CONFIG_HOME", "c"), ("XDG_STATE_HOME", "s")):
        (root / part).mkdir(mode=0o700)
        os.environ[name] = str(root / part)
    (root / "w").mkdir()
    # What is installed has its bytecode, and compiles nothing at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Agent and operator are one process here.
    (root / "c" / "agent-intercom").mkdir(mode=0o700)
    (root / "c" / "agent-intercom" / "config.toml").write_text("[ctl]\ntrust_agent_processes = true\n")
    own = [str(root / part / "agent-intercom") for part in ("c", "s")]
    Path(own[1]).mkdir(mode=0o700)
    own_files.record_directories(*own)
    try:
        yield root
    finally:
        subprocess.run([*SHIM, "stop"], stdout=subprocess.DEVNULL, check=False)
        own_files.forget_directories(*own)
        os.environ.clear()
        os.environ.update(before)
        shutil.rmtree(root)


class Peer:
    """One MCP server process, spoken to in raw lines: the cost of a client is not what is measured."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._next = 0

    def send(self, method: str, params: dict[str, Any]) -> int:
        self._next += 1
        self._write({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        return self._next

    def receive(self, number: int) -> dict[str, Any]:
        """The answer to request `number`; what else comes is passed over."""
        assert self.process.stdout is not None
        while True:
            said: dict[str, Any] = json.loads(self.process.stdout.readline())
            if said.get("id") == number and "method" not in said:
                return said

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return self.receive(self.send(method, params))

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        result: dict[str, Any] = answer["result"]
        return result

    def greet(self) -> None:
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT})
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)

    def _write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def timed(work: Any, count: int) -> float:
    """The median time of `work()`, in seconds."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def row(what: str, seconds: float, base: float | None = None, reach: str = "") -> None:
    """Print one figure, and its ratio to another of the same run."""
    ratio = f"{seconds / base:6.2f}x" if base else " " * 7
    print(f"{what:<58} {seconds * 1000:9.2f} ms {ratio}  {reach}", flush=True)
