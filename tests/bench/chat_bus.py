"""The named peer of rooms: AgentChatBus 0.2.2 from PyPI, in an environment and a directory of its own.

Its agents wait over MCP with HTTP+SSE: a call is a POST, and its answer comes over the session's stream of events. It
wakes them for what is posted over MCP, and looks once a second for what is posted over plain HTTP.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.bench_rig import CLIENT
from tests.bench.http_peer import LEGACY, HttpConnection
from tests.rooms.node import free_port
from tests.support.http_responses import Broken, request

#: It was written for the SDK's first version, and does not limit it.
REQUIREMENTS = ("agentchatbus==0.2.2", "mcp<2")
#: Names an environment that is kept, and used again.
KEPT = "CHAT_BUS_VENV"
TIMEOUT_MS = 300_000


@contextmanager
def installed() -> Iterator[ChatBus]:
    """A running server of the package, which is installed first. It ends with this."""
    with tempfile.TemporaryDirectory(prefix="chat-bus-") as made:
        root = Path(made)
        place = Path(os.environ.get(KEPT, root / "venv"))
        program = place / "bin" / "agentchatbus"
        if not program.exists():
            venv.create(place, with_pip=True)
            pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
            subprocess.run([*pip, "install", "--quiet", *REQUIREMENTS], check=True)
        port = free_port()
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": made,
            "AGENTCHATBUS_HOST": "127.0.0.1",
            "AGENTCHATBUS_PORT": str(port),
            "AGENTCHATBUS_DB": str(root / "bus.db"),
            # No limits, and no refusals of posts that cross. It loads its tools again at each call by default, and then
            # finds no waiter to wake.
            "AGENTCHATBUS_RATE_LIMIT": "0",
            "AGENTCHATBUS_SEQ_TOLERANCE": "1000000000",
            "AGENTCHATBUS_RELOAD": "0",
        }
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, "--host", "127.0.0.1", "--port", str(port)],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=root,
            )
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    HttpConnection(port).ask("GET", "/health")
                    break
                except OSError:
                    assert process.poll() is None, (root / "log").read_text()[-2000:]
                    assert time.monotonic() < deadline, "AgentChatBus does not answer"
                    time.sleep(0.1)
            yield ChatBus(port, process.pid)
        finally:
            process.kill()
            process.wait()


class ChatBus:
    """A running server, and clients of it. A thread is what a room is here."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def _ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        # It closes a connection that is idle for five seconds.
        connection = HttpConnection(self.port)
        try:
            return connection.ask(method, path, body, **headers)
        finally:
            connection.close()

    def register(self) -> tuple[str, str]:
        """The id and token of a new agent."""
        made = self._ask("POST", "/api/agents/register", {"ide": "bench", "model": "none"})
        return made["agent_id"], made["token"]

    def thread(self, topic: str) -> str:
        """The id of a new thread."""
        agent, token = self.register()
        asked = {"topic": topic, "creator_agent_id": agent}
        made = self._ask("POST", "/api/threads", asked, **{"X-Agent-Token": token})
        return str(made["id"])

    def end(self, thread: str) -> int:
        return int(self.sync(thread)["current_seq"])

    def sync(self, thread: str, agent: str | None = None) -> dict[str, Any]:
        """What a post must show: the last message that its author knows, and a token for one post."""
        found: dict[str, Any] = self._ask("POST", f"/api/threads/{thread}/sync-context", {"agent_id": agent})
        return found


class BusPoster:
    """Posts over MCP, which wakes those who wait."""

    errors = 0

    def __init__(self, bus: ChatBus, thread: str) -> None:
        self._bus, self._thread = bus, thread
        self._agent, _ = bus.register()
        self._session = SseSession(bus.port)
        self._sync: dict[str, Any] = {}

    @property
    def socket(self) -> socket.socket:
        return self._session.socket

    def prepare(self) -> None:
        self._sync = self._bus.sync(self._thread, self._agent)

    def send(self, text: str) -> None:
        told = {"expected_last_seq": self._sync["current_seq"], "reply_token": self._sync["reply_token"]}
        arguments = {"thread_id": self._thread, "author": self._agent, "content": text, **told}
        self._session.send("tools/call", {"name": "msg_post", "arguments": arguments})

    def take(self) -> bool:
        result = self._session.take()
        if result is None:
            return False
        assert "msg_id" in content(result), result
        return True


class BusHttpPoster:
    """Posts over plain HTTP. After an error, its socket may be another one."""

    def __init__(self, bus: ChatBus, thread: str) -> None:
        self.errors = 0
        self._port = bus.port
        self._connection = HttpConnection(bus.port)
        self._path = f"/api/threads/{thread}/messages"

    @property
    def socket(self) -> socket.socket:
        return self._connection.socket

    def prepare(self) -> None:
        """Nothing: the server makes what a post must show."""

    def send(self, text: str) -> None:
        self._connection.send("POST", self._path, {"author": "bench", "content": text})

    def take(self) -> bool:
        try:
            found = self._connection.take()
        except (Broken, ConnectionError):
            # With an error 500, it also closes the connection.
            self.errors += 1
            self._connection.close()
            self._connection = HttpConnection(self._port)
            return True
        self.errors += found is not None and found.status >= 400
        return found is not None


class BusWaiter:
    """Waits over MCP, as an agent with a token."""

    def __init__(self, bus: ChatBus, thread: str) -> None:
        agent, token = bus.register()
        self._session = SseSession(bus.port)
        self._arguments = {"thread_id": thread, "agent_id": agent, "token": token, "timeout_ms": TIMEOUT_MS}
        self._last = bus.end(thread)

    @property
    def socket(self) -> socket.socket:
        return self._session.socket

    def wait(self) -> None:
        arguments = {**self._arguments, "after_seq": self._last, "return_format": "json"}
        self._session.send("tools/call", {"name": "msg_wait", "arguments": arguments})

    def take(self) -> bool:
        result = self._session.take()
        if result is None:
            return False
        page = content(result)
        assert page["messages"], page
        self._last = page["messages"][-1]["seq"]
        return True


class SseSession:
    """An MCP client over HTTP+SSE."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        headers = {"Host": f"127.0.0.1:{port}", "Accept": "text/event-stream"}
        self.socket.sendall(request("GET", "/mcp/sse", headers))
        self._data = b""
        self._text = b""
        self._count = 0
        while b"\r\n\r\n" not in self._data:
            self._data += self.socket.recv(65536)
        head, _, self._data = self._data.partition(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], head
        self._posts = HttpConnection(port)
        self._path = self._event()["data"]
        self.ask("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT})
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return content(self.ask("tools/call", {"name": tool, "arguments": arguments}))

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.send(method, params)
        while True:
            found = self.take()
            if found is not None:
                return found

    def send(self, method: str, params: dict[str, Any]) -> None:
        """Send a request, and do not wait for its answer."""
        self._count += 1
        self._post({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})

    def take(self) -> dict[str, Any] | None:
        """Read once. Returns the answer to the last request once it is whole."""
        if (event := self._next()) is None:
            self._more()
            event = self._next()
        while event is not None:
            if event.get("event", "message") == "message" and event.get("data"):
                message = json.loads(event["data"])
                if message.get("id") == self._count and "method" not in message:
                    assert "result" in message, message
                    result: dict[str, Any] = message["result"]
                    return result
            event = self._next()
        return None

    def _post(self, message: dict[str, Any]) -> None:
        # Its answer says only that the message was taken.
        self._posts.send("POST", self._path, message)
        assert self._posts.receive().status == 202

    def _event(self) -> dict[str, str]:
        while (found := self._next()) is None:
            self._more()
        return found

    def _next(self) -> dict[str, str] | None:
        """The next whole event that was received."""
        self._decode()
        text, found, rest = self._text.partition(b"\r\n\r\n")
        if not found:
            return None
        self._text = rest
        lines = [line.partition(": ") for line in text.decode().split("\r\n") if not line.startswith(":")]
        return {name: value for name, _, value in lines}

    def _decode(self) -> None:
        """Take the chunks of HTTP out of what was received."""
        while True:
            size, found, rest = self._data.partition(b"\r\n")
            if not found:
                return
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            self._text, self._data = self._text + rest[:length], rest[length + 2 :]

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, "AgentChatBus closed the connection"
        self._data += data


def content(result: dict[str, Any]) -> Any:
    """What the text of a result says."""
    assert not result.get("isError"), result
    return json.loads(result["content"][0]["text"])
