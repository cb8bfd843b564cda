"""What the shim's tests stand on: directories of their own, the command of a shim, and the conductor of stand-ins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import trio
from mcp.client.stdio import StdioServerParameters

HERE = Path(__file__).resolve().parent
STAND_IN = [sys.executable, str(HERE / "stand_in.py")]


class Stage:
    """Directories, and the environment that points at them."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.environment = {
            "HOME": root,
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": os.path.join(root, "run"),
            "XDG_STATE_HOME": os.path.join(root, "state"),
            "XDG_CONFIG_HOME": os.path.join(root, "config"),
        }
        self.conductor = os.path.join(root, "conductor")
        os.mkdir(self.environment["XDG_RUNTIME_DIR"], 0o700)

    def write(self, name: str, text: str = "") -> str:
        """Put a file on the stage; returns its path."""
        path = os.path.join(self.root, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def shim(self, *, server: list[str] | None = None, **options: object) -> list[str]:
        """The command line of a shim, whose server is a stand-in unless another is named."""
        server = server or [*STAND_IN, "--conductor", self.conductor]
        return [
            sys.executable,
            str(HERE / "shim_main.py"),
            json.dumps({"server": server, "shipped": os.path.join(self.root, "none"), **options}),
        ]

    def parameters(self, **options: Any) -> StdioServerParameters:
        """The same, as the SDK's client wants it."""
        command, *args = self.shim(**options)
        return StdioServerParameters(command=command, args=args, env=self.environment)


@contextmanager
def stage() -> Iterator[Stage]:
    """Directories with short names, since sockets live in them; gone afterwards."""
    root = tempfile.mkdtemp(prefix="ic-", dir="/tmp")
    try:
        yield Stage(root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


class Life:
    """One stand-in server's life, as the test sees it."""

    def __init__(self, pid: int, stream: trio.SocketStream) -> None:
        self.pid = pid
        self.heard: list[dict[str, Any]] = []
        self.stream = stream
        self.over = trio.Event()
        self._news = trio.Event()

    def hear(self, what: dict[str, Any]) -> None:
        self.heard.append(what)
        self._news.set()
        self._news = trio.Event()

    async def until(self, key: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until the server has told `count` things of this kind."""
        while len(found := [what for what in self.heard if key in what]) < count:
            await self._news.wait()
        return found

    def heard_of(self, key: str) -> list[dict[str, Any]]:
        """What it told of this kind so far."""
        return [what for what in self.heard if key in what]

    async def answer(self, **verdicts: str) -> None:
        """Let questions go."""
        await self.stream.send_all(json.dumps(verdicts).encode() + b"\n")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


class Lives:
    """All lives there were, and the next one."""

    def __init__(self) -> None:
        self.all: list[Life] = []
        self._send, self._receive = trio.open_memory_channel[Life](100)
        self._send_loser, self._losers = trio.open_memory_channel[Life](100)

    async def next(self) -> Life:
        """Wait for the next server that is up."""
        return await self._receive.receive()

    async def next_loser(self) -> Life:
        """Wait for the next server that finds the database locked."""
        return await self._losers.receive()

    async def follow(self, stream: trio.SocketStream) -> None:
        life: Life | None = None
        rest = b""
        try:
            async for data in stream:
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    what = json.loads(line)
                    if life is None:
                        life = Life(what["pid"], stream)
                        self.all.append(life)
                        await (self._send_loser if "lost" in what else self._send).send(life)
                    life.hear(what)
        except trio.BrokenResourceError:
            pass
        finally:
            if life is not None:
                life.over.set()


@asynccontextmanager
async def conducted(on: Stage) -> AsyncIterator[Lives]:
    """Hear from the stand-ins of a stage; those still alive at the end are killed."""
    lives = Lives()
    sock = trio.socket.socket(trio.socket.AF_UNIX)
    await sock.bind(on.conductor)
    sock.listen(50)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, lives.follow, [trio.SocketListener(sock)])
        try:
            yield lives
        finally:
            for life in lives.all:
                try:
                    life.kill()
                except ProcessLookupError:
                    pass
            nursery.cancel_scope.cancel()
