"""Servers on the loopback for the tests of HTTP carriers: one that a test scripts byte by byte, and the SDK's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import h11
import hypercorn.trio
import trio
from attrs import field, frozen, mutable
from hypercorn.config import Config
from starlette.types import ASGIApp


@mutable
class Request:
    """A request that a scripted server got. `stream` is where the response is written to, as bytes."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    stream: trio.SocketStream = field(repr=False)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> int:
        found: int = self.json["id"]
        return found

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.body.decode()).items()}

    async def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Write a whole response."""
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.stream.send_all("\r\n".join([*lines, "", ""]).encode() + body)

    async def json_response(self, message: object, status: int = 200, **headers: str) -> None:
        await self.respond(status, json.dumps(message).encode(), content_type="application/json", **headers)

    async def result(self, result: object = None, **headers: str) -> None:
        """Write the answer to a JSON-RPC request."""
        await self.json_response({"jsonrpc": "2.0", "id": self.id, "result": result or {}}, 200, **headers)

    async def begin_events(self, **headers: str) -> None:
        """Write the head of a stream that ends with its connection."""
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream", "connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.stream.send_all("\r\n".join([*lines, "", ""]).encode())

    async def event(self, message: object, id: str = "") -> None:
        data = json.dumps(message) if not isinstance(message, str) else message
        head = f"id: {id}\n" if id else ""
        await self.stream.send_all(f"{head}data: {data}\n\n".encode())

    async def wait_closed(self) -> None:
        """Wait until the client has closed the connection."""
        try:
            while await self.stream.receive_some(65_536):
                pass
        except trio.BrokenResourceError:
            pass


Handler = Callable[[Request], Awaitable[object]]


@frozen
class Scripted:
    """A running server of `scripted`. `requests` are those so far."""

    url: str
    requests: list[Request]


@asynccontextmanager
async def scripted(handler: Handler) -> AsyncIterator[Scripted]:
    """Serve HTTP with a handler; the connection is closed after the response if the handler returns False."""
    requests: list[Request] = []

    async def serve(stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        try:
            async with stream:
                while (request := await _next_request(connection, stream)) is not None:
                    requests.append(request)
                    if await handler(request) is False:
                        return
                    # The response was written past h11.
                    connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    connection.send(h11.EndOfMessage())
                    connection.start_next_cycle()
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass

    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        port = listener.socket.getsockname()[1]
        try:
            yield Scripted(f"http://127.0.0.1:{port}/mcp", requests)
        except Exception as error:  # as itself, not in the nursery's group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _next_request(connection: h11.Connection, stream: trio.SocketStream) -> Request | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(65_536))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
            return Request(head.method.decode(), head.target.decode(), headers, body, stream)
        else:
            return None


@asynccontextmanager
async def asgi_server(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an ASGI application with hypercorn on Trio. Yields the address without a path."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.loglevel = "CRITICAL"
    config.graceful_timeout = 0.1
    async with trio.open_nursery() as nursery:
        binds: list[str] = await nursery.start(hypercorn.trio.serve, app, config)
        yield binds[0]
        nursery.cancel_scope.cancel()
