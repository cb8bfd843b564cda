"""Socket Mode: one socket, the connection that is kept up through many, and what is said when it fails.

The HTTP client opens it, so it uses the same proxies, names and certificates as the Web API. trio-websocket reads and
writes its frames.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
import random as chance
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpcore2
import trio
from attrs import define, field, frozen
from trio_websocket import ConnectionClosed, WebSocketConnection
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection
from wsproto.connection import ConnectionState as FrameState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, generate_accept_token

from actors import Actor
from intercom.operators.slack.interactions import Handler, Handling
from intercom.operators.slack.messages import ConnectionState, Health, SlackStatus, SocketDown, SocketUp
from intercom.operators.slack.web_api import (
    RateLimited,
    SlackApiError,
    SlackRefused,
    SocketLost,
    Unreachable,
    WebApi,
    masked,
)

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


class UpgradedStream(trio.abc.Stream):
    """The connection that the HTTP client has upgraded, as a Trio stream. `trouble` says how it broke, `heard_at` when
    something last came."""

    def __init__(self, network: httpcore2.AsyncNetworkStream, sending: float) -> None:
        self.heard_at = trio.current_time()
        self.trouble: str | None = None
        self._network = network
        self._sending = sending
        self._cut = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        with self._watched():
            data: bytes = await self._network.read(max_bytes or _READ)
        self.heard_at = trio.current_time()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._cut:
            raise trio.BrokenResourceError(self.trouble)
        # After part of a frame, the peer cannot parse what follows. That also holds if this task is cancelled.
        self._cut = True
        with self._watched(), trio.move_on_after(self._sending):
            await self._network.write(bytes(data))
            self._cut = False
        if self._cut:
            self.trouble = f"slack took nothing for {self._sending:g} s"
            raise trio.BrokenResourceError(self.trouble)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except httpcore2.NetworkError as exc:
            self.trouble = f"the connection broke: {exc or type(exc).__name__}"
            raise trio.BrokenResourceError(self.trouble) from None

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await self._network.aclose()


class Socket(WebSocketConnection):
    """An open socket. `read_frames` runs in the background. One task calls `next`; any task may `send`.

    trio-websocket does not report the peer's pings, ends the connection at a message that is too long, and makes the
    handshake itself, without proxies. This subclass adds what is missing. It overrides methods that are not public, so
    the version is limited in setup.cfg.
    """

    def __init__(self, stream: UpgradedStream, limits: SocketLimits) -> None:
        frames = WSConnection(ConnectionType.CLIENT)
        frames.connection = Connection(ConnectionType.CLIENT)
        super().__init__(stream, frames, host="", path="", max_message_size=limits.max_message)
        self._initial_request = None  # the HTTP client has made the handshake
        self._wire = stream
        self._limits = limits
        self._length = 0
        self._slack_pings = False
        self._lively_at = stream.heard_at
        self._ping_at = stream.heard_at + limits.ping_every
        self._said_goodbye = False

    @property
    def heard_at(self) -> float:
        """When Slack last sent anything, by Trio's clock."""
        return self._wire.heard_at

    async def read_frames(self, scope: trio.CancelScope) -> None:
        """Read from the connection until it ends or `scope` is cancelled."""
        with scope:
            await self._reader_task()

    async def next(self) -> dict[str, Any] | None:
        """Return the next message; None if Slack has closed the socket. A message that is no JSON object is ignored.

        It also keeps the socket alive, so call it again soon. Raises SocketLost if the connection broke, or nothing
        came for too long.
        """
        while True:
            with trio.CancelScope(deadline=min(self._ping_at, self._silent_at())) as waiting:
                try:
                    message = await self.get_message()
                except ConnectionClosed as closed:
                    lost = self._wire.trouble
                    if _is_abnormal(closed) and not self._said_goodbye:
                        lost = lost or "slack closed the connection without a word"
                    if lost is not None:
                        raise SocketLost(lost) from None
                    return None
            if not waiting.cancelled_caught:
                if (read := _read_object(message)) is not None:
                    return read
            elif trio.current_time() >= self._silent_at():
                self._wire.trouble = f"nothing was heard from slack for {self._limits.silence:g} s"
                raise SocketLost(self._wire.trouble)
            elif trio.current_time() >= self._ping_at:
                self._ping_at = trio.current_time() + self._limits.ping_every
                if self._wsproto.state is FrameState.OPEN:
                    await self._write(Ping(secrets.token_bytes(4)))

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message as JSON. Raises SocketLost if it was not sent; then the socket can no longer be used."""
        await self._write(TextMessage(json.dumps(await masked(message))))

    async def say_goodbye(self) -> None:
        """Begin to close. Nothing can be sent from here on; `next` still reads what Slack sends."""
        self._said_goodbye = True
        await self._write(CloseConnection(1000))

    def _silent_at(self) -> float:
        return (self._lively_at if self._slack_pings else self._wire.heard_at) + self._limits.silence

    async def _write(self, event: Event) -> None:
        try:
            await self._send(event)
        except (ConnectionClosed, LocalProtocolError):
            raise SocketLost(self._wire.trouble or "the socket is closed") from None

    async def _handle_ping_event(self, event: Ping) -> None:
        self._slack_pings = True
        self._lively_at = trio.current_time()
        if self._wsproto.state is FrameState.OPEN:
            await super()._handle_ping_event(event)

    async def _handle_message_event(self, event: BytesMessage | TextMessage) -> None:
        if isinstance(event, TextMessage):
            self._lively_at = trio.current_time()
        self._length += len(event.data)
        if self._length > self._limits.max_message:
            # Without the rest it is no JSON any more, and `next` ignores it. The socket stays.
            event = dataclasses.replace(event, data=event.data[:0])  # type: ignore[arg-type]
        if event.message_finished:
            self._length = 0
        await super()._handle_message_event(event)

    async def _handle_close_connection_event(self, event: CloseConnection) -> None:
        if self._wsproto.state is FrameState.OPEN:
            # wsproto reports bytes that are no frame as a close.
            self._wire.trouble = f"slack sent what is no websocket frame: {event.reason}"
        await super()._handle_close_connection_event(event)


def _is_abnormal(closed: ConnectionClosed) -> bool:
    return closed.reason is None or closed.reason.code == CloseReason.ABNORMAL_CLOSURE


def _read_object(message: str | bytes) -> dict[str, Any] | None:
    """Return the JSON object in a message; None if there is none."""
    try:
        read = json.loads(message) if isinstance(message, str) else None
    except (ValueError, RecursionError):
        read = None
    if isinstance(read, dict):
        return read
    log.warning("slack sent a message that is no JSON object or too long, which is passed over")
    return None


@asynccontextmanager
async def open_socket(web: WebApi, url: str, limits: SocketLimits, nursery: trio.Nursery) -> AsyncIterator[Socket]:
    """Open the address from `apps.connections.open`; at the end close the socket without waiting. Raises Unreachable if
    it does not open within `limits.opening`. `nursery` runs its reader."""
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
            socket = Socket(UpgradedStream(response.extensions["network_stream"], limits.sending), limits)
            reading = trio.CancelScope()
            nursery.start_soon(socket.read_frames, reading)
            try:
                yield socket
            finally:
                reading.cancel()
    if late.cancelled_caught:
        raise Unreachable(f"the socket did not open within {limits.opening:g} s", maybe_done=False)


#: Slack's code if the app may open no more sockets.
TOO_MANY = "too_many_websockets"
LINK_DISABLED = "link_disabled"

_NEW_TOKEN = "make a new one (app settings, basic information, app-level tokens) and run agent-intercom slack login"

_SWITCHED_OFF = "socket mode is switched off for the app: switch it on (app settings, socket mode)"

_SENTENCES = {
    "not_authed": "there is no app-level token: run agent-intercom slack login",
    "not_allowed_token_type": f"the app-level token is of another kind, it begins with xapp-: {_NEW_TOKEN}",
    "missing_scope": f"the app-level token lacks the scope connections:write: {_NEW_TOKEN}",
    **dict.fromkeys((LINK_DISABLED, "socket_mode_disabled"), _SWITCHED_OFF),
    TOO_MANY: "slack allows an app ten sockets and all are taken: stop other programs that connect as this app",
    **{
        word: f"slack does not take the app-level token ({word}): {_NEW_TOKEN}"
        for word in ("invalid_auth", "token_revoked", "token_expired", "account_inactive")
    },
}


@frozen
class Patience:
    """The waiting times of the connection, in seconds.

    After a failure the first retry is immediate. The next pause is `backoff_first`, doubled with each failure in a row,
    up to `backoff_max`. Each pause is shortened at random, to no less than half. A socket that lasted `stable` ends the
    row. An error that a person must fix is retried every `slow`. A replaced socket is read for `overlap` more. At a
    stop, handlers get `stop` to end.
    """

    backoff_first: float = 0.5
    backoff_max: float = 30.0
    stable: float = 30.0
    slow: float = 60.0
    overlap: float = 10.0
    stop: float = 2.0


class Disconnected(Exception):
    """Slack closes a socket; `reason` is its code."""

    def __init__(self, reason: str) -> None:
        super().__init__(_SENTENCES.get(reason, f"slack takes the socket away ({reason})"))
        self.reason = reason


def is_for_people(trouble: Exception) -> bool:
    """Return whether only a person can fix the error."""
    if isinstance(trouble, Disconnected):
        return trouble.reason == LINK_DISABLED
    return isinstance(trouble, SlackRefused)


def sentence(trouble: Exception) -> str:
    """Return the problem and its remedy, for people."""
    if isinstance(trouble, SlackRefused):
        return _SENTENCES.get(trouble.error, f"slack refuses to open a socket ({trouble.error})")
    return str(trouble)


def wait_after(trouble: Exception, failures: int, patience: Patience, random: float) -> float:
    """Return the seconds until the next try after `failures` in a row, this one included. `random` is from 0 to 1."""
    if is_for_people(trouble):
        return patience.slow * (1 + random / 4)
    if isinstance(trouble, Disconnected) and trouble.reason == TOO_MANY:
        failures += 1
    # After 64 doublings any limit is reached, and a float would overflow.
    whole = 0.0 if failures <= 1 else patience.backoff_first * 2.0 ** min(failures - 2, 64)
    wait = min(whole, patience.backoff_max) * (0.5 + random / 2)
    return max(wait, trouble.retry_after) if isinstance(trouble, RateLimited) else wait


@frozen
class News:
    """The state of the connection; `trouble` is a sentence about the error, None if there is none."""

    state: ConnectionState
    trouble: str | None = None


@define(eq=False)
class _Live:
    """A socket on which Slack said hello. `over` is set once it must be replaced; `trouble` says why."""

    socket: Socket
    since: float
    reading: trio.CancelScope = field(factory=trio.CancelScope)
    over: trio.Event = field(factory=trio.Event)
    trouble: Exception = field(factory=lambda: SocketLost("slack closed the socket"))

    def end(self, trouble: Exception | None = None) -> None:
        if not self.over.is_set():
            self.trouble = trouble or self.trouble
            self.over.set()


class Upkeep:
    """Keeps one socket open while `run` runs, and reports each change to `report`. `opened` counts the sockets so far.
    `random` returns a number from 0 to 1."""

    def __init__(
        self,
        web: WebApi,
        handling: Handling,
        report: Callable[[News], None],
        limits: SocketLimits,
        patience: Patience,
        random: Callable[[], float],
    ) -> None:
        self.opened = 0
        self._web = web
        self._handling = handling
        self._report = report
        self._limits = limits
        self._patience = patience
        self._random = random
        self._live: list[_Live] = []
        self._heard_at: float | None = None
        self._stopping = trio.Event()

    @property
    def heard_at(self) -> float | None:
        """When Slack last sent anything, by Trio's clock; None if it never did."""
        return max((live.socket.heard_at for live in self._live), default=self._heard_at)

    async def run(self) -> None:
        """Keep a socket open until cancelled; then give running handlers a short time to end."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_shielded)
            try:
                await trio.sleep_forever()
            finally:
                self._stopping.set()

    async def _run_shielded(self) -> None:
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                keeping = trio.CancelScope()
                nursery.start_soon(self._keep, keeping, nursery)
                await self._stopping.wait()
                keeping.cancel()
                with trio.move_on_after(self._patience.stop):
                    await self._handling.until_idle()
                with trio.move_on_after(self._limits.closing):
                    for live in self._live:
                        await _say_goodbye(live.socket)
                nursery.cancel_scope.cancel()

    async def _keep(self, scope: trio.CancelScope, nursery: trio.Nursery) -> None:
        failures = 0
        with scope:
            while True:
                for old in self._live[:-1]:
                    old.reading.cancel()
                try:
                    live: _Live = await nursery.start(self._attend, nursery)
                except (SlackApiError, Disconnected) as failed:
                    trouble: Exception = failed
                    failures += 1
                else:
                    for old in self._live[:-1]:
                        old.reading.deadline = trio.current_time() + self._patience.overlap
                    await live.over.wait()
                    trouble = live.trouble
                    failures = 1 if trio.current_time() - live.since >= self._patience.stable else failures + 1
                seconds = wait_after(trouble, failures, self._patience, self._random())
                log.info("slack's socket is opened again in %.1f s: %s", seconds, sentence(trouble))
                if not self._live:
                    self._report(News(_state(trouble, seconds), sentence(trouble)))
                await trio.sleep(seconds)

    async def _attend(
        self, nursery: trio.Nursery, *, task_status: trio.TaskStatus[_Live] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Open a socket, report when Slack has said hello, and read it to its end."""
        url = (await self._web.call("apps.connections.open", app=True)).get("url")
        if not isinstance(url, str):
            raise Unreachable("slack gave no address for a socket", maybe_done=False)
        async with open_socket(self._web, url, self._limits, nursery) as socket:
            live = _Live(socket, trio.current_time())
            await self._greeted(live, nursery)
            self._live.append(live)
            self.opened += 1
            self._report(News(ConnectionState.UP))
            task_status.started(live)
            try:
                with live.reading:
                    await self._read(live, nursery)
                    live.end()
                with trio.move_on_after(self._limits.closing):
                    await _say_goodbye(socket)
                    await self._read(live, nursery)
            except SocketLost as lost:
                live.end(lost)
            finally:
                self._heard_at = socket.heard_at
                self._live.remove(live)
                if not self._live and not self._stopping.is_set():
                    self._report(News(_state(live.trouble, 0.0), sentence(live.trouble)))

    async def _greeted(self, live: _Live, nursery: trio.Nursery) -> None:
        with trio.move_on_after(self._limits.opening):
            while (message := await live.socket.next()) is not None:
                if message.get("type") == "hello":
                    return
                self._on(live, message, nursery)
                if live.over.is_set():
                    raise live.trouble
            raise SocketLost("slack closed the socket before it said hello")
        raise SocketLost(f"slack did not say hello within {self._limits.opening:g} s")

    async def _read(self, live: _Live, nursery: trio.Nursery) -> None:
        while (message := await live.socket.next()) is not None:
            self._on(live, message, nursery)

    def _on(self, live: _Live, message: dict[str, Any], nursery: trio.Nursery) -> None:
        match message.get("type"):
            case "hello":
                pass
            case "disconnect":
                live.end(Disconnected(str(message.get("reason"))))
            case _ if not self._stopping.is_set():
                self._handling.take(message, partial(self._acknowledge, live.socket), nursery)

    async def _acknowledge(self, came_by: Socket, answer: dict[str, Any]) -> None:
        # Slack accepts an acknowledgement on any of the app's sockets.
        others = [live.socket for live in reversed(self._live) if live.socket is not came_by]
        for socket in (came_by, *others):
            try:
                await socket.send(answer)
            except SocketLost:
                continue
            return
        log.info("no socket was up to acknowledge an envelope by; slack will send it again")


async def _say_goodbye(socket: Socket) -> None:
    try:
        await socket.say_goodbye()
    except SocketLost:
        pass


def _state(trouble: Exception, seconds: float) -> ConnectionState:
    if is_for_people(trouble):
        return ConnectionState.REFUSED
    return ConnectionState.WAITING if seconds else ConnectionState.CONNECTING


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SlackConnection(Actor):
    """Keeps one Socket Mode socket open and passes its envelopes to `handle`; registered as `slack/connection`.

    It tells the actor named `channel` `SocketUp` and `SocketDown`, and answers `Health`. An envelope is acknowledged
    when `handle` returns, so the action is recorded by then. If `handle` raises, Slack sends the envelope again.
    `at_once` handlers run at the same time. `web` must be open. At a stop, running handlers get `patience.stop` seconds
    to end. `random` returns a number from 0 to 1, `now` the time.
    """

    def __init__(
        self,
        web: WebApi,
        handle: Handler,
        *,
        channel: str = "slack/channel",
        patience: Patience | None = None,
        limits: SocketLimits | None = None,
        at_once: int = 64,
        random: Callable[[], float] = chance.random,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        super().__init__()
        self._channel = channel
        self._now = now
        self._handling = Handling(handle, at_once=at_once)
        self._upkeep = Upkeep(web, self._handling, self._hear, limits or SocketLimits(), patience or Patience(), random)
        self._state = ConnectionState.CONNECTING
        self._last_error: str | None = None
        self._since = now()

    def on_start(self) -> None:
        self._since = self._now()
        self.spawn(self._upkeep.run)

    def on_receive(self, message: Any) -> SlackStatus | None:
        match message:
            case News():
                self._take(message)
            case Health():
                return self._standing()
        return None

    def _hear(self, news: News) -> None:
        if self.actor_ref.is_alive():
            self.actor_ref.tell(news)

    def _take(self, news: News) -> None:
        was, known = self._state, self._last_error
        self._state = news.state
        self._last_error = news.trouble or known
        is_up, was_up = news.state is ConnectionState.UP, was is ConnectionState.UP
        if is_up != was_up:
            self._since = self._now()
        channel = self.system.named(self._channel)
        if is_up and not was_up:
            channel.tell(SocketUp())
        elif not is_up and (was_up or news.trouble != known):
            channel.tell(SocketDown(news.trouble or "not connected yet"))

    def _standing(self) -> SlackStatus:
        heard = self._upkeep.heard_at
        return SlackStatus(
            state=self._state,
            since=self._since,
            reconnects=max(self._upkeep.opened - 1, 0),
            last_error=self._last_error,
            last_heard=None if heard is None else self._now() - timedelta(seconds=trio.current_time() - heard),
            in_hand=self._handling.in_hand,
        )
