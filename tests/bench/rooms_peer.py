"""Clients of rooms by hand, for benchmarks: teams that post and wait, over plain HTTP and over MCP at /api/mcp."""

from __future__ import annotations

import socket
from typing import Any, Protocol
from urllib.parse import quote

from tests.bench.http_peer import HttpConnection, HttpPeer, result_of
from tests.support.http_responses import Response

#: The time limit of a wait, in seconds; the server may clamp it.
TIMEOUT = 300


class Poster(Protocol):
    """Posts messages, one after the other."""

    #: How many answers were errors.
    errors: int

    @property
    def socket(self) -> socket.socket: ...

    def prepare(self) -> None:
        """Do what the server wants before each post."""

    def send(self, text: str) -> None:
        """Post, and do not wait for the answer."""

    def take(self) -> bool:
        """Read once. Returns True once the answer is whole."""
        ...


class Waiter(Protocol):
    """Waits for messages, again and again. Each wait begins after what the one before has returned."""

    @property
    def socket(self) -> socket.socket: ...

    def wait(self) -> None:
        """Wait for messages, and do not wait for the answer."""

    def take(self) -> bool:
        """Read once. Returns True once the messages are there; raises if the answer is an error or has none."""
        ...


class Room:
    """A room on a server, by the port of a node."""

    def __init__(self, port: int, title: str = "bench") -> None:
        made = HttpConnection(port).ask(
            "POST", "/api/sessions", {"title": title, "description": "", "creator_team_name": "Convener"}
        )
        self.id: str = made["session_id"]
        self.token: str = made["team_id"]
        self.path = f"/api/sessions/{quote(self.id, safe='')}"

    def join(self, port: int, name: str) -> tuple[str, int]:
        """Join as a new team; its token and cursor."""
        connection = HttpConnection(port)
        joined = connection.ask("POST", f"{self.path}/join", {"team_name": name})
        connection.close()
        return joined["team_id"], joined["cursor"]

    def end(self, port: int) -> int:
        """The cursor of the last message."""
        page = HttpConnection(port, {"X-Team-ID": self.token}).ask("GET", f"{self.path}/messages?limit=1")
        return int(page["messages"][-1]["cursor"]) if page["messages"] else 0


class HttpPoster:
    def __init__(self, port: int, room: Room, token: str) -> None:
        self.errors = 0
        headers = {"X-Team-ID": token}
        self._connection = HttpConnection(port, headers)
        self._path = f"{room.path}/messages"

    @property
    def socket(self) -> socket.socket:
        return self._connection.socket

    def prepare(self) -> None:
        """Nothing is needed."""

    def send(self, text: str) -> None:
        self._connection.send("POST", self._path, {"content": {"text": text}})

    def take(self) -> bool:
        found = self._connection.take()
        self.errors += found is not None and found.status != 200
        return found is not None


class HttpWaiter:
    def __init__(self, port: int, room: Room, token: str, cursor: int) -> None:
        self._connection = HttpConnection(port, {"X-Team-ID": token, "Accept": "application/json"})
        self._path = f"{room.path}/messages/wait"
        self.cursor = cursor

    @property
    def socket(self) -> socket.socket:
        return self._connection.socket

    def wait(self) -> None:
        self._connection.send("GET", f"{self._path}?since_cursor={self.cursor}&timeout={TIMEOUT}")

    def take(self) -> bool:
        found = _good(self._connection.take())
        if found is None:
            return False
        self.cursor = _moved(self.cursor, found.json())
        return True


class McpPoster:
    def __init__(self, port: int, room: Room, token: str) -> None:
        self.errors = 0
        self._peer = HttpPeer(port, "/api/mcp", None, legacy=False)
        self._arguments = {"session_id": room.id, "team_id": token}

    @property
    def socket(self) -> socket.socket:
        return self._peer.connection.socket

    def prepare(self) -> None:
        """Nothing is needed."""

    def send(self, text: str) -> None:
        self._peer.send("post_message", {**self._arguments, "content": {"text": text}})

    def take(self) -> bool:
        found = _good(self._peer.connection.take())
        if found is not None:
            _content(found)
        return found is not None


class McpWaiter:
    def __init__(self, port: int, room: Room, token: str, cursor: int) -> None:
        self._peer = HttpPeer(port, "/api/mcp", None, legacy=False)
        self._arguments = {"session_id": room.id, "team_id": token, "timeout": TIMEOUT}
        self.cursor = cursor

    @property
    def socket(self) -> socket.socket:
        return self._peer.connection.socket

    def wait(self) -> None:
        self._peer.send("wait_for_messages", {**self._arguments, "since_cursor": self.cursor})

    def take(self) -> bool:
        found = _good(self._peer.connection.take())
        if found is None:
            return False
        self.cursor = _moved(self.cursor, _content(found))
        return True


def _good(response: Response | None) -> Response | None:
    assert response is None or response.status in (200, 201), (response.status, response.body[:500])
    return response


def _content(response: Response) -> dict[str, Any]:
    result = result_of(response)
    assert not result.get("isError"), result
    content: dict[str, Any] = result["structuredContent"]
    return content


def _moved(cursor: int, page: dict[str, Any]) -> int:
    """The cursor after a page, which must have what comes next."""
    assert page["messages"], page
    assert page["messages"][0]["cursor"] == cursor + 1, (cursor, page)
    return int(page["next_cursor"])
