"""One connection from ctl: its token, its requests, and its watch.

What crosses ctl's socket is one JSON object a line, a request up and a reply down. To read and to write a line is pure:
a malformed one raises an `IntercomError` that says why, and no bytes raise anything else.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import pwd
from collections.abc import Callable, Sequence

import trio
from attrs import Factory, evolve, field, frozen

from intercom.local import processes, server_socket
from intercom.local.server_socket import Admission, Place, PlaceLimits
from intercom.local.wire import LineBuffer, LineTooLong, Peer
from intercom.model import crash_points
from intercom.model.card import Card, Notice
from intercom.model.errors import IntercomError, InvalidArguments, IpcError, Unauthorized
from intercom.model.json_types import Json, JsonObject
from intercom.operators.authorization import Agents, Authorization, Connected, NoAgents, connected
from intercom.operators.commands.command_execution import (
    WORK_SECONDS,
    CommandRequest,
    carry_out,
    is_proven,
    read_fields,
    refusals,
    text_field,
)
from intercom.operators.commands.command_handlers import handler_of
from intercom.operators.commands.command_table import MAX_REQUEST, WATCH
from intercom.operators.commands.json_forms import plain, watch_entry
from intercom.sessions.operator_service import OperatorService

# --- the lines --------------------------------------------------------------------------------------------------------


@frozen(repr=False)
class CtlRequest(CommandRequest):
    """A request with the token that its sender showed. Its representation omits it: it must not reach a log."""

    auth_token: str | None = None

    __repr__ = CommandRequest.__repr__


def read_request(line: bytes) -> CtlRequest:
    """Parse one request line. Raises IpcError if it is no JSON object, InvalidArguments for a wrong field."""
    if len(line) > MAX_REQUEST:
        raise IpcError(f"the request line is longer than {MAX_REQUEST} bytes")
    try:
        raw = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        raise IpcError("the request is not UTF-8; send one JSON object a line") from None
    except (ValueError, RecursionError):
        raise IpcError("the request is not JSON; send one JSON object a line") from None
    if not isinstance(raw, dict):
        raise IpcError("the request is not a JSON object; send one JSON object a line")
    command = raw.get("command")
    if not isinstance(command, str) or not command:
        raise InvalidArguments("the request names no command; set command to a verb")
    read = read_fields(command, raw)
    token = text_field("auth_token", raw.get("auth_token"))
    return CtlRequest(read.command, read.fields, read.verdict_id, read.signature, token)


def success(data: Json) -> bytes:
    """Return the reply line for a request that was carried out."""
    return _line({"ok": True, "data": data})


def failure(error: IntercomError) -> bytes:
    """Return the reply line for a refused request: the sentence, its code, and details for programs."""
    reply: JsonObject = {"ok": False, "error": error.message, "error_code": error.error_code}
    if error.details:
        reply["details"] = plain(error.details)
    return _line(reply)


def event(name: str, data: Json) -> bytes:
    """Return one line of a watch."""
    return _line({"event": name, "data": data})


def line_of(shown: Card | Notice) -> bytes:
    """Return the watch line of a card or notice."""
    return event(*watch_entry(shown))


def _line(value: JsonObject) -> bytes:
    return json.dumps(value, separators=(",", ":"), default=str).encode("ascii") + b"\n"


# --- watches ----------------------------------------------------------------------------------------------------------

#: How many lines may wait for one watcher before it is dropped.
QUEUE = 256

#: The last line for a watcher that could not keep up.
DROPPED = event("dropped", {"text": "this watch fell too far behind and was ended; start it again", "level": "warning"})


class Watcher:
    """One watch. `dropped` is true if it ended because its queue was full."""

    def __init__(self, capacity: int) -> None:
        self.dropped = False
        self._send: trio.MemorySendChannel[bytes]
        self.lines: trio.MemoryReceiveChannel[bytes]
        self._send, self.lines = trio.open_memory_channel[bytes](capacity)

    def offer(self, line: bytes) -> bool:
        """Queue a line. If the queue is full, return False and end the watch after the lines queued so far."""
        try:
            self._send.send_nowait(line)
        except (trio.WouldBlock, trio.BrokenResourceError):
            self.dropped = True
            self._send.close()
            return False
        return True

    def close(self) -> None:
        self._send.close()
        self.lines.close()


class Watchers:
    """All watches of the local channel; `capacity` bounds the queue of each."""

    def __init__(self, capacity: int = QUEUE) -> None:
        self._capacity = capacity
        self._all: set[Watcher] = set()

    def __len__(self) -> int:
        return len(self._all)

    def add(self) -> Watcher:
        watcher = Watcher(self._capacity)
        self._all.add(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        self._all.discard(watcher)
        watcher.close()

    def publish(self, shown: Card | Notice) -> None:
        """Queue the line of a card or notice for every watcher. Never waits."""
        if not self._all:
            return
        line = line_of(shown)
        for watcher in [each for each in self._all if not each.offer(line)]:
            self._all.discard(watcher)


CHUNK = 64 * 1024


@frozen
class Limits:
    """Time limits in seconds, and limits on the number of connections. The peer has `first` to show the token,
    `request` to send one more line and `reply` to take one reply. The server has `work` to find a reply."""

    first: float = 10.0
    request: float = 30.0
    reply: float = 10.0
    work: float = WORK_SECONDS
    places: PlaceLimits = field(factory=PlaceLimits)


@frozen
class CtlDeps:
    """What all connections share. `open_cards` returns the cards that a new watch begins with. `agents` tracks the
    agent processes. `tell` announces a line on every channel."""

    service: OperatorService
    token: str
    watchers: Watchers
    open_cards: Callable[[], Sequence[Card]]
    uid: int
    limits: Limits = Limits()
    trust_agent_processes: bool = False
    agents: Agents = field(factory=NoAgents)
    tell: Callable[[str], None] = lambda _text: None
    admission: Admission = field(default=Factory(lambda self: Admission(self.limits.places), takes_self=True))
    authorization: Authorization = field(default=Factory(lambda self: _authorization(self), takes_self=True))


def _authorization(deps: CtlDeps) -> Authorization:
    record, is_new = deps.service.security_event, deps.service.is_new_terminal

    async def whole_id(typed: str) -> str:
        with contextlib.suppress(IntercomError):
            typed, _ = await deps.service.identify(typed)
        return typed

    trusting = deps.trust_agent_processes
    return Authorization(deps.agents, record, deps.tell, is_new, trusting=trusting, whole_id=whole_id)


#: The answer to one connection too many. Nothing was done, so the peer may try again.
BUSY = failure(IpcError("too many connections to the local socket; try again shortly", code="busy"))


async def serve(stream: trio.abc.Stream, peer: Peer, deps: CtlDeps) -> None:
    """Serve one peer, then close the stream. It ends if the peer leaves, breaks the framing, sends a wrong token or is
    too slow. It also ends if `Admission` evicts it in favour of another connection."""
    async with stream:
        with trio.CancelScope() as scope:
            place = deps.admission.arrive(scope.cancel, lambda: _is_operator(peer, deps))
            try:
                await _serve(stream, peer, deps, place)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                # The peer is gone or does not read: no reply is possible.
                return
            finally:
                deps.admission.leave(place)
        if scope.cancelled_caught:
            # The connection was evicted while idle, or before its request was read: nothing was done.
            await _turn_away(stream)


def _is_operator(peer: Peer, deps: CtlDeps) -> bool:
    return processes.recognise(peer.pid, deps.agents.known()).who is processes.Who.OPERATOR


async def _turn_away(stream: trio.abc.Stream) -> None:
    with trio.move_on_after(1):
        try:
            await stream.send_all(BUSY)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


async def _serve(stream: trio.abc.Stream, peer: Peer, deps: CtlDeps, place: Place) -> None:
    if peer.uid != deps.uid:
        await _send(stream, failure(Unauthorized("this socket serves only the user who started the server")), deps)
        return
    lines, by = _Lines(stream), connected(peer.pid)
    seconds = deps.limits.first
    while True:
        try:
            with trio.fail_after(seconds):
                line = await lines.next()
            # An evicted connection is told that nothing was done, so nothing may be done from here on.
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.TooSlowError:
            late = IpcError(f"no whole request line came within {seconds:g} s; connect again")
            await _send(stream, failure(late), deps)
            return
        except IpcError as refusal:
            await _send(stream, failure(refusal), deps)
            return
        if line is None:
            return
        try:
            request = read_request(line)
            _check_token(request, deps)
        except IntercomError as refusal:
            await _send(stream, failure(refusal), deps)
            if isinstance(refusal, Unauthorized):
                return
            continue
        if not deps.admission.authenticate(place):
            await _turn_away(stream)
            return
        seconds = deps.limits.request
        if request.command == WATCH:
            if deps.admission.watch(place):
                await _watch(stream, deps)
            else:
                await _turn_away(stream)
            return
        deps.admission.begin(place)
        reply = await _answer(request, peer, evolve(by, writers=lines.writers), deps)
        await _send(stream, reply, deps)
        crash_points.reach("reply.left")
        deps.admission.end(place)


def _check_token(request: CtlRequest, deps: CtlDeps) -> None:
    given = (request.auth_token or "").encode("utf-8")
    if not hmac.compare_digest(given, deps.token.encode("utf-8")):
        raise Unauthorized("the token is missing or not this server's; ctl reads it from the token file by the socket")


async def _answer(request: CtlRequest, peer: Peer, by: Connected, deps: CtlDeps) -> bytes:
    """Return the reply line to one request; never raises an error of the operator service."""
    try:
        with refusals(request.command):
            row, user = handler_of(request.command).row, _user(peer.uid)
            proven = functools.partial(is_proven, deps.service, request)
            origin = await deps.authorization.require(request, by, user, proven) if row.acts else None
            with trio.fail_after(deps.limits.work):
                return success(await carry_out(deps.service, request, user, origin))
    except IntercomError as refusal:
        return failure(refusal)


async def _watch(stream: trio.abc.Stream, deps: CtlDeps) -> None:
    """Stream cards and notices until the peer leaves or cannot keep up. Further input is ignored."""
    watcher = deps.watchers.add()
    try:
        await _send(stream, success({"watching": True}), deps)
        for card in deps.open_cards():
            await _send(stream, line_of(card), deps)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, stream, nursery.cancel_scope)
            async for line in watcher.lines:
                await _send(stream, line, deps)
            if watcher.dropped:
                await _send(stream, DROPPED, deps)
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
        pass  # the peer is gone or does not read; the watch is over either way
    finally:
        deps.watchers.remove(watcher)


async def _until_gone(stream: trio.abc.Stream, scope: trio.CancelScope) -> None:
    try:
        while await stream.receive_some(CHUNK):
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    scope.cancel()


@functools.cache
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


async def _send(stream: trio.abc.Stream, line: bytes, deps: CtlDeps) -> None:
    with trio.fail_after(deps.limits.reply):
        await stream.send_all(line)


class _Lines:
    """The lines of a stream, each at most MAX_REQUEST bytes. `writers` are the processes that wrote to it, if the
    system reports them."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = LineBuffer(MAX_REQUEST)
        self._told = server_socket.tells_writers(stream)
        self._writers: set[int] = set()

    @property
    def writers(self) -> frozenset[int]:
        return frozenset(self._writers)

    async def next(self) -> bytes | None:
        """Return the next line that is not blank; None at the end. Raises IpcError for a line over the limit."""
        try:
            while (line := self._buffer.next_line()) is None:
                chunk = await self._receive()
                if not chunk:
                    return None
                self._buffer.feed(chunk)
            return line
        except LineTooLong:
            raise IpcError(f"the request line is longer than {MAX_REQUEST} bytes") from None

    async def _receive(self) -> bytes:
        if not self._told:
            return bytes(await self._stream.receive_some(CHUNK))
        assert isinstance(self._stream, trio.SocketStream)
        chunk, writer = await server_socket.receive(self._stream, CHUNK)
        if chunk:
            self._writers.add(writer)
        return chunk
