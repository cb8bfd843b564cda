"""A client of another language, driven from a test: commands and answers are lines of JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from tests.clients import npm


class Refused(Exception):
    """The client raised; `code` is the JSON-RPC code it raised with."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]
        self.data = error.get("data")


class Pending:
    """A command on its way: `await pending()` gives its result, or raises Refused."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.events: list[dict[str, Any]] = []
        self._answer: dict[str, Any] | None = None
        self._news = trio.Event()

    def hear(self, message: dict[str, Any]) -> None:
        if "event" in message:
            self.events.append(message["event"])
        else:
            self._answer = message
        self._news.set()
        self._news = trio.Event()

    async def event(self, key: str) -> dict[str, Any]:
        """The first event that says something under `key`, waited for if there was none."""
        while True:
            for each in self.events:
                if key in each or each.get("type") == key:
                    return each
            assert self._answer is None, f"it ended without: {self._answer}"
            await self._news.wait()

    @property
    def done(self) -> bool:
        return self._answer is not None

    async def __call__(self) -> Any:
        while self._answer is None:
            await self._news.wait()
        if "error" in self._answer:
            raise Refused(self._answer["error"])
        return self._answer["result"]


class Driver:
    """A running client."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._count = 0
        self._pending: dict[int, Pending] = {}
        self._ready = trio.Event()

    async def begin(self, what: str, **fields: Any) -> Pending:
        """Have it do something, and go on."""
        await self._ready.wait()
        self._count += 1
        pending = self._pending[self._count] = Pending(self._count)
        await self._write({"id": self._count, "do": what, **fields})
        return pending

    async def do(self, what: str, **fields: Any) -> Any:
        """Have it do something; its result. Raises Refused."""
        return await (await self.begin(what, **fields))()

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool; what its result says."""
        return content(await self.do("call", tool=tool, arguments=arguments))

    async def abort(self, pending: Pending) -> None:
        """Have it cancel what it does."""
        await self._write({"do": "abort", "of": pending.id})

    async def _write(self, message: dict[str, Any]) -> None:
        await self._process.stdin.send_all(json.dumps(message).encode() + b"\n")

    async def follow(self) -> None:
        rest = b""
        assert self._process.stdout is not None
        async for data in self._process.stdout:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "ready" in message:
                    self._ready.set()
                else:
                    self._pending[message["id"]].hear(message)


@asynccontextmanager
async def driver(script: str, python: str | None = None) -> AsyncIterator[Driver]:
    """Run a driver for as long as this lasts: a script for Node, or for this Python."""
    words = [npm.program("node"), script] if python is None else [python, str(npm.HERE / script)]
    process = await trio.lowlevel.open_process(
        words, cwd=npm.directory(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    async with trio.open_nursery() as nursery:
        driven = Driver(process)
        nursery.start_soon(driven.follow)
        try:
            yield driven
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            nursery.cancel_scope.cancel()


def content(result: dict[str, Any]) -> dict[str, Any]:
    """What a tool's result says, once as text and once as structure."""
    (text,) = result["content"]
    told: dict[str, Any] = json.loads(text["text"])
    assert result["structuredContent"] == told
    assert result.get("isError", False) is (told.get("status") == "error")
    return told
