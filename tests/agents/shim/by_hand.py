"""A shim between two hands of the test: one plays the client, the other the server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from intercom.local.places import Places, places
from intercom.local.server_socket import LocalListener, listen
from tests.agents.shim.stage import Stage

WELCOME = {"intercom": {"welcome": {"wire": 1, "version": "0", "life": "f" * 32}}}


class Hand:
    """One end of a stream of lines."""

    def __init__(self, out: Any, into: Any) -> None:
        self._out, self._into = out, into
        self._rest = bytearray()

    async def say(self, message: Any) -> None:
        await self._out.send_all(json.dumps(message).encode() + b"\n")

    async def hear(self) -> Any:
        """The next line; None at the end."""
        while (end := self._rest.find(b"\n")) < 0:
            try:
                data = await self._into.receive_some()
            except trio.BrokenResourceError:
                data = b""  # it left without reading all that was said to it
            if not data:
                return None
            self._rest += data
        line = bytes(self._rest[:end])
        del self._rest[: end + 1]
        return json.loads(line)

    async def call(self, request_id: Any, **arguments: Any) -> None:
        params = {"name": "ask", "arguments": arguments}
        await self.say({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})

    async def shake_hands(self) -> str:
        """Begin as a client of the handshake era; returns the server's name."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "hand", "version": "1"}}
        await self.say({"jsonrpc": "2.0", "id": "first", "method": "initialize", "params": params})
        return str((await self.hear())["result"]["serverInfo"]["name"])

    async def close(self) -> None:
        """Say that nothing more will be said."""
        await self._out.aclose()


class ShimProcess(Hand):
    """A running shim, seen as its client sees it."""

    def __init__(self, process: trio.Process) -> None:
        super().__init__(process.stdin, process.stdout)
        self.process = process


@asynccontextmanager
async def shim(on: Stage, **options: Any) -> AsyncIterator[ShimProcess]:
    """Run a shim; one that is still there at the end is killed."""
    process = await trio.lowlevel.open_process(
        on.shim(**options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=on.environment,
        cwd=on.root,
    )
    try:
        yield ShimProcess(process)
    finally:
        if process.poll() is None:
            process.kill()
        await process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            await stream.aclose()


class ByHand:
    """A server made of a test: it listens where the shim looks."""

    def __init__(self, where: Places) -> None:
        self.where = where
        self._listener: LocalListener = listen(where.mcp_socket)

    async def accept(self, *, welcome: bool = True) -> tuple[Hand, dict[str, Any]]:
        """The next shim, and what it said first."""
        stream = await self._listener.accept()
        hand = Hand(stream, stream)
        hello = (await hand.hear())["intercom"]["hello"]
        if welcome:
            await hand.say(WELCOME)
        return hand, hello

    async def close(self) -> None:
        await self._listener.aclose()


@asynccontextmanager
async def by_hand(on: Stage) -> AsyncIterator[ByHand]:
    server = ByHand(places(environ=on.environment))
    try:
        yield server
    finally:
        await server.close()
