"""One connection from ctl: who is at the other end, may they, and what they want, line by line."""

from __future__ import annotations

import functools
import hmac
import logging
import pwd
from collections.abc import Callable, Sequence

import trio
from attrs import frozen

from actors import Busy, Down, NotRunning, Refused
from intercom.local.dial import Peer
from intercom.local.lines import LineBuffer, LineTooLong
from intercom.model import crash_points
from intercom.model.card import Card
from intercom.model.errors import IntercomError, IpcError, Unauthorized
from intercom.operators.ctl import verbs
from intercom.operators.ctl.caller import Caller
from intercom.operators.ctl.kin import is_agents_own
from intercom.operators.ctl.watchers import DROPPED, Watchers, line_of
from intercom.operators.ctl.wire import MAX_REQUEST, CtlRequest, failure, read_request, success
from intercom.operators.desk import Desk

log = logging.getLogger(__name__)

CHUNK = 64 * 1024


@frozen
class Limits:
    """Seconds a peer may take to send one request line and to take one reply, and the server to find the reply."""

    request: float = 30.0
    reply: float = 10.0
    work: float = 60.0
    connections: int = 64


@frozen
class Door:
    """What every connection shares. `open_cards` gives the cards a new watch begins with."""

    desk: Desk
    token: str
    watchers: Watchers
    open_cards: Callable[[], Sequence[Card]]
    uid: int
    limits: Limits = Limits()
    trust_agent_processes: bool = False


async def serve(stream: trio.abc.Stream, peer: Peer, door: Door) -> None:
    """Answer one peer until it goes, breaks the framing, sends a wrong token or is too slow. The stream is closed."""
    async with stream:
        try:
            await _serve(stream, peer, door)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            # The peer is gone, or does not read what it asked for: nobody is left to tell.
            return


async def turn_away(stream: trio.abc.Stream, door: Door) -> None:
    """Tell one peer too many to come back later. The stream is closed."""
    refusal = IpcError("too many connections to the local socket; try again shortly", code="busy")
    async with stream:
        with trio.move_on_after(1):
            try:
                await stream.send_all(failure(refusal))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return


async def _serve(stream: trio.abc.Stream, peer: Peer, door: Door) -> None:
    if peer.uid != door.uid:
        await _send(stream, failure(Unauthorized("this socket serves only the user who started the server")), door)
        return
    lines = _Lines(stream)
    while True:
        try:
            with trio.fail_after(door.limits.request):
                line = await lines.next()
        except trio.TooSlowError:
            late = IpcError(f"no whole request line came within {door.limits.request:g} s; connect again")
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
        if request.command == "watch":
            await _watch(stream, door)
            return
        reply = await _answer(request, peer, door)
        crash_points.reach("reply.leaving")
        await _send(stream, reply, door)
        crash_points.reach("reply.left")


def _check_token(request: CtlRequest, door: Door) -> None:
    given = (request.auth_token or "").encode("utf-8")
    if not hmac.compare_digest(given, door.token.encode("utf-8")):
        raise Unauthorized("the token is missing or not this server's; ctl reads it from the token file by the socket")


async def _answer(request: CtlRequest, peer: Peer, door: Door) -> bytes:
    """The reply line to one request, whatever happens at the desk."""
    try:
        verb = verbs.verb_of(request)
        if verb.acts and not door.trust_agent_processes:
            await _refuse_kin(request, peer, door)
        with trio.fail_after(door.limits.work):
            return success(await verbs.run(door.desk, Caller(_user(peer.uid)), request))
    except IntercomError as refusal:
        return failure(refusal)
    except Refused as refusal:
        return failure(IntercomError(str(refusal), code="invalid_state"))
    except Busy:
        return failure(IpcError("too much is queued in the server; try again shortly", code="busy"))
    except trio.TooSlowError:
        # Nobody has taken it back: a look at a large workspace goes on, say.
        words = "this takes longer than is waited for, and may yet be done: look before you ask for it again"
        return failure(IpcError(words, code="unavailable"))
    except (Down, NotRunning):
        return failure(IpcError("the part of the server that does this is restarting; try again", code="unavailable"))
    except Exception:
        # A fault of ours must not take the other connections down with it, nor show its insides to the peer.
        log.exception("the command %s failed", request.command)
        return failure(IpcError("the server failed at this; its log says why, try again", code="unavailable"))


async def _refuse_kin(request: CtlRequest, peer: Peer, door: Door) -> None:
    if not is_agents_own(peer.pid, door.desk.client_pids()):
        return
    summary = f"refused {request.command} from process {peer.pid}, which belongs to a connected agent"
    log.warning(summary)
    data = {"command": request.command, "id": request.id, "session": request.session, "pid": peer.pid, "uid": peer.uid}
    try:
        await door.desk.security_event(summary, data)
    except Exception:
        log.exception("a refused command could not be recorded")
    raise Unauthorized(
        "an agent's own processes may not answer for it; run ctl from a terminal the agent did not start, "
        "or set trust_agent_processes under [ctl] in the server's config"
    )


async def _watch(stream: trio.abc.Stream, door: Door) -> None:
    """Stream cards and notices until the peer goes or falls behind. Whatever else it sends is ignored."""
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
        pass  # gone, or it does not read: the watch is over either way
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
    """The lines of a stream, each at most MAX_REQUEST bytes."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = LineBuffer(MAX_REQUEST)

    async def next(self) -> bytes | None:
        """The next line that is not blank; None at the end. Raises IpcError for a line over the limit."""
        try:
            while (line := self._buffer.next_line()) is None:
                chunk = await self._stream.receive_some(CHUNK)
                if not chunk:
                    return None
                self._buffer.feed(bytes(chunk))
            return line
        except LineTooLong:
            raise IpcError(f"the request line is longer than {MAX_REQUEST} bytes") from None
