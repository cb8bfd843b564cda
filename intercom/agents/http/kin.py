"""Whose processes HTTP clients are: an agent's commands may not answer for it, by whatever road it came in."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import trio
from attrs import define, field

from intercom.agents.http.connection import Connection
from intercom.local import tcp_peers

log = logging.getLogger("intercom.http")

#: Looking through the system's tables may not hold up a client for longer, in seconds.
_SECONDS = 5.0


@define(eq=False)
class Kin:
    """`came` and `left` note an agent's processes under a name. Many connections that come at once are looked up at
    once."""

    came: Callable[[str, frozenset[int]], None]
    left: Callable[[str, bool], None]
    _waiting: dict[tcp_peers.Pair, Connection] = field(factory=dict, init=False)
    _known: dict[int, int] = field(factory=dict, init=False)
    _sets: dict[frozenset[int], frozenset[int]] = field(factory=dict, init=False)
    _busy: trio.Lock = field(factory=trio.Lock, init=False)

    async def look(self, connection: Connection) -> None:
        """Find the processes behind a connection, and note them; none where that can not be known. Where the system
        takes too long to tell, they stay unknown, and are looked for with the next request."""
        if not tcp_peers.is_local(connection.peer[0], connection.here[0]):
            connection.processes = frozenset()
            return
        pair = (connection.peer, connection.here)
        self._waiting[pair] = connection
        async with self._busy:
            if connection.processes is None:
                await self._look_all()

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
        for pair, connection in waiting.items():
            # A client inside this process is the program that embeds the server.
            processes = found.get(pair, frozenset()) - {os.getpid()}
            connection.processes = self._sets.setdefault(processes, processes)
            for pid in connection.processes:
                self._known[pid] = self._known.get(pid, 0) + 1
            if connection.processes:
                self.came(_name(connection), connection.processes)

    def closed(self, connection: Connection) -> None:
        """The connection is gone; its processes stay an agent's for as long as they live."""
        self._waiting.pop((connection.peer, connection.here), None)
        for pid in connection.processes or ():
            self._known[pid] -= 1
            if not self._known[pid]:
                del self._known[pid]
                self._sets.clear()
        if connection.processes:
            self.left(_name(connection), False)


def _name(connection: Connection) -> str:
    return f"http/{connection.number}"
