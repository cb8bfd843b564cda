"""One connection from ctl: it authenticates the peer, authorizes each request, and answers line by line."""

from __future__ import annotations

import functools
import hmac
import logging
import pwd
from collections.abc import Callable, Sequence

import trio
from attrs import Factory, evolve, field, frozen

from actors import Busy, Down, NotRunning, Refused
from intercom.local import receive, recognition
from intercom.local.admission import Admission, Place, PlaceLimits
from intercom.local.dial import Peer
from intercom.local.lines import LineBuffer, LineTooLong
from intercom.model import crash_points
from intercom.model.card import Card
from intercom.model.errors import IntercomError, IpcError, Unauthorized
from intercom.operators.ctl import verbs
from intercom.operators.ctl.authorization import Agents, Authorization, Connected, NoAgents, connected
from intercom.operators.ctl.caller import Caller
from intercom.operators.ctl.watchers import DROPPED, Watchers, line_of
from intercom.operators.ctl.wire import MAX_REQUEST, CtlRequest, failure, read_request, success
from intercom.operators.desk import Desk

log = logging.getLogger(__name__)

CHUNK = 64 * 1024


@frozen
class Limits:
    """Time limits in seconds, and limits on the number of connections. The peer has `first` to show the token,
    `request` to send one more line and `reply` to take one reply. The server has `work` to find a reply."""

    first: float = 10.0
    request: float = 30.0
    reply: float = 10.0
    work: float = 60.0
    places: PlaceLimits = field(factory=PlaceLimits)


@frozen
class Door:
    """What all connections share. `open_cards` returns the cards that a new watch begins with. `agents` tracks the
    agent processes. `tell` announces a line on every channel."""

    desk: Desk
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


def _authorization(door: Door) -> Authorization:
    record, is_new = door.desk.security_event, door.desk.is_new_terminal
    return Authorization(door.agents, record, door.tell, is_new, trusting=door.trust_agent_processes)


#: The answer to one connection too many. Nothing was done, so the peer may try again.
BUSY = failure(IpcError("too many connections to the local socket; try again shortly", code="busy"))


async def serve(stream: trio.abc.Stream, peer: Peer, door: Door) -> None:
    """Serve one peer, then close the stream. It ends if the peer leaves, breaks the framing, sends a wrong token or is
    too slow. It also ends if `Admission` evicts it in favour of another connection."""
    async with stream:
        with trio.CancelScope() as scope:
            place = door.admission.arrive(scope.cancel, lambda: _is_operator(peer, door))
            try:
                await _serve(stream, peer, door, place)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                # The peer is gone or does not read: no reply is possible.
                return
            finally:
                door.admission.leave(place)
        if scope.cancelled_caught:
            # The connection was evicted while idle, or before its request was read: nothing was done.
            await _turn_away(stream)


def _is_operator(peer: Peer, door: Door) -> bool:
    return recognition.recognise(peer.pid, door.agents.known()).who is recognition.Who.OPERATOR


async def _turn_away(stream: trio.abc.Stream) -> None:
    with trio.move_on_after(1):
        try:
            await stream.send_all(BUSY)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return


async def _serve(stream: trio.abc.Stream, peer: Peer, door: Door, place: Place) -> None:
    if peer.uid != door.uid:
        await _send(stream, failure(Unauthorized("this socket serves only the user who started the server")), door)
        return
    lines, by = _Lines(stream), connected(peer.pid)
    seconds = door.limits.first
    while True:
        try:
            with trio.fail_after(seconds):
                line = await lines.next()
            # An evicted connection is told that nothing was done, so nothing may be done from here on.
            await trio.lowlevel.checkpoint_if_cancelled()
        except trio.TooSlowError:
            late = IpcError(f"no whole request line came within {seconds:g} s; connect again")
            await _send(stream, failure(late), door)
            return
        except IpcError as refusal:
            await _send(stream, failure(refusal), door)
            return
        if line is None:
            return
        try:
            request = read_request(line)
            _check_token(request, door)
        except Unauthorized as refusal:
            await _send(stream, failure(refusal), door)
            return
        except IntercomError as refusal:
            await _send(stream, failure(refusal), door)
            continue
        if not door.admission.authenticate(place):
            await _turn_away(stream)
            return
        seconds = door.limits.request
        if request.command == "watch":
            if door.admission.watch(place):
                await _watch(stream, door)
            else:
                await _turn_away(stream)
            return
        door.admission.begin(place)
        reply = await _answer(request, peer, evolve(by, writers=lines.writers), door)
        crash_points.reach("reply.leaving")
        await _send(stream, reply, door)
        crash_points.reach("reply.left")
        door.admission.end(place)


def _check_token(request: CtlRequest, door: Door) -> None:
    given = (request.auth_token or "").encode("utf-8")
    if not hmac.compare_digest(given, door.token.encode("utf-8")):
        raise Unauthorized("the token is missing or not this server's; ctl reads it from the token file by the socket")


async def _answer(request: CtlRequest, peer: Peer, by: Connected, door: Door) -> bytes:
    """Return the reply line to one request; never raises an error of the operator service."""
    try:
        verb = verbs.verb_of(request)
        user = _user(peer.uid)
        is_proven = functools.partial(verbs.is_proven, door.desk, request)
        origin = await door.authorization.require(request, by, user, is_proven) if verb.acts else None
        with trio.fail_after(door.limits.work):
            return success(await verbs.run(door.desk, Caller(user, origin), request))
    except IntercomError as refusal:
        return failure(refusal)
    except Refused as refusal:
        return failure(IntercomError(str(refusal), code="invalid_state"))
    except Busy:
        return failure(IpcError("too much is queued in the server; try again shortly", code="busy"))
    except trio.TooSlowError:
        # The work was not cancelled; a look at a large workspace goes on, for example.
        words = "this takes longer than is waited for, and may yet be done: look before you ask for it again"
        return failure(IpcError(words, code="unavailable"))
    except (Down, NotRunning):
        return failure(IpcError("the part of the server that does this is restarting; try again", code="unavailable"))
    except Exception:
        # A fault of the server must not close the other connections, nor show internals to the peer.
        log.exception("the command %s failed", request.command)
        return failure(IpcError("the server failed at this; its log says why, try again", code="unavailable"))


async def _watch(stream: trio.abc.Stream, door: Door) -> None:
    """Stream cards and notices until the peer leaves or cannot keep up. Further input is ignored."""
    watcher = door.watchers.add()
    try:
        await _send(stream, success({"watching": True}), door)
        for card in door.open_cards():
            await _send(stream, line_of(card), door)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, stream, nursery.cancel_scope)
            async for line in watcher.lines:
                await _send(stream, line, door)
            if watcher.dropped:
                await _send(stream, DROPPED, door)
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
        pass  # the peer is gone or does not read; the watch is over either way
    finally:
        door.watchers.remove(watcher)


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


async def _send(stream: trio.abc.Stream, line: bytes, door: Door) -> None:
    with trio.fail_after(door.limits.reply):
        await stream.send_all(line)


class _Lines:
    """The lines of a stream, each at most MAX_REQUEST bytes. `writers` are the processes that wrote to it, if the
    system reports them."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = LineBuffer(MAX_REQUEST)
        self._told = receive.tells_writers(stream)
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
        chunk, writer = await receive.receive(self._stream, CHUNK)
        if chunk:
            self._writers.add(writer)
        return chunk
