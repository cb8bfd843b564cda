"""HTTP clients by hand: requests as bytes, and responses read from the bytes of a connection.

For benchmarks, whose client must cost little, and for tests that need to see a connection break.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

_END = b"\r\n\r\n"


class Broken(Exception):
    """The connection ended, or what came over it is no HTTP."""


@frozen
class Response:
    """A whole response. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body; of an event stream, the data of its last event that has any. Empty: an empty object."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return json.loads(self.body or b"{}")
        found = None
        for line in self.body.replace(b"\r\n", b"\n").split(b"\n"):
            if line.startswith(b"data: ") and len(line) > 6:
                found = json.loads(line[6:])
        if found is None:
            raise Broken(f"a stream of events ended without data: {self.body[-200:]!r}")
        return found


def request(method: str, path: str, headers: Mapping[str, str], body: bytes | None = None) -> bytes:
    """Return a request as bytes. The headers must name the host."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


class ResponseReader:
    """Reads the responses of one connection, in order."""

    __slots__ = ("_chunks", "_data", "_head", "_left")

    def __init__(self) -> None:
        self._data = b""
        self._head: tuple[int, dict[str, str]] | None = None
        self._chunks: list[bytes] | None = None
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Take what was received. Raises Broken for the end of the connection (no bytes)."""
        if not data:
            raise Broken("the server closed the connection")
        self._data += data

    def next(self) -> Response | None:
        """Return the next response once all of it is here."""
        if self._head is None and not self._read_head():
            return None
        assert self._head is not None
        body = self._whole() if self._chunks is None else self._chunked()
        if body is None:
            return None
        status, headers = self._head
        self._head = self._chunks = None
        return Response(status, headers, body)

    def _read_head(self) -> bool:
        end = self._data.find(_END)
        if end < 0:
            return False
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        self._data = self._data[end + len(_END) :]
        words = first.split(" ", 2)
        if len(words) < 2 or not words[1].isdigit():
            raise Broken(f"a response begins with {first[:80]!r}")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._head = int(words[1]), headers
        if "content-length" in headers or int(words[1]) in (204, 304):
            self._left = int(headers.get("content-length", "0"))
        else:
            self._chunks = []
        return True

    def _whole(self) -> bytes | None:
        if len(self._data) < self._left:
            return None
        body, self._data = self._data[: self._left], self._data[self._left :]
        return body

    def _chunked(self) -> bytes | None:
        assert self._chunks is not None
        while True:
            size, found, rest = self._data.partition(b"\r\n")
            if not found:
                return None
            length = int(size, 16)
            if len(rest) < length + 2:
                return None
            chunk, self._data = rest[:length], rest[length + 2 :]
            if not chunk:
                return b"".join(self._chunks)
            self._chunks.append(chunk)
