"""Socket Mode: one socket, the connection that is kept up through many, and the envelopes that arrive by it.

The HTTP client makes the handshake, so a socket uses the same proxies, names and certificates as the Web API. wsproto
reads and writes its frames.
"""

from __future__ import annotations

import base64
import json
import logging
import random as chance
import secrets
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import httpcore2
import trio
from attrs import define, field, frozen
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from wsproto.connection import Connection, ConnectionType
from wsproto.connection import ConnectionState as FrameState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, generate_accept_token

from actors import Actor
from intercom.model.chat_status import ConnectionState, ConnectionStatus
from intercom.operators.slack.slack_messages import Health, SocketDown, SocketUp
from intercom.operators.slack.web_api import (
    Json,
    RateLimited,
    SlackApiError,
    SlackRefused,
    SocketLost,
    Unreachable,
    WebApi,
    masked,
    read,
)

log = logging.getLogger(__name__)

_READ = 64 * 1024

#: Seconds for the last read before a silent socket is judged: what came while this process stood still counts.
_LAST_LOOK = 0.1


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
    """An open socket over the connection that the HTTP client has upgraded. One task calls `next`; any task may `send`.
    `heard_at` is when something last came, by Trio's clock."""

    def __init__(self, network: httpcore2.AsyncNetworkStream, limits: SocketLimits) -> None:
        self.heard_at = trio.current_time()
        self._network = network
        self._limits = limits
        self._frames = Connection(ConnectionType.CLIENT)
        self._turn = trio.Lock()
        #: Why the socket can no longer be used; None while it can.
        self._lost: str | None = None
        self._is_closed = self._said_goodbye = False
        self._parts: list[str] = []
        self._length = 0
        self._slack_pings = False
        self._lively_at = self.heard_at
        self._ping_at = self.heard_at + limits.ping_every

    async def next(self) -> Json | None:
        """Return the next message; None if Slack has closed the socket. A message that is no JSON object is ignored.

        It also keeps the socket alive, so call it again soon. Raises SocketLost if the connection broke, or nothing
        came for too long.
        """
        while not self._is_closed:
            for event in self._frames.events():
                match event:
                    case TextMessage() | BytesMessage():
                        if (message := self._completed(event)) is not None:
                            return message
                    case Ping():
                        self._slack_pings = True
                        self._lively_at = trio.current_time()
                        if self._frames.state is FrameState.OPEN:
                            await self._write(event.response())
                    case CloseConnection():
                        await self._closed(event)
                        return None
            await self._receive()
        return None

    async def send(self, message: Json) -> None:
        """Send a message as JSON. Raises SocketLost if it was not sent; then the socket can no longer be used."""
        await self._write(TextMessage(json.dumps(await masked(message))))

    async def say_goodbye(self) -> None:
        """Begin to close. Nothing can be sent from here on; `next` still reads what Slack sends."""
        self._said_goodbye = True
        with suppress(SocketLost):
            await self._write(CloseConnection(1000))

    async def _receive(self) -> None:
        """Wait for bytes, or ping. Raises SocketLost."""
        began = trio.current_time()
        silent_at = (self._lively_at if self._slack_pings else self.heard_at) + self._limits.silence
        with trio.CancelScope(deadline=max(min(self._ping_at, silent_at), began + _LAST_LOOK)):
            try:
                data = await self._network.read(_READ)
            except httpcore2.NetworkError as exc:
                raise self._losing(f"the connection broke: {exc or type(exc).__name__}") from None
            self.heard_at = trio.current_time()
            self._frames.receive_data(data or None)
            return
        if began >= silent_at:
            raise self._losing(f"nothing was heard from slack for {self._limits.silence:g} s")
        self._ping_at = trio.current_time() + self._limits.ping_every
        if self._frames.state is FrameState.OPEN:
            await self._write(Ping(secrets.token_bytes(4)))

    def _completed(self, event: TextMessage | BytesMessage) -> Json | None:
        """Add a part of a message. Return the object once it is complete; None before, or if it is no JSON object."""
        self._length += len(event.data)
        if isinstance(event, TextMessage):
            self._lively_at = trio.current_time()
            if self._length <= self._limits.max_message:
                self._parts.append(event.data)
        if not event.message_finished:
            return None
        message = read("".join(self._parts)) if self._length <= self._limits.max_message else None
        self._parts, self._length = [], 0
        if message is None:
            log.warning("slack sent a message that is no JSON object or too long, which is passed over")
        return message

    async def _closed(self, event: CloseConnection) -> None:
        """Answer Slack's close frame. Raises SocketLost if it is none."""
        self._is_closed = True
        if self._frames.state is FrameState.REMOTE_CLOSING:
            with suppress(SocketLost):
                await self._write(event.response())
        elif self._frames.state is FrameState.OPEN:
            # wsproto reports bytes that are no frame as a close.
            raise self._losing(f"slack sent something that is not a websocket frame: {event.reason}")
        elif not self._said_goodbye:
            raise self._losing("slack closed the connection without a word")

    async def _write(self, event: Event) -> None:
        async with self._turn:
            if self._lost is not None:
                raise SocketLost(self._lost)
            try:
                data = self._frames.send(event)
            except LocalProtocolError:
                raise SocketLost("the socket is closed") from None
            # After part of a frame, Slack cannot parse what follows, so a cancelled task still sends the rest. Nothing
            # follows a goodbye.
            self._lost = f"slack took nothing for {self._limits.sending:g} s"
            with trio.move_on_after(self._limits.sending, shield=not isinstance(event, CloseConnection)):
                try:
                    await self._network.write(data)
                except httpcore2.NetworkError as exc:
                    self._lost = f"the connection broke: {exc or type(exc).__name__}"
                else:
                    self._lost = None
            if self._lost is not None:
                # Also ends a `next` that waits.
                await self._network.aclose()
                raise SocketLost(self._lost)

    def _losing(self, why: str) -> SocketLost:
        self._lost = self._lost or why
        return SocketLost(self._lost)


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


# --- envelopes -------------------------------------------------------------------------------------------------------

#: Takes an envelope's kind (`interactive`, `events_api`, `slash_commands`) and payload; returns the payload of the
#: acknowledgement, if any. It returns once the action is recorded. If it raises, Slack sends the envelope again. An
#: envelope may come twice.
Handler = Callable[[str, Json], Awaitable[Json | None]]

#: Sends an acknowledgement by the socket of its envelope, or by another one; never raises a SlackError.
Acknowledge = Callable[[Json], Awaitable[None]]


class Handling:
    """Runs `handle` for each envelope, in tasks of the nursery given to `take`, and then acknowledges it.

    `at_once` envelopes are handled at the same time, and `waiting` more may queue. Further ones are dropped, and Slack
    sends them again. A handler has `seconds` to finish. `in_hand` counts the envelopes being handled or queued.
    """

    def __init__(self, handle: Handler, *, at_once: int = 64, waiting: int = 1000, seconds: float = 30.0) -> None:
        self.in_hand = 0
        self._handle = handle
        self._turns = trio.Semaphore(at_once)
        self._most = at_once + waiting
        self._seconds = seconds
        self._settled = trio.lowlevel.ParkingLot()

    async def until_idle(self) -> None:
        """Wait until no envelope is being handled or queued."""
        while self.in_hand:
            await self._settled.park()

    def take(self, envelope: Json, acknowledge: Acknowledge, nursery: trio.Nursery) -> None:
        """Start to handle an envelope; returns immediately. A message that is no envelope is logged and ignored."""
        envelope_id = envelope.get("envelope_id")
        if not isinstance(envelope_id, str) or not envelope_id:
            log.warning("slack sent a message of an unknown kind, which is passed over")
            return
        try:
            request = SocketModeRequest.from_dict(envelope)
        except (TypeError, ValueError):
            # For a payload of a wrong type the model raises TypeError: its parameter `type` shadows the builtin.
            request = None
        if request is None:
            # Without an acknowledgement it would come again.
            log.warning("slack sent an envelope without a payload, which is passed over")
            nursery.start_soon(acknowledge, SocketModeResponse(envelope_id).to_dict())
        elif self.in_hand >= self._most:
            log.warning("%d envelopes from slack are in hand; one more is left for slack to send again", self._most)
        else:
            self.in_hand += 1
            nursery.start_soon(self._run, request, acknowledge)

    async def _run(self, request: SocketModeRequest, acknowledge: Acknowledge) -> None:
        try:
            async with self._turns:
                with trio.fail_after(self._seconds):
                    answer = await self._handle(request.type, request.payload)
        except Exception as failed:
            # The error's text and the values in its traceback may contain a person's text.
            last = traceback.extract_tb(failed.__traceback__)[-1]
            where = f"{last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}"
            what = f"{type(failed).__name__} in {where}"
            log.error("slack's envelope (%s) was not taken and will come again: %s", request.type, what)
        else:
            payload = answer if request.accepts_response_payload else None
            await acknowledge(SocketModeResponse(request.envelope_id, payload).to_dict())
        finally:
            self.in_hand -= 1
            if not self.in_hand:
                self._settled.unpark_all()


# --- the connection --------------------------------------------------------------------------------------------------

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
        word: f"slack does not accept the app-level token ({word}): {_NEW_TOKEN}"
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


def is_for_people(cause: Exception) -> bool:
    """Return whether only a person can fix the error."""
    if isinstance(cause, Disconnected):
        return cause.reason == LINK_DISABLED
    return isinstance(cause, SlackRefused)


def sentence(cause: Exception) -> str:
    """Return the problem and its remedy, for people."""
    if isinstance(cause, SlackRefused):
        return _SENTENCES.get(cause.error, f"slack refuses to open a socket ({cause.error})")
    return str(cause)


def wait_after(cause: Exception, failures: int, patience: Patience, random: float) -> float:
    """Return the seconds until the next try after `failures` in a row, this one included. `random` is from 0 to 1."""
    if is_for_people(cause):
        return patience.slow * (1 + random / 4)
    if isinstance(cause, Disconnected) and cause.reason == TOO_MANY:
        failures += 1
    # After 64 doublings any limit is reached, and a float would overflow.
    whole = 0.0 if failures <= 1 else patience.backoff_first * 2.0 ** min(failures - 2, 64)
    wait = min(whole, patience.backoff_max) * (0.5 + random / 2)
    return max(wait, cause.retry_after) if isinstance(cause, RateLimited) else wait


@define(eq=False)
class _Live:
    """A socket on which Slack said hello. `over` is set once it must be replaced; `cause` says why."""

    socket: Socket
    since: float
    reading: trio.CancelScope = field(factory=trio.CancelScope)
    over: trio.Event = field(factory=trio.Event)
    cause: Exception = field(factory=lambda: SocketLost("slack closed the socket"))

    def end(self, cause: Exception | None = None) -> None:
        if not self.over.is_set():
            self.cause = cause or self.cause
            self.over.set()


def _utc_now() -> datetime:
    return datetime.now(UTC)


class SlackConnection(Actor):
    """Keeps one Socket Mode socket open and passes its envelopes to `handle`; registered as `slack/connection`.

    It tells the actor named `outbox_writer` `SocketUp` and `SocketDown`, and answers `Health`. An envelope is
    acknowledged when `handle` returns, so the action is recorded by then. If `handle` raises, Slack sends the envelope
    again. `at_once` handlers run at the same time. `web` must be open. At a stop, running handlers get `patience.stop`
    seconds to end. `random` returns a number from 0 to 1, `now` the time.
    """

    def __init__(
        self,
        web: WebApi,
        handle: Handler,
        *,
        outbox_writer: str = "slack/outbox_writer",
        patience: Patience | None = None,
        limits: SocketLimits | None = None,
        at_once: int = 64,
        random: Callable[[], float] = chance.random,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        super().__init__()
        self._web = web
        self._handling = Handling(handle, at_once=at_once)
        self._outbox_writer = outbox_writer
        self._patience = patience or Patience()
        self._limits = limits or SocketLimits()
        self._random = random
        self._now = now
        self._sockets: list[_Live] = []
        self._opened = 0
        self._heard_at: float | None = None
        self._state = ConnectionState.CONNECTING
        self._last_error: str | None = None
        self._since = now()
        self._stopping = trio.Event()

    def on_start(self) -> None:
        self.spawn(self._run)

    def on_receive(self, message: object) -> ConnectionStatus | None:
        if not isinstance(message, Health):
            return None
        heard = max((live.socket.heard_at for live in self._sockets), default=self._heard_at)
        return ConnectionStatus(
            state=self._state,
            since=self._since,
            reconnects=max(self._opened - 1, 0),
            last_error=self._last_error,
            last_heard=None if heard is None else self._now() - timedelta(seconds=trio.current_time() - heard),
            in_hand=self._handling.in_hand,
        )

    async def _run(self) -> None:
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
                    for live in self._sockets:
                        await live.socket.say_goodbye()
                nursery.cancel_scope.cancel()

    async def _keep(self, scope: trio.CancelScope, nursery: trio.Nursery) -> None:
        failures = 0
        with scope:
            while True:
                for old in self._sockets[:-1]:
                    old.reading.cancel()
                try:
                    live: _Live = await nursery.start(self._attend, nursery)
                except (SlackApiError, Disconnected) as failed:
                    cause: Exception = failed
                    failures += 1
                else:
                    for old in self._sockets[:-1]:
                        old.reading.deadline = trio.current_time() + self._patience.overlap
                    await live.over.wait()
                    cause = live.cause
                    failures = 1 if trio.current_time() - live.since >= self._patience.stable else failures + 1
                seconds = wait_after(cause, failures, self._patience, self._random())
                log.info("slack's socket is opened again in %.1f s: %s", seconds, sentence(cause))
                if not self._sockets:
                    self._note_down(cause, seconds)
                await trio.sleep(seconds)

    async def _attend(
        self, nursery: trio.Nursery, *, task_status: trio.TaskStatus[_Live] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Open a socket, report when Slack has said hello, and read it to its end."""
        url = (await self._web.call("apps.connections.open", app=True)).get("url")
        if not isinstance(url, str):
            raise Unreachable("slack gave no address for a socket", maybe_done=False)
        async with open_socket(self._web, url, self._limits) as socket:
            live = _Live(socket, trio.current_time())
            await self._greeted(live, nursery)
            self._sockets.append(live)
            self._opened += 1
            self._note_up()
            task_status.started(live)
            try:
                with live.reading:
                    await self._read(live, nursery)
                    live.end()
                with trio.move_on_after(self._limits.closing):
                    await socket.say_goodbye()
                    await self._read(live, nursery)
            except SocketLost as lost:
                live.end(lost)
            finally:
                self._heard_at = socket.heard_at
                self._sockets.remove(live)
                if not self._sockets and not self._stopping.is_set():
                    self._note_down(live.cause, 0.0)

    async def _greeted(self, live: _Live, nursery: trio.Nursery) -> None:
        with trio.move_on_after(self._limits.opening):
            while (message := await live.socket.next()) is not None:
                if message.get("type") == "hello":
                    return
                self._take(live, message, nursery)
                if live.over.is_set():
                    raise live.cause
            raise SocketLost("slack closed the socket before it said hello")
        raise SocketLost(f"slack did not say hello within {self._limits.opening:g} s")

    async def _read(self, live: _Live, nursery: trio.Nursery) -> None:
        while (message := await live.socket.next()) is not None:
            self._take(live, message, nursery)

    def _take(self, live: _Live, message: Json, nursery: trio.Nursery) -> None:
        match message.get("type"):
            case "hello":
                pass
            case "disconnect":
                live.end(Disconnected(str(message.get("reason"))))
            case _ if not self._stopping.is_set():
                self._handling.take(message, partial(self._acknowledge, live.socket), nursery)

    async def _acknowledge(self, came_by: Socket, answer: Json) -> None:
        # Slack accepts an acknowledgement on any of the app's sockets.
        others = [live.socket for live in reversed(self._sockets) if live.socket is not came_by]
        for socket in (came_by, *others):
            with suppress(SocketLost):
                await socket.send(answer)
                return
        log.info("no socket was up to acknowledge an envelope by; slack will send it again")

    def _note_up(self) -> None:
        if self._state is not ConnectionState.UP:
            self._state, self._since = ConnectionState.UP, self._now()
            self.system.named(self._outbox_writer).tell(SocketUp())

    def _note_down(self, cause: Exception, seconds: float) -> None:
        was_up, why = self._state is ConnectionState.UP, sentence(cause)
        if was_up:
            self._since = self._now()
        if was_up or why != self._last_error:
            self.system.named(self._outbox_writer).tell(SocketDown(why))
        self._last_error = why
        if is_for_people(cause):
            self._state = ConnectionState.REFUSED
        else:
            self._state = ConnectionState.WAITING if seconds else ConnectionState.CONNECTING
