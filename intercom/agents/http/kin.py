"""Finds the processes behind HTTP connections, so that an agent's commands cannot answer for it."""

from __future__ import annotations

import logging
import os
from http import HTTPStatus

import trio
from attrs import define, field

from actors import Busy, Down, NotRunning
from intercom.agents.http.connection import Connection
from intercom.agents.http.refusal import too_many
from intercom.agents.processes import AgentProcesses
from intercom.local import tcp_peers
from intercom.model.errors import IntercomError

log = logging.getLogger("intercom.http")

#: The time limit of a search in the system's tables, in seconds.
_SECONDS = 5.0


@define(eq=False)
class Kin:
    """Finds processes for many connections in one search. `agents` records which processes are agents'."""

    agents: AgentProcesses
    _waiting: dict[tcp_peers.Pair, Connection] = field(factory=dict, init=False)
    _known: dict[int, int] = field(factory=dict, init=False)
    _sets: dict[frozenset[int], frozenset[int]] = field(factory=dict, init=False)
    _busy: trio.Lock = field(factory=trio.Lock, init=False)

    async def look(self, connection: Connection) -> None:
        """Find and record the processes of a connection; none for another user's or another machine's. Raises Refusal
        if the search takes too long, or the processes cannot be recorded. No request may be answered then, and the next
        request searches again."""
        if not tcp_peers.is_local(connection.peer[0], connection.here[0]):
            connection.processes = frozenset()
            return
        pair = (connection.peer, connection.here)
        self._waiting[pair] = connection
        async with self._busy:
            if connection.processes is None:
                await self._look_all()
        if connection.processes is None:
            raise too_many("whose this connection is could not be found out just now", HTTPStatus.SERVICE_UNAVAILABLE)

    async def _look_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        found: dict[tcp_peers.Pair, frozenset[int]] | None = None
        with trio.move_on_after(_SECONDS):
            found = await trio.to_thread.run_sync(
                tcp_peers.holders, tuple(waiting), tuple(self._known), abandon_on_cancel=True
            )
        if found is None:
            log.warning("whose the processes of %d connections over HTTP are could not be found in time", len(waiting))
            return
        async with trio.open_nursery() as nursery:
            # In parallel, to share one commit.
            for pair, connection in waiting.items():
                # A client inside this process is the program that embeds the server.
                nursery.start_soon(self._record, connection, found.get(pair, frozenset()) - {os.getpid()})

    async def _record(self, connection: Connection, processes: frozenset[int]) -> None:
        if processes:
            try:
                await self.agents.came(_name(connection), processes)
            except (IntercomError, Busy, Down, NotRunning, trio.TooSlowError) as failed:
                log.warning("the processes of a connection over HTTP could not be put on record: %r", failed)
                return
        connection.processes = self._sets.setdefault(processes, processes)
        for pid in connection.processes:
            self._known[pid] = self._known.get(pid, 0) + 1

    def closed(self, connection: Connection) -> None:
        """Note that the connection is closed. Its processes count as an agent's until they end."""
        self._waiting.pop((connection.peer, connection.here), None)
        for pid in connection.processes or ():
            self._known[pid] -= 1
            if not self._known[pid]:
                del self._known[pid]
                self._sets.clear()
        if connection.processes:
            self.agents.left(_name(connection))


def _name(connection: Connection) -> str:
    return f"http/{connection.number}"
