"""An agent in a process of its own, so that a person's ctl is no child of it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.support.person_shell import the_person
from tests.support.server_process import COMMAND, Home


class Hosted:
    """Speaks the handshake era's JSON-RPC by hand."""

    def __init__(self, process: trio.Process, terminal: int) -> None:
        self.process = process
        #: The other end of the terminal that the host leads.
        self._terminal = terminal
        self._ids = 0
        self._buffer = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._shell: list[dict[str, Any]] = []

    async def greet(self) -> None:
        await self._send(
            {
                "jsonrpc": "2.0",
                "id": 0,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "claude-code", "version": "1"},
                },
            }
        )
        await self._until(lambda: 0 in self._answers)
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def ask(self, tool: str, /, **arguments: Any) -> int:
        """Call a tool; the number of the call."""
        self._ids += 1
        params = {"name": tool, "arguments": arguments}
        await self._send({"jsonrpc": "2.0", "id": self._ids, "method": "tools/call", "params": params})
        return self._ids

    async def answer(self, number: int) -> dict[str, Any]:
        """What a call answered, waited for."""
        await self._until(lambda: number in self._answers)
        content: dict[str, Any] = self._answers[number]["result"]["structuredContent"]
        return content

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.answer(await self.ask(tool, **arguments))

    async def shell(self, command: str) -> dict[str, Any]:
        """Run a command as the agent does; its exit code and what it printed. What asks for a PIN meanwhile, at the
        agent's own terminal, is given one that the agent makes up."""
        assert self.process.stdin is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._guess)
            await self.process.stdin.send_all(f"! {command}\n".encode())
            await self._until(lambda: bool(self._shell))
            nursery.cancel_scope.cancel()
        return self._shell.pop(0)

    async def _guess(self) -> None:
        shown = b""
        while True:
            await trio.lowlevel.wait_readable(self._terminal)
            shown += os.read(self._terminal, 4096)
            if re.search(rb"(PIN[^\n]*|again): $", shown):
                shown = b""
                os.write(self._terminal, b"correct guess\n")

    async def _send(self, message: dict[str, Any]) -> None:
        await self.process.stdin.send_all(json.dumps(message).encode() + b"\n")

    async def _until(self, done: Any) -> None:
        assert self.process.stdout is not None
        while not done():
            data = await self.process.stdout.receive_some()
            assert data, "the host is gone"
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "shell" in said:
                    self._shell.append(said["shell"])
                elif "id" in said and "method" not in said:
                    self._answers[said["id"]] = said


@asynccontextmanager
async def hosted(home: Home, workspace: Path, *wrapper: str, arguments: Sequence[str] = ()) -> AsyncIterator[Hosted]:
    """A connected agent whose host process leads a session at a terminal of its own, as one does that a person has
    started. The host starts its relay through `wrapper`, if one is named, and with these arguments. Whatever the
    wrapper does to its environment, `home` stays the user's home."""
    relay = [*COMMAND, "--home", str(home.root), "--workspace", str(workspace), *arguments]
    script = Path(__file__).with_name("client_host.py")
    master, slave = os.openpty()
    process = await trio.lowlevel.open_process(
        [sys.executable, str(script), *wrapper, *relay],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=home.environ,
        start_new_session=True,
        pass_fds=[slave],
        preexec_fn=partial(fcntl.ioctl, slave, termios.TIOCSCTTY, 0),
    )
    try:
        agent = Hosted(process, master)
        await agent.greet()
        yield agent
    finally:
        process.kill()
        await process.wait()
        os.close(slave)
        os.close(master)


async def ctl(home: Home, *words: str) -> tuple[int, Any]:
    """Run agent-intercom-ctl as a person at a terminal does; its exit code and what it printed."""
    done = await the_person().run_async([sys.executable, "-m", "intercom.cli.ctl", "--json", *words], home.environ)
    return done.returncode, json.loads(done.stdout)
