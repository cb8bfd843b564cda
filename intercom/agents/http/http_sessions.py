"""HTTP sessions: the agents that are connected over HTTP, and what their streams have carried.

The SDK has one event store for all sessions. It identifies streams by request ids, which every session counts from the
same start. So each session has its own log here, and `SessionEvents`, the SDK's store, finds it.
"""

from __future__ import annotations

import math
import time
import uuid
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import mcp_types as types
import trio
from attrs import define, field, frozen
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

from actors import System
from intercom.agents.agent_connection import AgentConnection, PendingResponse, Workspaces
from intercom.agents.http.access_rules import Identity
from intercom.local.processes import is_running
from intercom.model.config import Config
from intercom.sessions import agent_keys
from intercom.sessions.connected_agents import ConnectedAgents
from intercom.sessions.messages import key_of
from intercom.web_server.http_request import too_many

#: The limits of one session's log, in events and bytes, and of all logs, in bytes. The oldest events go first.
MOST_EVENTS = 256
MOST_BYTES = 2**20
#: How many answered streams a log keeps. A client that lost its connection resumes soon or never: an answer that was
#: not read comes with the agent's next call anyway.
MOST_ANSWERED = 16
#: How long the answer of an interrupted stream stays available for its client, in seconds.
RESUME_SECONDS = 5.0
ALL_BYTES = 64 * 2**20


@frozen
class Event:
    """One event. `data` is the message's JSON, much smaller than the message object; None if the event only marks a
    place."""

    number: int
    stream: str
    data: bytes | None

    @property
    def size(self) -> int:
        """The approximate size in memory, in bytes."""
        return 64 if self.data is None else 256 + len(self.data)


@define
class LogMemory:
    """The memory that all logs share. `logs` holds the non-empty logs, the most recently changed last."""

    most: int = ALL_BYTES
    taken: int = 0
    logs: dict[int, SessionLog] = field(factory=dict, init=False)

    def added(self, log: SessionLog) -> None:
        """Count a change of this log, and enforce the limit. The least recently changed logs lose their oldest events
        first. The newest event of this log always stays."""
        self.logs.pop(id(log), None)
        self.logs[id(log)] = log
        while self.taken > self.most:
            quietest = next(iter(self.logs.values()))
            if quietest is log and len(log) == 1:
                return
            quietest.drop_oldest()

    def emptied(self, log: SessionLog) -> None:
        """Drop a log that is empty."""
        self.logs.pop(id(log), None)


@define(eq=False)
class SessionLog:
    """The events of one session, oldest first. `on_answer` gets each answer's event id and its stream."""

    memory: LogMemory
    on_answer: Callable[[str, str], object]
    now: Callable[[], float] = time.monotonic
    _events: deque[Event] = field(factory=deque, init=False)
    _answers: deque[tuple[float, int, str]] = field(factory=deque, init=False)
    _count: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)

    def add(self, stream: str, message: types.JSONRPCMessage | None) -> str:
        """Add an event and return its id. After `clear` nothing is stored."""
        self._count += 1
        if not self._closed:
            event = Event(self._count, stream, _written(message))
            self._events.append(event)
            self._take(event.size)
            while len(self) > 1 and self._is_full():
                self.drop_oldest()
            self.memory.added(self)
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            if not self._closed:
                self._answered(self._count, stream)
            self.on_answer(str(self._count), stream)
        return str(self._count)

    def after(self, event_id: str) -> tuple[str, tuple[Event, ...]] | None:
        """Return the stream of an event and its later events; None for an unknown or dropped event."""
        known = next((event for event in self._events if str(event.number) == event_id), None)
        if known is None:
            return None
        later = (event for event in self._events if event.number > known.number and event.stream == known.stream)
        return known.stream, tuple(later)

    def __len__(self) -> int:
        return len(self._events)

    def _answered(self, number: int, stream: str) -> None:
        """Note that this event ends its stream, and drop streams that were answered long ago."""
        now = self.now()
        self._answers.append((now, number, stream))
        while len(self._answers) > MOST_ANSWERED and now - self._answers[0][0] > RESUME_SECONDS:
            _, last, ended = self._answers.popleft()
            # A later event of the same name belongs to another request.
            self._events = deque(event for event in self._events if event.number > last or event.stream != ended)
            self._take(sum(event.size for event in self._events) - self._size)

    def drop_oldest(self) -> None:
        """Drop the oldest event. The log must not be empty."""
        self._take(-self._events.popleft().size)
        if not self._events:
            self.memory.emptied(self)

    def clear(self) -> None:
        """Drop all events and store no more: the session is over."""
        self._closed = True
        self._take(-self._size)
        self._events.clear()
        self._answers.clear()
        self.memory.emptied(self)

    def _is_full(self) -> bool:
        return len(self._events) > MOST_EVENTS or self._size > MOST_BYTES

    def _take(self, size: int) -> None:
        self._size += size
        self.memory.taken += size


#: The log of the session whose request is being served. A session's tasks keep that of the request that opened it.
current_log: ContextVar[SessionLog | None] = ContextVar("intercom_http_events", default=None)


class SessionEvents(EventStore):
    """The SDK's event store, which uses the log of the current session."""

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        log = current_log.get()
        assert log is not None, "only sessions store events, and each has its log"
        return log.add(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        log = current_log.get()
        found = None if log is None else log.after(last_event_id)
        if found is None:
            return None
        stream, later = found
        for event in later:
            # Events without data only mark a place.
            if event.data is not None:
                message = types.jsonrpc_message_adapter.validate_json(event.data, by_name=False)
                await send_callback(EventMessage(message, str(event.number)))
        return stream


def _written(message: types.JSONRPCMessage | None) -> bytes | None:
    """Return a message as the SDK writes it; None if that fails. The SDK cannot send it either, and reports that."""
    if message is None:
        return None
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        return None


#: How long an agent without requests counts as present, in seconds. It may work for long between two calls, and HTTP
#: gives no sign of it. The stall detector reacts much sooner.
AWAY_SECONDS = 1800.0
#: The same for an agent that had an open stream for server messages and closed it.
LISTENER_GONE_SECONDS = 60.0
#: The same for the agent of an ended session whose actors have stopped.
ENDED_SECONDS = 20.0
#: The most HTTP sessions of one agent, and of all anonymous clients of one machine. In protocol versions without
#: sessions, the latter limits calls in progress.
SESSIONS_EACH = 32
SESSIONS_ANONYMOUS = 256
#: The most agents known by their keys alone.
MOST_NAMED = 10_000
#: The most requests of one agent in progress.
REQUESTS_EACH = 256


#: Agent connections by name, each with the processes behind it.
Connections = dict[str, tuple[AgentConnection, frozenset[int]]]
#: What the limits count by: the identity of a named agent, the machine of an anonymous one.
Owner = Identity | str


def owner_of(identity: Identity, remote: str) -> Owner:
    """Return the owner of what a client with this identity at this address opens."""
    return identity if identity.is_named else remote


def most_of(identity: Identity) -> int:
    """Return how many HTTP sessions, or streams of the older transport, the owner may have."""
    return SESSIONS_EACH if identity.is_named else SESSIONS_ANONYMOUS


@define(eq=False)
class HttpSession:
    """One agent's HTTP session, or its use of a protocol version without sessions.

    `id` is that of the HTTP session; None in versions without sessions. In a session, `streams` holds the pending
    responses by request id, and `log` the events of its streams. While the agent is present, it is listed in
    `connections` with its client's processes, so that the client's hooks find it.
    """

    identity: Identity
    remote: str
    agent: AgentConnection
    connections: Connections
    log: SessionLog | None = None
    id: str | None = None
    streams: dict[str, PendingResponse] = field(factory=dict, init=False)
    requests: int = field(default=0, init=False)
    present: bool = field(default=False, init=False)
    #: The processes of its latest client on this machine, and whether they have ended since.
    processes: frozenset[int] = field(default=frozenset(), init=False)
    departed: bool = field(default=False, init=False)
    over: bool = field(default=False, init=False)
    away_at: float = field(default=math.inf, init=False)
    over_at: float = field(default=math.inf, init=False)

    @property
    def is_watched(self) -> bool:
        """Whether the end of its client's processes would show that it has departed."""
        return self.present and not self.departed and not self.requests and bool(self.processes)

    def begun(self, processes: frozenset[int] | None) -> None:
        """Count a request that is about to be served, from a client with these processes, if known. Raises Refusal if
        the agent has too many in progress."""
        if self.requests >= REQUESTS_EACH:
            raise too_many(f"this agent has {REQUESTS_EACH} requests under way: wait for some of them")
        self.requests += 1
        self.away_at = self.over_at = math.inf
        self.come(processes)

    def ended(self, *, listened: bool = False) -> None:
        """Count a request that was served. With `listened`, it was a stream for server messages."""
        self.requests -= 1
        if not self.requests:
            now = trio.current_time()
            self.over_at = now + AWAY_SECONDS
            self.away_at = now + (LISTENER_GONE_SECONDS if listened else AWAY_SECONDS)

    def come(self, processes: frozenset[int] | None) -> None:
        """Note that the agent is present."""
        if (not self.present or self.departed) and not self.over:
            self.present, self.departed = True, False
            self.agent.opened()
        if self.present:
            self.processes = processes or frozenset()
        if self.present and processes:
            self.connections[self.agent.name] = (self.agent, processes)

    def depart(self) -> None:
        """Note that the client's processes have ended: its silence is no stall. What was written to it may have been
        read, and another process of it may come."""
        if self.present and not self.requests and not self.departed:
            self.departed = True
            self.agent.left()

    def go(self, *, for_good: bool = False) -> None:
        """Note that the agent is away; `for_good` as in `AgentConnection.closed`."""
        self.connections.pop(self.agent.name, None)
        if self.present:
            self.present = False
            self.agent.closed(for_good=for_good)


@frozen
class ConnectionFactory:
    """Makes the agent connections of HTTP clients. `connections` lists those that hooks may belong to."""

    system: System
    config: Config
    connected_agents: ConnectedAgents
    connections: Connections = field(factory=dict)
    _workspaces: Workspaces = field(factory=Workspaces, init=False)

    def connect(self, identity: Identity, key: str, *, anonymous: bool = False) -> AgentConnection:
        """Make an agent connection for the identity of a request."""
        return AgentConnection(
            self.system,
            self.config,
            self.connected_agents,
            key,
            identity.workspace,
            None,
            identity.channel_id,
            identity.session_id,
            anonymous,
            self._workspaces,
            identity.role_token,
        )


@define(eq=False)
class HttpSessions:
    """All HTTP sessions, by their ids, and all `named` agents of versions without sessions. `end_session` ends an HTTP
    session in the SDK, by its id. `live` are the requests that are being served."""

    factory: ConnectionFactory
    end_session: Callable[[str], Awaitable[None]]
    memory: LogMemory = field(factory=LogMemory, init=False)
    sessions: dict[str, HttpSession] = field(factory=dict, init=False)
    named: dict[Identity, HttpSession] = field(factory=dict, init=False)
    live: set[PendingResponse] = field(factory=set, init=False)
    #: The HTTP sessions of each owner, also those that are about to open.
    _owned: dict[Owner, set[HttpSession]] = field(factory=dict, init=False)
    _anonymous_calls: Counter[str] = field(factory=Counter, init=False)
    _quiet: trio.Event | None = field(default=None, init=False)

    def of(self, identity: Identity) -> HttpSession:
        """Return the use of a named agent of versions without sessions: one for all its connections. If there are too
        many agents, the one idle for longest is forgotten. Raises Refusal if all have requests in progress."""
        session = self.named.get(identity)
        if session is None or session.over:
            if len(self.named) >= MOST_NAMED:
                idle = _idlest(self.named.values())
                if idle is None:
                    raise too_many(f"{MOST_NAMED} agents have requests under way: wait for some of them")
                self.forget(idle)
            session = self.named[identity] = self.new(identity, "")
        return session

    def new(self, identity: Identity, remote: str) -> HttpSession:
        """Return a session for one connection. It is not registered here."""
        agent = self.factory.connect(identity, _key(identity))
        return HttpSession(identity, remote, agent, self.factory.connections)

    def stranger(self, identity: Identity) -> AgentConnection:
        """Return the connection of an agent of versions without sessions, for a request that is no sign of life. One
        that is not known yet, or has no name, gets a connection that nobody else sees."""
        known = self.named.get(identity)
        return known.agent if known is not None else self.factory.connect(identity, _key(identity))

    @contextmanager
    def anonymous(self, identity: Identity, remote: str) -> Iterator[AgentConnection]:
        """Make an agent connection for one call of an anonymous client, which gets its own session. Raises Refusal if
        too many such calls of its machine are in progress."""
        if self._anonymous_calls[remote] >= SESSIONS_ANONYMOUS:
            raise too_many(f"{SESSIONS_ANONYMOUS} calls without a name are under way: wait, or name agents in the URL")
        self._anonymous_calls[remote] += 1
        agent = self.factory.connect(identity, agent_keys.ANONYMOUS + uuid.uuid4().hex, anonymous=True)
        try:
            yield agent
        finally:
            agent.closed(for_good=True)
            self._anonymous_calls[remote] -= 1
            if not self._anonymous_calls[remote]:
                del self._anonymous_calls[remote]

    async def begin(self, identity: Identity, remote: str) -> HttpSession:
        """Return an HTTP session that is about to open. If its owner has too many, the one idle for longest is ended.
        Raises Refusal if all are in use."""
        owner, most = owner_of(identity, remote), most_of(identity)
        owned = self._owned.get(owner, set())
        idle = None
        if len(owned) >= most:
            idle = _idlest(session for session in owned if session.id is not None)
            if idle is None:
                raise too_many(f"this client has {most} sessions open: end some of them (DELETE), or wait")
        session = self.new(identity, remote)
        session.log = SessionLog(self.memory, lambda number, stream: _note_answer(session, number, stream))
        # Before the first wait, so that concurrent requests count this one.
        self._owned.setdefault(owner, set()).add(session)
        try:
            if idle is not None:
                await self.end(idle)
        except BaseException:
            self.forget(session)
            raise
        return session

    def opened(self, session: HttpSession, id: str) -> None:
        """Note the id of the HTTP session. Unread deliveries of the same agent's idle sessions become pending again:
        their client may have restarted."""
        session.id = id
        self.sessions[id] = session
        if session.identity.is_named:
            for other in self._owned.get(session.identity, ()):
                if other is not session and other.id is not None and not other.requests:
                    other.agent.sent_results.client_restarted()

    def forget(self, session: HttpSession, *, for_good: bool = False) -> None:
        """Remove a session that has ended."""
        session.over = True
        owner = owner_of(session.identity, session.remote)
        owned = self._owned.get(owner, set())
        owned.discard(session)
        if not owned:
            self._owned.pop(owner, None)
        if session.id is not None:
            self.sessions.pop(session.id, None)
        if self.named.get(session.identity) is session:
            del self.named[session.identity]
        if session.log is not None:
            session.log.clear()
        session.go(for_good=for_good)

    async def end(self, session: HttpSession) -> None:
        """End a session from the server's side."""
        self.forget(session)
        if session.id is not None:
            await self.end_session(session.id)

    def pending(self, agent: AgentConnection, session: HttpSession | None = None) -> PendingResponse:
        """Register a request that is about to be served; the caller returns it with `done`."""
        response = PendingResponse(agent, None if session is None or session.id is None else session.streams)
        self.live.add(response)
        return response

    def done(self, response: PendingResponse) -> None:
        """Note that a request was served."""
        self.live.discard(response)
        if self._quiet is not None and not self.live:
            self._quiet.set()

    async def quiet(self) -> None:
        """Wait until no request is being served."""
        self._quiet = trio.Event()
        if self.live:
            await self._quiet.wait()

    def stop_waiting(self) -> None:
        """End all waiting calls because the server stops."""
        for response in tuple(self.live):
            response.stop_waiting()

    async def expire(self) -> None:
        """End each session after its time of absence, forever."""
        while True:
            await trio.sleep(5.0)
            now = trio.current_time()
            for session in (*self.sessions.values(), *self.named.values()):
                if now >= session.over_at or self._has_ended(session, now):
                    await self.end(session)
                elif now >= session.away_at:
                    session.go()
            idle = [each for each in (*self.sessions.values(), *self.named.values()) if each.is_watched]
            for session in await trio.to_thread.run_sync(_departed, idle) if idle else ():
                session.depart()

    def _has_ended(self, session: HttpSession, now: float) -> bool:
        """Whether this one was for an Intercom session that is over, and is idle."""
        id = session.identity.session_id
        is_idle = now >= session.over_at - AWAY_SECONDS + ENDED_SECONDS
        return id is not None and is_idle and self.factory.system.ref(f"session/{id}") is None

    def close(self) -> None:
        """Remove all sessions: all connections are closed. Agents may return to the next run."""
        for session in (*self.sessions.values(), *self.named.values()):
            self.forget(session)


def _departed(idle: Iterable[HttpSession]) -> list[HttpSession]:
    """Return those of these sessions whose clients' processes have all ended."""
    return [each for each in idle if not any(map(is_running, each.processes))]


def _key(identity: Identity) -> str:
    if identity.session_id is not None:
        return key_of(identity.session_id)
    if identity.agent is not None:
        return agent_keys.NAMED + identity.agent
    return agent_keys.PASSING + uuid.uuid4().hex


def _idlest(sessions: Iterable[HttpSession]) -> HttpSession | None:
    """Return the session without requests for the longest time; None if all have requests in progress."""
    return min((each for each in sessions if not each.requests), key=lambda each: each.over_at, default=None)


def _note_answer(session: HttpSession, number: str, stream: str) -> None:
    response = session.streams.get(stream)
    if response is not None:
        response.number(number)
