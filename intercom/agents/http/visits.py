"""The agents connected over HTTP, each with its agent connection, from the first request to a long absence."""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager

import trio
from attrs import define, field, frozen

from actors import System
from intercom.agents.door import Door
from intercom.agents.exchange import Exchange
from intercom.agents.http.events import EventLog, Room
from intercom.agents.http.identity import Identity
from intercom.agents.http.refusal import too_many
from intercom.model.config import Config
from intercom.sessions import agent_keys
from intercom.sessions.presence import Presence
from intercom.sessions.reception_messages import key_of

#: How long an agent without requests counts as present, in seconds. It may work for long between two calls, and HTTP
#: gives no sign of it. The stall detector reacts much sooner.
AWAY_SECONDS = 1800.0
#: The same for an agent that had an open stream for server messages and closed it.
LET_GO_SECONDS = 60.0
#: The same for the agent of an ended session whose actors have stopped.
ENDED_SECONDS = 20.0
#: The most HTTP sessions of one agent, and of all anonymous clients of one machine. In protocol versions without
#: sessions, the latter limits calls in progress.
SESSIONS_EACH = 32
SESSIONS_NAMELESS = 256
#: The most agents known by their keys alone.
MOST_NAMED = 10_000
#: The most requests of one agent in progress.
REQUESTS_EACH = 256


#: Agent connections by name, each with the processes behind it.
Doors = dict[str, tuple[Door, frozenset[int]]]


@define(eq=False)
class Visit:
    """One agent's HTTP session, or its use of a protocol version without sessions.

    `id` is that of the HTTP session; None in versions without sessions. In a session, `streams` holds the exchanges
    whose answers were not written, and `log` the events of its streams. While present, it is listed in `doors` with its
    client's processes, so that the client's hooks find it.
    """

    identity: Identity
    remote: str
    door: Door
    log: EventLog | None = None
    id: str | None = None
    doors: Doors = field(factory=dict)
    streams: dict[str, Exchange] = field(factory=dict, init=False)
    requests: int = field(default=0, init=False)
    present: bool = field(default=False, init=False)
    over: bool = field(default=False, init=False)
    away_at: float = field(default=math.inf, init=False)
    over_at: float = field(default=math.inf, init=False)

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
            self.away_at = now + (LET_GO_SECONDS if listened else AWAY_SECONDS)

    def come(self, processes: frozenset[int] | None) -> None:
        if not self.present and not self.over:
            self.present = True
            self.door.opened()
        if self.present and processes:
            self.doors[self.door.name] = (self.door, processes)

    def go(self, *, for_good: bool = False) -> None:
        self.doors.pop(self.door.name, None)
        if self.present:
            self.present = False
            self.door.closed(for_good=for_good)


@frozen
class Guests:
    """The connection factory of HTTP clients. `doors` lists the agent connections that hooks may belong to."""

    system: System
    config: Config
    presence: Presence
    doors: Doors = field(factory=dict)

    def door(self, identity: Identity, key: str, *, nameless: bool = False) -> Door:
        """Make an agent connection for the identity of a request."""
        return Door(
            self.system,
            self.config,
            self.presence,
            key,
            identity.workspace,
            None,
            identity.channel_id,
            identity.session_id,
            nameless,
        )


@define(eq=False)
class Visits:
    """All `Visit`s. `end_session` ends an HTTP session in the SDK, by its id."""

    guests: Guests
    end_session: Callable[[str], Awaitable[None]]
    room: Room = field(factory=Room, init=False)
    sessions: dict[str, Visit] = field(factory=dict, init=False)
    named: dict[Identity, Visit] = field(factory=dict, init=False)
    live: set[Exchange] = field(factory=set, init=False)
    _opening: set[Visit] = field(factory=set, init=False)
    _passing: Counter[str] = field(factory=Counter, init=False)
    _quiet: trio.Event | None = field(default=None, init=False)

    def of(self, identity: Identity) -> Visit:
        """Return the `Visit` of a named agent in a protocol version without sessions: one for all its connections. If
        there are too many, the one idle for longest is ended. Raises Refusal if all have requests in progress."""
        visit = self.named.get(identity)
        if visit is None or visit.over:
            if len(self.named) >= MOST_NAMED:
                idle = _idlest(self.named.values())
                if idle is None:
                    raise too_many(f"{MOST_NAMED} agents have requests under way: wait for some of them")
                self.forget(idle)
            visit = self.visit(identity, "")
            self.named[identity] = visit
        return visit

    def visit(self, identity: Identity, remote: str) -> Visit:
        """Make a `Visit` for one connection. It is not registered here."""
        return Visit(identity, remote, self.guests.door(identity, _key(identity)), doors=self.guests.doors)

    @contextmanager
    def nameless(self, identity: Identity, remote: str) -> Iterator[Door]:
        """Make an agent connection for one call of an anonymous client, which gets its own session. Raises Refusal if
        too many such calls of its machine are in progress."""
        if self._passing[remote] >= SESSIONS_NAMELESS:
            raise too_many(f"{SESSIONS_NAMELESS} calls without a name are under way: wait, or name agents in the URL")
        self._passing[remote] += 1
        door = self.guests.door(identity, agent_keys.NAMELESS + uuid.uuid4().hex, nameless=True)
        try:
            yield door
        finally:
            door.closed(for_good=True)
            self._passing[remote] -= 1
            if not self._passing[remote]:
                del self._passing[remote]

    async def begin(self, identity: Identity, remote: str) -> Visit:
        """Make a `Visit` for an HTTP session that is about to open. If this client has too many, the one idle for
        longest is ended. Raises Refusal if all are in use."""
        mine = [visit for visit in self.sessions.values() if _same(visit, identity, remote)]
        coming = sum(1 for visit in self._opening if _same(visit, identity, remote))
        most = SESSIONS_EACH if identity.is_named else SESSIONS_NAMELESS
        idle = None
        if len(mine) + coming >= most:
            idle = _idlest(mine)
            if idle is None:
                raise too_many(f"this client has {most} sessions open: end some of them (DELETE), or wait")
        visit = self.visit(identity, remote)
        visit.log = EventLog(self.room, lambda number, stream: _note_answer(visit, number, stream))
        # Before the first wait, so that concurrent requests count this one.
        self._opening.add(visit)
        try:
            if idle is not None:
                await self.end(idle)
        except BaseException:
            self.forget(visit)
            raise
        return visit

    def opened(self, visit: Visit, id: str) -> None:
        """Note the id of the HTTP session."""
        visit.id = id
        self._opening.discard(visit)
        self.sessions[id] = visit
        self._supersede(visit)

    def forget(self, visit: Visit, *, for_good: bool = False) -> None:
        """Remove an ended `Visit`."""
        visit.over = True
        self._opening.discard(visit)
        if visit.id is not None:
            self.sessions.pop(visit.id, None)
        if self.named.get(visit.identity) is visit:
            del self.named[visit.identity]
        if visit.log is not None:
            visit.log.clear()
        visit.go(for_good=for_good)

    async def end(self, visit: Visit) -> None:
        """End a `Visit` from the server's side."""
        self.forget(visit)
        if visit.id is not None:
            await self.end_session(visit.id)

    def exchange(self, door: Door, visit: Visit | None = None) -> Exchange:
        """Register a request that is about to be served; the caller returns it with `done`."""
        exchange = Exchange(door, None if visit is None or visit.id is None else visit.streams)
        self.live.add(exchange)
        return exchange

    def done(self, exchange: Exchange) -> None:
        self.live.discard(exchange)
        if self._quiet is not None and not self.live:
            self._quiet.set()

    async def quiet(self) -> None:
        """Wait until no request is being served."""
        self._quiet = trio.Event()
        if self.live:
            await self._quiet.wait()

    def hurry(self) -> None:
        """End all waiting calls because the server stops."""
        for exchange in tuple(self.live):
            exchange.hurry()

    async def keep(self) -> None:
        """End each `Visit` after its time of absence, forever."""
        while True:
            await trio.sleep(5.0)
            now = trio.current_time()
            for visit in (*self.sessions.values(), *self.named.values()):
                if now >= visit.over_at or self._has_ended(visit, now):
                    await self.end(visit)
                elif now >= visit.away_at:
                    visit.go()

    def _has_ended(self, visit: Visit, now: float) -> bool:
        """Whether this `Visit` was for a session that is over, and is idle."""
        id = visit.identity.session_id
        is_idle = now >= visit.over_at - AWAY_SECONDS + ENDED_SECONDS
        return id is not None and is_idle and self.guests.system.ref(f"session/{id}") is None

    def close(self) -> None:
        """Remove each `Visit`: all connections are closed. Agents may return to the next run."""
        for visit in (*self.sessions.values(), *self.named.values()):
            self.forget(visit)

    def _supersede(self, visit: Visit) -> None:
        """Make unread deliveries of the same agent's idle sessions pending again: their client may have restarted."""
        if not visit.identity.is_named:
            return
        for other in self.sessions.values():
            if other is not visit and other.identity == visit.identity and not other.requests:
                other.door.deliveries.begun_anew()


def _key(identity: Identity) -> str:
    if identity.session_id is not None:
        return key_of(identity.session_id)
    if identity.agent is not None:
        return agent_keys.NAMED + identity.agent
    return agent_keys.PASSING + uuid.uuid4().hex


def _idlest(visits: Iterable[Visit]) -> Visit | None:
    """Return the `Visit` without requests for the longest time; None if all have requests in progress."""
    return min((visit for visit in visits if not visit.requests), key=lambda each: each.over_at, default=None)


def _same(visit: Visit, identity: Identity, remote: str) -> bool:
    if identity.is_named:
        return visit.identity == identity
    return not visit.identity.is_named and visit.remote == remote


def _note_answer(visit: Visit, number: str, stream: str) -> None:
    exchange = visit.streams.get(stream)
    if exchange is not None:
        exchange.number(number)
