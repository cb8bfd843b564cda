"""One connection from ctl: who is at the other end, whether they may act, and their requests.

Every command that acts goes through `Authorization.require`. Three kinds of events are recorded and announced on every
channel: a refusal, an act right after a restart, and the first act from a terminal.
"""

from __future__ import annotations

import functools
import hmac
import logging
import pwd
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import trio
from attrs import Factory, define, evolve, field, frozen

from actors import Busy, Down, NotRunning, Refused
from intercom.local import processes, server_socket
from intercom.local.processes import KnownAgents, NotExaminable, ProcessKey, Recognised, Who
from intercom.local.server_socket import Admission, Place, PlaceLimits
from intercom.local.wire import LineBuffer, LineTooLong, Peer
from intercom.model import crash_points
from intercom.model.card import Card, Notice
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError, IpcError, Unauthorized
from intercom.model.json_types import JsonObject
from intercom.model.process import Origin
from intercom.operators.commands.command_handler import Caller
from intercom.operators.commands.command_handlers import handler_of
from intercom.operators.commands.table import DEFAULT_REASON, WATCH, Access, decisions_of
from intercom.operators.ctl.wire import MAX_REQUEST, CtlRequest, event, failure, line_of, read_request, success
from intercom.operators.router_messages import Channel
from intercom.sessions.operator_service import OperatorService
from intercom.store.client import StoreUnavailable

log = logging.getLogger(__name__)

#: How long a restarted server waits for agents to reconnect, in seconds.
AWAIT_SECONDS = 5.0
#: How long after a restart acts are announced, in seconds.
RESTART_SECONDS = 10.0
#: Refusals of one source within this many seconds are announced together.
COALESCE_SECONDS = 60.0
#: How many sources of refusals are tracked separately; further sources are counted as one.
_MOST_SOURCES = 16

_OTHERS = -1


class Agents(Protocol):
    """The known agent processes; implemented by `intercom.agents.known_agent_processes.KnownProcesses`."""

    @property
    def awaited(self) -> int: ...

    @property
    def is_restart(self) -> bool: ...

    def known(self) -> KnownAgents: ...


class NoAgents:
    """No agents are known or awaited."""

    awaited = 0
    is_restart = False

    def known(self) -> KnownAgents:
        return KnownAgents()


@frozen
class Connected:
    """The peer of one connection. `key` identifies the process that opened it; None if it could not be examined.
    `writers` are the pids that wrote the request; empty if the system does not report them."""

    pid: int
    key: ProcessKey | None
    writers: frozenset[int] = frozenset()


def connected(pid: int) -> Connected:
    """Examine the process that opened a connection. Call it at once, before the pid is reused."""
    try:
        return Connected(pid, processes.examine(pid).key)
    except NotExaminable:
        return Connected(pid, None)


@define(eq=False)
class Authorization:
    """Decides whether the sender of a request may act.

    `record` persists a security event and `tell` announces a line on every channel. `is_new_terminal` says whether a
    terminal has no recorded decision yet. With `trusting` every process may act.
    """

    agents: Agents
    record: Callable[[str, JsonObject], Awaitable[None]]
    tell: Callable[[str], None]
    is_new_terminal: Callable[[Origin], Awaitable[bool]]
    trusting: bool = False
    _began: float = field(factory=lambda: trio.current_time())
    _refused: dict[int, _Refusals] = field(factory=dict)
    _terminals: set[tuple[str | None, int | None, int | None, str | None]] = field(factory=set)

    async def require(self, request: CtlRequest, by: Connected, user: str, is_proven: Callable[[], bool]) -> Origin:
        """Authorize a request that changes something. Returns the origin of the act.

        If `trusting`, every sender is an operator. Otherwise this raises Unauthorized if the sender is an agent's
        process, or cannot be recognised. It raises IpcError with `retry_after` while agents of an earlier server run
        may still come back, for AWAIT_SECONDS at most.

        `is_proven` says whether the request carries a signature with a PIN typed for exactly this act. Then neither is
        raised: any process may send it, also one in an agent's terminal. It is called only if the request would be
        refused otherwise.
        """
        if self.trusting:
            return processes.origin(Channel.CTL.value, by.pid)
        since = trio.current_time() - self._began
        if self.agents.awaited and since < AWAIT_SECONDS and not is_proven():
            left = round(AWAIT_SECONDS - since + 0.05, 1)
            raise IpcError(
                f"the server has just started and does not know yet which processes are agents' ({self.agents.awaited}"
                f" of them may come back): nothing is decided for {left:g} s; try again then",
                code="unavailable",
                retry_after=left,
            )
        found = self._recognise(by)
        if found.who is not Who.OPERATOR and not is_proven():
            await self._refuse(request, found, user)
        await self._tell_of(request, found, user, since)
        return found.origin

    def _recognise(self, by: Connected) -> Recognised:
        found = processes.recognise(by.pid, self.agents.known(), Channel.CTL.value)
        if found.who is Who.AGENT:
            return found
        why = None
        if by.key is None or found.origin.started != by.key.started:
            why = f"process {by.pid}, which opened the connection, has ended"
        elif by.writers - {by.pid}:
            others = ", ".join(str(pid) for pid in sorted(by.writers - {by.pid}))
            why = f"the connection was opened by process {by.pid} and is used by another ({others})"
        return found if why is None else Recognised(Who.UNKNOWN, why, found.origin)

    async def _refuse(self, request: CtlRequest, found: Recognised, user: str) -> None:
        summary = f"refused {request.command}{f' of {request.id}' if request.id else ''}: {found.why}"
        data: JsonObject = {
            "command": request.command,
            "id": request.id,
            "session": request.session,
            "who": found.who.value,
            "user": user,
            "pid": found.origin.pid,
            "origin": found.origin.to_data(),
        }
        source = found.origin.leader or found.origin.pid or 0
        if source not in self._refused and len(self._refused) >= _MOST_SOURCES:
            source = _OTHERS
        earlier = self._refused.get(source)
        if earlier is not None:
            earlier.more += 1
            earlier.last = summary
        else:
            self._refused[source] = _Refusals(trio.current_time(), data)
            log.warning(summary)
            self.tell(summary)
            await self._record(summary, data)
        raise Unauthorized(f"{found.why}; {_ADVICE[found.who]}")

    async def flush(self, *, all_of_them: bool = False) -> None:
        """Announce coalesced refusals that are due; with `all_of_them` all of them."""
        now = trio.current_time()
        for source, held in list(self._refused.items()):
            if not all_of_them and now - held.since < COALESCE_SECONDS:
                continue
            del self._refused[source]
            if held.more:
                summary = f"{held.more} more like it in {now - held.since:.0f} s, the last of them: {held.last}"
                log.warning(summary)
                self.tell(summary)
                await self._record(summary, {**held.data, "count": held.more})
                if not all_of_them:
                    # The source is still active: coalesce its next refusals from the start.
                    self._refused[source] = _Refusals(now, held.data)

    async def keep_telling(self) -> None:
        """Flush at regular intervals, forever."""
        while True:
            await trio.sleep(COALESCE_SECONDS / 4)
            await self.flush()

    async def _tell_of(self, request: CtlRequest, found: Recognised, user: str, since: float) -> None:
        """Announce an allowed act that is unusual: right after a restart, or from a new terminal."""
        origin = found.origin
        what = f"{user} used {request.command}{f' on {request.id}' if request.id else ''}"
        said = []
        if self.agents.is_restart and since < RESTART_SECONDS:
            said.append(f"{since:.0f} s after the server started again")
        if await self._is_new(origin):
            # The description that follows names it.
            said.append("for the first time from this terminal")
        if said:
            summary = f"{what} {' and '.join(said)}: {origin.describe()}"
            self.tell(summary)
            data: JsonObject = {"command": request.command, "id": request.id, "user": user, "origin": origin.to_data()}
            await self._record(summary, data)

    async def _is_new(self, origin: Origin) -> bool:
        terminal = (origin.boot, origin.leader, origin.leader_started, origin.terminal)
        if terminal in self._terminals or origin.terminal is None:
            return False
        is_new = await self.is_new_terminal(origin)
        self._terminals.add(terminal)
        return is_new

    async def _record(self, summary: str, data: JsonObject) -> None:
        try:
            await self.record(summary, data)
        except Exception:
            # The refusal holds anyway, and people have been told.
            log.exception("a security event could not be recorded")


@define
class _Refusals:
    """Refusals of one source; `more` counts those not announced yet."""

    since: float
    data: JsonObject
    more: int = 0
    last: str = ""


_ADVICE = {
    Who.AGENT: (
        "an agent's own processes may not answer for it: use ctl in a terminal of its own, in which no agent was"
        " started, or set trust_agent_processes under [ctl] in the server's config"
    ),
    Who.UNKNOWN: (
        "only an operator at a terminal may do this: use ctl in a terminal window, or sign the decision with a key"
        " (agent-intercom-ctl key create), or set trust_agent_processes under [ctl] in the server's config"
    ),
}

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
    work: float = 60.0
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
    return Authorization(deps.agents, record, deps.tell, is_new, trusting=deps.trust_agent_processes)


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
        row, user = handler_of(request.command).row, _user(peer.uid)
        proven = functools.partial(is_proven, deps.service, request)
        origin = await deps.authorization.require(request, by, user, proven) if row.acts else None
        with trio.fail_after(deps.limits.work):
            return success(await carry_out(deps.service, request, user, origin))
    except IntercomError as refusal:
        return failure(refusal)
    except Refused as refusal:
        return failure(IntercomError(str(refusal), code="invalid_state"))
    except Busy:
        return failure(IpcError("too much is queued in the server; try again shortly", code="busy"))
    except trio.TooSlowError:
        # The work was not cancelled; a look at a large workspace goes on, for example.
        message = "this takes longer than the time limit, and may still be done: check before you try again"
        return failure(IpcError(message, code="unavailable"))
    except StoreUnavailable as fault:
        return failure(IpcError(str(fault), code="unavailable"))
    except (Down, NotRunning):
        return failure(IpcError("the part of the server that does this is restarting; try again", code="unavailable"))
    except Exception:
        # A fault of the server must not close the other connections, nor show internals to the peer.
        log.exception("the command %s failed", request.command)
        return failure(IpcError("the server failed at this; its log says why, try again", code="unavailable"))


async def carry_out(service: OperatorService, request: CtlRequest, user: str, origin: Origin | None) -> Any:
    """Carry out one request and return the data of its reply.

    Raises InvalidArguments for an unknown command, and NotFound for an unknown session, even if the command is about
    none. If there is an operator key, what changes something must be signed: raises SignatureRefused.
    """
    handler = handler_of(request.command)
    row, verdict_id = handler.row, request.verdict_id
    if row.access is Access.SIGNED:
        service.admit_command(row.name, verdict_id, request.subject, request.signature)
    if request.session is not None and not row.takes_session:
        await service.session_id(request.session)
    caller = Caller(
        user,
        Channel.CTL,
        origin,
        act=None if verdict_id is None else f"{Channel.CTL.value}/{verdict_id}",
        verdict_id=verdict_id,
        signature=request.signature,
        signed=request.signed,
        default_reason=DEFAULT_REASON,
    )

    async def work() -> Any:
        return handler.entry(await handler(service, caller, **handler.read(request.fields)))

    return await (service.once(caller.act, work) if row.access is Access.SIGNED else work())


def is_proven(service: OperatorService, request: CtlRequest) -> bool:
    """Return whether the request carries a signature with a PIN typed for exactly this act: then any process may send
    it."""
    row, signatures = handler_of(request.command).row, service.signatures
    if row.access in (Access.ANYONE, Access.OPERATOR):
        return False
    if row.access is Access.SIGNED_CARD:
        decisions = [Decision(each) for each in decisions_of(row, request.fields.get("decision"))]
        return signatures.proves_decision(request.id, decisions, request.verdict_id, request.signature)
    return signatures.proves_command(row.name, request.verdict_id, request.subject, request.signature)


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
