"""A small HTTP server on the loopback, scripted: it answers, or does what networks do."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl

import trio
from attrs import define, field, frozen


@frozen
class Asked:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True, strict_parsing=True))


def reply(status: int = 200, headers: str = "", **data: Any) -> bytes:
    return raw(json.dumps(data).encode(), status, headers)


def raw(body: bytes, status: int = 200, headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} Said\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@define
class HttpEnd:
    """`answer` gives the bytes for a request, or None to close the connection; it may raise trio.Cancelled's like."""

    answer: Callable[[Asked], bytes | None]
    port: int = 0
    asked: list[Asked] = field(factory=list)
    connections: int = 0

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/"

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        buffer = b""
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await stream.receive_some(65536):
                buffer += data
                while (taken := _request(buffer)) is not None:
                    asked, buffer = taken
                    self.asked.append(asked)
                    said = self.answer(asked)
                    if said is None:
                        return
                    await stream.send_all(said)


@contextlib.asynccontextmanager
async def http_end(answer: Callable[[Asked], bytes | None]) -> AsyncIterator[HttpEnd]:
    end = HttpEnd(answer)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        end.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, end.serve, listeners)
        yield end
        nursery.cancel_scope.cancel()


def _request(buffer: bytes) -> tuple[Asked, bytes] | None:
    head, found, rest = buffer.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    if len(rest) < length:
        return None
    return Asked(first.split()[1], headers, rest[:length]), rest[length:]
