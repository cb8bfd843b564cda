"""Whose processes HTTP clients are: an agent's commands may not answer for it, by whatever road it came in."""

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

#: Looking through the system's tables may not hold up a client for longer, in seconds.
_SECONDS = 5.0


@define(eq=False)
class Kin:
    """`agents` keeps on record whose processes are agents'. Many connections that come at once are looked up at
    once."""

    agents: AgentProcesses
    _waiting: dict[tcp_peers.Pair, Connection] = field(factory=dict, init=False)
    _known: dict[int, int] = field(factory=dict, init=False)
    _sets: dict[frozenset[int], frozenset[int]] = field(factory=dict, init=False)
    _busy: trio.Lock = field(factory=trio.Lock, init=False)

    async def look(self, connection: Connection) -> None:
        """Find the processes behind a connection, and put them on record; none where that cannot be known (another
        user's, another machine's). Where the system takes too long to tell, or they cannot be put on record, nothing
        may be answered: raises Refusal, and they are looked for with the next request."""
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
            # Together, so that they share a commit.
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
        """The connection is gone; its processes stay an agent's for as long as they live."""
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
