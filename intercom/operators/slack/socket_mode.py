"""One Socket Mode socket: handshake, frames, pings, and the detection of a dead connection.

The HTTP client opens it, so it uses the same proxies, names and certificates as the Web API. wsproto reads and writes
its frames.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpcore2
import trio
from attrs import frozen
from wsproto import ConnectionType
from wsproto.connection import Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, generate_accept_token

from intercom.operators.slack import outgoing
from intercom.operators.slack.errors import SocketLost, Unreachable
from intercom.operators.slack.web import WebApi

log = logging.getLogger(__name__)

_READ = 64 * 1024


@frozen
class SocketLimits:
    """The limits of one socket. All times are in seconds.

    A socket is dead if nothing came for `silence`. Once Slack has pinged on it, the answers to our pings no longer
    count, because an intermediary may send them. We ping every `ping_every`. `opening` limits the handshake, `sending`
    one outgoing message, `closing` Slack's close frame. A message over `max_message` characters is dropped.
    """

    silence: float = 30.0
    ping_every: float = 10.0
    opening: float = 10.0
    sending: float = 5.0
    closing: float = 1.0
    max_message: int = 4 * 2**20


class Socket:
    """An open socket. One task reads it with `next`; any task may `send`."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, limits: SocketLimits) -> None:
        self.heard_at = trio.current_time()
        self._stream = stream
        self._limits = limits
        self._frames = Connection(ConnectionType.CLIENT)
        self._ready: deque[dict[str, Any]] = deque()
        self._parts: list[str] = []
        self._length = 0
        self._turn = trio.StrictFIFOLock()
        self._slack_pings = False
        self._lively_at = self.heard_at
        self._ping_at = self.heard_at + limits.ping_every
        self._dead = False

    async def next(self) -> dict[str, Any] | None:
        """Return the next message; None if Slack has closed the socket. A message that is no JSON object is ignored.

        It also keeps the socket alive, so call it again soon. Raises SocketLost if the connection broke, or nothing
        came for too long.
        """
        while not self._ready:
            if self._dead or self._frames.state is ConnectionState.CLOSED:
                return None
            data = await self._read()
            if data is not None:
                await self._take(data)
            elif self._frames.state is ConnectionState.OPEN:
                await self._write(Ping(secrets.token_bytes(4)))
        return self._ready.popleft()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message as JSON. Raises SocketLost if it was not sent; then the socket can no longer be used."""
        if self._dead or self._frames.state is not ConnectionState.OPEN:
            raise SocketLost("the socket is closed")
        await self._write(TextMessage(json.dumps(await outgoing.masked(message))))

    async def say_goodbye(self) -> None:
        """Begin to close. Nothing can be sent from here on; `next` still reads what Slack sends."""
        if not self._dead and self._frames.state is ConnectionState.OPEN:
            await self._write(CloseConnection(1000))

    async def _read(self) -> bytes | None:
        """Read bytes, empty at the end; None if a ping is due."""
        silent_at = self._lively_at + self._limits.silence
        with trio.move_on_at(min(self._ping_at, silent_at)):
            try:
                data: bytes = await self._stream.read(_READ)
            except httpcore2.NetworkError as exc:
                self._dead = True
                raise SocketLost(f"the connection broke: {exc or type(exc).__name__}") from None
            return data
        now = trio.current_time()
        if now >= silent_at:
            self._dead = True
            raise SocketLost(f"nothing was heard from slack for {self._limits.silence:g} s")
        self._ping_at = now + self._limits.ping_every
        return None

    async def _take(self, data: bytes) -> None:
        self.heard_at = trio.current_time()
        if not self._slack_pings:
            self._lively_at = self.heard_at
        if not data and self._frames.state is not ConnectionState.LOCAL_CLOSING:
            self._dead = True
            raise SocketLost("slack closed the connection without a word")
        self._frames.receive_data(data or None)
        for event in self._frames.events():
            await self._on(event)

    async def _on(self, event: Event) -> None:
        match event:
            case Ping():
                self._slack_pings = True
                self._lively_at = self.heard_at
                if self._frames.state is ConnectionState.OPEN:
                    await self._write(event.response())
            case TextMessage():
                self._lively_at = self.heard_at
                self._piece(event)
            case BytesMessage():
                if event.message_finished:
                    log.warning("slack sent a binary message, which is passed over")
            case CloseConnection():
                if self._frames.state is ConnectionState.REMOTE_CLOSING:
                    await self._write(event.response())
                elif self._frames.state is ConnectionState.OPEN:
                    # wsproto reports bytes that are no frame as a close.
                    self._dead = True
                    raise SocketLost(f"slack sent what is no websocket frame: {event.reason}")

    def _piece(self, event: TextMessage) -> None:
        self._length += len(event.data)
        if self._length <= self._limits.max_message:
            self._parts.append(event.data)
        if not event.message_finished:
            return
        text, length = "".join(self._parts), self._length
        self._parts.clear()
        self._length = 0
        if length > self._limits.max_message:
            log.warning("slack sent a message of %d characters, which is passed over", length)
            return
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self._ready.append(message)
        else:
            log.warning("slack sent a message that is no JSON object, which is passed over")

    async def _write(self, event: Event) -> None:
        async with self._turn:
            try:
                data = self._frames.send(event)
            except LocalProtocolError:
                raise SocketLost("the socket is closed") from None
            whole = False
            try:
                with trio.move_on_after(self._limits.sending):
                    await self._stream.write(data)
                    whole = True
            except httpcore2.NetworkError as exc:
                raise SocketLost(f"the connection broke: {exc or type(exc).__name__}") from None
            finally:
                # After part of a frame, the peer cannot parse what follows.
                self._dead = self._dead or not whole
            if not whole:
                raise SocketLost(f"slack took nothing for {self._limits.sending:g} s")


@asynccontextmanager
async def open_socket(web: WebApi, url: str, limits: SocketLimits) -> AsyncIterator[Socket]:
    """Open the address from `apps.connections.open`; at the end close the socket without waiting. Raises Unreachable if
    it does not open within `limits.opening`."""
    key = base64.b64encode(secrets.token_bytes(16))
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": key.decode(),
        "Sec-WebSocket-Version": "13",
    }
    late = trio.CancelScope(deadline=trio.current_time() + limits.opening)
    with late:
        async with web.upgraded(url, headers) as response:
            late.deadline = float("inf")
            given = response.headers.get("Sec-WebSocket-Accept", "").encode()
            if response.status_code != 101 or given != generate_accept_token(key):
                why = f"slack did not open the socket (HTTP {response.status_code})"
                raise Unreachable(why, maybe_done=False)
            yield Socket(response.extensions["network_stream"], limits)
    if late.cancelled_caught:
        raise Unreachable(f"the socket did not open within {limits.opening:g} s", maybe_done=False)
