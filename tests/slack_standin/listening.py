"""The stand-in's port: connections that can be cut, frozen or not taken at all, and hypercorn behind them."""

from __future__ import annotations

import logging
import socket
import struct
from contextvars import ContextVar
from typing import Any

import hypercorn.utils
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

_ABORT = struct.pack("ii", 1, 0)  # closing sends a reset, as a network that breaks does


class Wire:
    """One TCP connection. Hypercorn takes it for a trio.SocketStream."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        self._stream = stream
        self._thawed = trio.Event()
        self._thawed.set()
        self._sending = trio.Lock()

    def freeze(self) -> None:
        """From now on nothing goes in or out, and nobody is told."""
        self._thawed = trio.Event()

    def cut(self) -> None:
        """Gone, without a goodbye."""
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        except OSError:
            pass
        self.socket.close()
        self._thawed.set()

    @property
    def frozen(self) -> bool:
        return not self._thawed.is_set()

    async def send_all(self, data: bytes) -> None:
        # A goodbye may be due while a ping or an envelope is on its way out.
        async with self._sending:
            if not self.frozen:
                await self._stream.send_all(data)

    async def receive_some(self, most: int) -> bytes:
        data = await self._stream.receive_some(most)
        await self._thawed.wait()
        return bytes(data)

    async def send_eof(self) -> None:
        async with self._sending:
            if not self.frozen:
                await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()


WIRE: ContextVar[Wire] = ContextVar("wire")  # the connection a request came by


class Port:
    """A port of the loopback interface that can be closed and opened again."""

    def __init__(self, app: Any, nursery: trio.Nursery, *, ping_interval: float) -> None:
        self._app, self._nursery = hypercorn.utils.wrap_app(app, 2**24, "asgi"), nursery
        self._config = Config()
        self._config.websocket_ping_interval = ping_interval
        self._config.websocket_max_message_size = 2**22
        self._config.keep_alive_timeout = 75
        self._config.accesslog, self._config.errorlog = None, logging.getLogger("tests.slack_standin")
        self._context = WorkerContext(None)
        self._wires: set[Wire] = set()
        self._listening: trio.CancelScope | None = None
        self.number = 0

    @property
    def is_open(self) -> bool:
        return self._listening is not None

    async def open(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Take connections, on the port used before or any."""
        listeners = await trio.open_tcp_listeners(self.number or port, host=host)
        self.number = listeners[0].socket.getsockname()[1]
        self._listening = trio.CancelScope()
        self._nursery.start_soon(self._listen, listeners, self._listening)

    def close(self) -> None:
        """Take no more, and cut all there are."""
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        for wire in list(self._wires):
            wire.cut()

    async def _listen(self, listeners: list[trio.SocketListener], scope: trio.CancelScope) -> None:
        with scope:
            await trio.serve_listeners(self._serve, listeners, handler_nursery=self._nursery)

    async def _serve(self, stream: trio.SocketStream) -> None:
        wire = Wire(stream)
        WIRE.set(wire)
        self._wires.add(wire)
        state = ConnectionState({})
        try:
            await TCPServer(self._app, self._config, self._context, state, wire)  # type: ignore[arg-type]
        finally:
            self._wires.discard(wire)
