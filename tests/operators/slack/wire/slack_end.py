"""Slack's end of the wire, scripted, in memory: for tests in virtual time."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import httpcore2
import httpx2
import trio
import trio.testing
from wsproto import ConnectionType
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

HELLO = {"type": "hello", "num_connections": 1, "connection_info": {"app_id": "A1"}}


def envelope(envelope_id: str, kind: str = "interactive", *, takes_payload: bool = True, **payload: Any) -> Any:
    return {
        "envelope_id": envelope_id,
        "type": kind,
        "accepts_response_payload": takes_payload,
        "payload": payload or {"type": "block_actions", "id": envelope_id},
    }


def answer(status: int = 200, headers: dict[str, str] | None = None, **data: Any) -> Callable[[], httpx2.Response]:
    return lambda: httpx2.Response(status, headers=headers, json=data)


def unreachable() -> httpx2.Response:
    raise httpx2.ConnectError("connection refused")


class MemoryStream(httpcore2.AsyncNetworkStream):
    """What httpx2 hands over after a handshake."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise httpcore2.ReadError("broken") from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            await self._stream.send_all(buffer)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise httpcore2.WriteError("broken") from None

    async def aclose(self) -> None:
        await self._stream.aclose()


class Body(httpx2.AsyncByteStream):
    """A response whose end is the end of its connection."""

    def __init__(self, stream: MemoryStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> Any:
        yield b""

    async def aclose(self) -> None:
        await self._stream.aclose()


class Link:
    """Slack's end of one socket. Pongs unless told not to; remembers what it got and when."""

    def __init__(self, stream: trio.abc.Stream, opened_at: float) -> None:
        self.opened_at = opened_at
        self.closed_at: float | None = None
        self.received: list[Any] = []
        self.pings = 0
        self.answers_pings = True
        self._stream = stream
        self._frames = Frames(ConnectionType.SERVER)
        self._arrived = trio.lowlevel.ParkingLot()
        self._turn = trio.Lock()

    @property
    def is_open(self) -> bool:
        return self.closed_at is None and self._frames.state is ConnectionState.OPEN

    @property
    def acks(self) -> list[str]:
        return [message["envelope_id"] for message in self.received]

    async def send(self, *messages: Any) -> None:
        for message in messages:
            await self.send_raw(message if isinstance(message, str) else json.dumps(message))

    async def send_raw(self, data: str | bytes) -> None:
        await self._send(TextMessage(data) if isinstance(data, str) else BytesMessage(data))

    async def send_bytes(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def ping(self) -> None:
        await self._send(Ping(b"from applink"))

    async def close(self) -> None:
        await self._send(CloseConnection(1000))

    async def _send(self, event: Any) -> None:
        async with self._turn:
            if isinstance(event, Pong) and self._frames.state is not ConnectionState.OPEN:
                return
            await self._stream.send_all(self._frames.send(event))

    async def drop(self) -> None:
        await self._stream.aclose()

    async def until(self, count: int, seconds: float = 300.0) -> None:
        """Wait until so many messages have come."""
        with trio.fail_after(seconds):
            while len(self.received) < count:
                await self._arrived.park()

    async def until_closed(self, seconds: float = 300.0) -> None:
        with trio.fail_after(seconds):
            while self.closed_at is None:
                await self._arrived.park()

    async def listen(self) -> None:
        try:
            while data := await self._stream.receive_some():
                self._frames.receive_data(bytes(data))
                for event in self._frames.events():
                    await self._on(event)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.closed_at = trio.current_time()
        self._arrived.unpark_all()

    async def _on(self, event: Any) -> None:
        match event:
            case TextMessage():
                self.received.append(json.loads(event.data))
            case Ping():
                self.pings += 1
                if self.answers_pings:
                    await self._send(event.response())
            case Pong():
                pass
            case CloseConnection() if self._frames.state is ConnectionState.REMOTE_CLOSING and self.answers_pings:
                await self._send(event.response())
        self._arrived.unpark_all()


class SlackEnd(httpx2.AsyncBaseTransport):
    """Answers apps.connections.open (from `script`, then ok) and takes sockets, greeting each unless told not to."""

    def __init__(self, nursery: trio.Nursery, script: Iterable[Callable[[], httpx2.Response]] = ()) -> None:
        self.script = deque(script)
        self.opens: list[float] = []
        self.links: list[Link] = []
        self.greets = True
        self.first: Any = None
        self.accepts = True
        self._nursery = nursery
        self._came = trio.lowlevel.ParkingLot()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await trio.lowlevel.checkpoint()
        if request.headers.get("Upgrade") == "websocket":
            return await self._accept(request)
        assert request.url.path == "/api/apps.connections.open"
        assert request.headers["Authorization"] == "Bearer xapp-1"
        self.opens.append(trio.current_time())
        if self.script:
            return self.script.popleft()()
        return httpx2.Response(200, json={"ok": True, "url": "wss://wss.slack.test/link/?ticket=secret-ticket"})

    async def _accept(self, request: httpx2.Request) -> httpx2.Response:
        if not self.accepts:
            return httpx2.Response(404)
        ours, theirs = trio.testing.memory_stream_pair()
        link = Link(theirs, trio.current_time())
        self._nursery.start_soon(link.listen)
        if self.first is not None:
            await link.send(self.first)
        if self.greets:
            await link.send(HELLO)
        self.links.append(link)
        self._came.unpark_all()
        key = request.headers["Sec-WebSocket-Key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key).digest()).decode()
        stream = MemoryStream(ours)
        return httpx2.Response(
            101, headers={"Sec-WebSocket-Accept": accept}, stream=Body(stream), extensions={"network_stream": stream}
        )

    async def link(self, number: int, seconds: float = 600.0) -> Link:
        """The socket of this number, from 1, once it is there."""
        with trio.fail_after(seconds):
            while len(self.links) < number:
                await self._came.park()
        return self.links[number - 1]
