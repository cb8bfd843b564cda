"""Real nodes: `agent-intercom rooms` as processes, each with a home of its own, and clients that speak plain HTTP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import trio

from tests.support.http_responses import Broken, Response, ResponseReader, request
from tests.support.server_forks import Started
from tests.support.server_process import Home

#: No loop guard: agents under load make no progress that it could see.
CONFIG = "[rooms]\nloop_budget = 0\n"
#: The time limit of a start, in seconds. Several may start at once on a busy machine.
START_SECONDS = 60.0
#: The time limit of a call that does not wait, in seconds.
CALL_SECONDS = 60.0


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


class Node:
    """One process that serves rooms. Without a database it uses SQLite in its home. `words` are added to its command
    line, and `environ` to its environment."""

    def __init__(
        self,
        root: Path,
        database: str | None = None,
        config: str = CONFIG,
        words: Sequence[str] = (),
        **environ: str,
    ) -> None:
        root.mkdir(exist_ok=True)
        self.home = Home(root)
        self.home.configure(config)
        self.port = free_port()
        self.log = root / "node.log"
        self.process: Started | None = None
        self.starts = 0
        self._environ = self.home.environ | environ
        self._words = ["--host", "127.0.0.1", "--port", str(self.port), "--ipc-name", root.name, *words]
        if database is not None and database.startswith("postgresql:"):
            # As people do it: a password does not belong in a list of processes.
            self._environ["DATABASE_URL"] = database
        else:
            self._words += ["--database", database or str(root / "rooms.db")]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *, wait: bool = True) -> None:
        """Start the process, and wait until it answers."""
        self.starts += 1
        with self.log.open("ab") as log:
            self.process = self.home.starts.start(
                ["rooms", *self._words],
                self._environ,
                stdout=log.fileno(),
                stderr=log.fileno(),
                cwd=self.home.root,
                program="intercom.cli.main",
            )
        if wait:
            self.until_ready()

    def until_ready(self) -> None:
        """Wait until the node answers. Raises AssertionError with its log if it ends instead, or takes too long."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the node does not run ({self.process.poll()}):\n{self.log_end()}")
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/sessions?limit=1", timeout=10) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """End the process as a power failure would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop the process in good order; its exit code. It has ended when this returns."""
        if self.process is None or self.process.poll() is not None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def log_end(self) -> str:
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""


@contextmanager
def nodes(
    count: int = 1, database: str | None = None, config: str = CONFIG, **environ: str
) -> Iterator[tuple[Node, ...]]:
    """So many nodes that answer, on one database; what runs in them ends with this."""
    root = Path(tempfile.mkdtemp(prefix="rooms-", dir="/tmp"))
    made = tuple(Node(root / f"n{number}", database, config, **environ) for number in range(count))
    try:
        for node in made:
            node.start(wait=False)
        for node in made:
            node.until_ready()
        yield made
    finally:
        for node in made:
            if node.process is not None and node.process.poll() is None:
                node.kill()
        if os.environ.get("INTERCOM_KEEP_NODES"):
            print(f"the nodes' homes are kept: {root}", file=sys.stderr)
        else:
            shutil.rmtree(root, ignore_errors=True)


class Refused(Exception):
    """An answer that is an error, as the server gave it."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{status} {error}")
        self.status = status
        self.code: str = error.get("code", "")
        self.message: str = error.get("message", "")
        self.details: dict[str, Any] = error.get("details", {})


class Caller:
    """One HTTP connection to one node, over which a team makes its calls one by one.

    Calls raise Refused for an error, and Broken or OSError if the connection ends before the answer is whole. A call
    that is cancelled closes the connection; the next call opens another.
    """

    def __init__(self, node: Node, token: str | None = None) -> None:
        self.node = node
        self.token = token
        self._stream: trio.SocketStream | None = None
        self._reader = ResponseReader()

    async def close(self) -> None:
        """Close the connection at once."""
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)
            self._stream = None

    async def move(self, node: Node) -> None:
        """Make the next calls at another node."""
        await self.close()
        self.node = node

    # --- calls -------------------------------------------------------------------------------------------------------

    async def get(
        self, path: str, *, accept: str = "application/json", seconds: float = CALL_SECONDS, **query: Any
    ) -> Any:
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        return await self._call("GET", f"{path}?{asked}" if asked else path, None, accept, seconds)

    async def post(self, path: str, seconds: float = CALL_SECONDS, **body: Any) -> Any:
        given = {name: value for name, value in body.items() if value is not None}
        return await self._call("POST", path, given, "application/json", seconds)

    async def create(self, title: str, name: str = "Convener", **more: Any) -> str:
        """Create a room, be its convener, and return its id."""
        made = await self.post("/api/sessions", title=title, description="", creator_team_name=name, **more)
        self.token = made["team_id"]
        room: str = made["session_id"]
        return room

    async def join(self, room: str, name: str, **more: Any) -> dict[str, Any]:
        """Join a room, and keep the token."""
        joined: dict[str, Any] = await self.post(f"{at(room)}/join", team_name=name, **more)
        self.token = joined["team_id"]
        return joined

    async def say(self, room: str, text: str, key: str | None = None) -> dict[str, Any]:
        said: dict[str, Any] = await self.post(f"{at(room)}/messages", content={"text": text}, key=key)
        return said

    async def wait(self, room: str, since: int | None, timeout: float = 20.0, *, sse: bool = False) -> dict[str, Any]:
        """Wait for messages, over server-sent events if asked."""
        page: dict[str, Any] = await self.get(
            f"{at(room)}/messages/wait",
            accept="text/event-stream" if sse else "application/json",
            seconds=timeout + CALL_SECONDS,
            since_cursor=since,
            timeout=timeout,
        )
        return page

    async def document(self, room: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.get(f"{at(room)}/doc")
        return found

    async def feed(self, room: str) -> list[dict[str, Any]]:
        """Read the whole feed, page by page from its end."""
        messages: list[dict[str, Any]] = []
        before = None
        while True:
            page = await self.get(f"{at(room)}/messages", before_cursor=before, limit=500)
            messages = page["messages"] + messages
            if not page["has_more"]:
                return messages
            before = page["next_cursor"]

    # --- the connection ----------------------------------------------------------------------------------------------

    async def _call(self, method: str, path: str, body: Any, accept: str, seconds: float) -> Any:
        whole = False
        try:
            with trio.fail_after(seconds):
                response = await self._exchange(method, path, body, accept)
            whole = True
        except trio.BrokenResourceError as broken:
            raise Broken("the connection broke") from broken
        except trio.TooSlowError:
            raise Broken(f"{method} {path} was not answered within {seconds:g} s") from None
        finally:
            if not whole:
                await self.close()
        found = response.json()
        if response.status >= 400:
            raise Refused(response.status, found["error"])
        return found

    async def _exchange(self, method: str, path: str, body: Any, accept: str) -> Response:
        if self._stream is None:
            self._stream = await trio.open_tcp_stream("127.0.0.1", self.node.port)
            self._reader = ResponseReader()
        headers = {"Host": f"127.0.0.1:{self.node.port}", "Accept": accept}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        if self.token is not None:
            headers["X-Team-ID"] = self.token
        await self._stream.send_all(request(method, path, headers, data))
        while (found := self._reader.next()) is None:
            self._reader.feed(bytes(await self._stream.receive_some(65536)))
        if found.headers.get("connection", "").lower() == "close":
            await self.close()
        return found


#: Makes a caller of a node, which is closed at the end of the test.
Connect = Callable[[Node], Caller]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes callers."""
    made: list[Caller] = []

    def caller(node: Node) -> Caller:
        made.append(Caller(node))
        return made[-1]

    yield caller
    for each in made:
        await each.close()


def at(room: str) -> str:
    """Return the path of a room."""
    return f"/api/sessions/{quote(room, safe='')}"
