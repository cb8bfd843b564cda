"""Records in the database which processes are agents', so that none becomes an operator when a server dies.

A process is recorded before the first call of its agent is answered. One that an earlier server knew is known before
ctl listens. It stays recorded until it and its whole POSIX session have ended. The end of its connection does not
matter: otherwise an agent could end its own relay and then answer for itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial

import psutil
import trio
from attrs import define, evolve, field

from intercom.local import peer_processes, processes
from intercom.local.processes import KnownAgents, NotExaminable, ProcessKey
from intercom.local.shim_process import is_launcher
from intercom.model.process import ProcessRecord, Role
from intercom.model.session import Session, SessionStatus
from intercom.sessions.agent_keys import is_anonymous
from intercom.store import processes as known_processes
from intercom.store import sessions
from intercom.store.store_and_reader import Store
from intercom.store.writer_messages import Database

log = logging.getLogger("intercom.agents")

_Name = tuple[str, int, int, str]


@define(eq=False)
class KnownProcesses:
    """The agents' processes. `connected` maps the name of each agent connection to its known pids. `load` runs in the
    store's thread when the store opens; all else runs in the loop. `starters` are agent processes that started this
    server and may not be connected yet."""

    store: Store
    now: Callable[[], datetime]
    starters: frozenset[int] = frozenset()
    connected: dict[str, frozenset[int]] = field(factory=dict)
    _entries: dict[_Name, ProcessRecord] = field(factory=dict)
    _recorded: set[_Name] = field(factory=set)
    _of_connection: dict[str, tuple[ProcessRecord, ...]] = field(factory=dict)
    _awaited: set[str] = field(factory=set)
    _loaded: bool = False
    _known: KnownAgents | None = None
    #: Whether an earlier server run left live sessions.
    is_restart: bool = False

    def load(self, db: Database) -> None:
        """Load the records of earlier server runs, and find the sessions whose agents are unknown."""
        found = known_processes.recorded(db)
        over = set(processes.ended_records(found))
        known_processes.forget(db, over)
        known_processes.forget_terminals(db, processes.boot_id())
        kept = [entry for entry in found if entry not in over]
        for entry in kept:
            self._entries[_name(entry)] = entry
            self._recorded.add(_name(entry))
        new = self._note(_lineages(self.starters, Role.CLIENT, with_drivers=True))
        known_processes.record(db, new, self.now())
        self._recorded.update(map(_name, new))
        self._known = None
        if not self._loaded:
            here = {entry.session_id for entry in kept if processes.is_there(_key(entry))}
            self._awaited = {each.id for each in sessions.live(db) if _is_awaited(each)} - here
            self.is_restart = bool(sessions.live(db))
        self._loaded = True

    @property
    def awaited(self) -> int:
        """The number of live sessions without a known agent. None of their recorded processes runs, and no agent has
        connected since the server started."""
        return len(self._awaited)

    def known(self) -> KnownAgents:
        """Return the known agents, from which operators are distinguished."""
        if self._known is None:
            self._known = processes.known_agents(tuple(self._entries.values()))
        return self._known

    async def came(
        self, connection: str, pids: Iterable[int], *, role: Role = Role.CLIENT, with_drivers: bool = False
    ) -> None:
        """Record the processes of a new agent connection, and all above them in their POSIX session. The record is
        committed when this returns. `with_drivers` also records the processes at the other end of their standard
        streams. Raises the store's errors: then this agent must not get any answer."""
        pids = frozenset(pids)
        self.connected[connection] = pids
        found = await self._look(pids, role, with_drivers)
        self._of_connection[connection] = found
        new = self._note(found)
        if new:
            await self.store.transact(partial(_insert, new, self.now()))
            self._recorded.update(map(_name, new))

    async def _look(self, pids: frozenset[int], role: Role, with_drivers: bool) -> tuple[ProcessRecord, ...]:
        known = [entry for pid in pids if (entry := self._on_record(pid)) is not None]
        if len(known) == len(pids) and not with_drivers:
            return tuple(known)
        if with_drivers:
            return await trio.to_thread.run_sync(_lineages, pids, role, True)
        return _lineages(pids, role, False)

    def _on_record(self, pid: int) -> ProcessRecord | None:
        try:
            key = processes.examine(pid).key
        except NotExaminable:
            return None
        name = (key.boot, key.pid, key.started, "")
        return self._entries[name] if name in self._recorded else None

    def started(self, connection: str, session_id: str, pids: Iterable[int]) -> None:
        """Record processes that the server started for a session. The record precedes anything that the store is asked
        for later."""
        self.connected[connection] = frozenset(pids)
        found = [evolve(each, session_id=session_id) for each in _lineages(self.connected[connection], Role.STARTED)]
        self._of_connection[connection] = tuple(found)
        new = self._note(found)
        if new:
            self.store.transact_soon(partial(_insert, new, self.now()))
            self._recorded.update(map(_name, new))
        self._awaited.discard(session_id)

    def left(self, connection: str) -> None:
        """Note that the connection is closed. Its processes stay recorded."""
        self.connected.pop(connection, None)
        self._of_connection.pop(connection, None)

    def in_session(self, session_id: str, connections: Iterable[str]) -> None:
        """Note that a session's agent has these connections."""
        self._awaited.discard(session_id)
        found = [entry for name in connections for entry in self._of_connection.get(name, ())]
        new = self._note([evolve(entry, session_id=session_id) for entry in found if entry.role is Role.CLIENT])
        if new:
            self.store.transact_soon(partial(_insert, new, self.now()))
            self._recorded.update(map(_name, new))

    def _note(self, found: Iterable[ProcessRecord]) -> tuple[ProcessRecord, ...]:
        """Count these as agents' processes at once. Returns those that are not recorded yet."""
        new = tuple(entry for entry in found if _name(entry) not in self._recorded)
        for entry in new:
            self._entries[_name(entry)] = entry
            self._known = None
        return new

    async def prune(self) -> None:
        """Forget processes that have ended with their whole POSIX session. Raises the store's errors: then a later
        server forgets them."""
        entries = tuple(self._entries.values())
        over = await trio.to_thread.run_sync(processes.ended_records, entries)
        if not over:
            return
        for entry in over:
            self._entries.pop(_name(entry), None)
            self._recorded.discard(_name(entry))
        self._known = None
        await self.store.transact(partial(known_processes.forget, processes=over))


def _lineages(pids: Iterable[int], role: Role, with_drivers: bool = False) -> tuple[ProcessRecord, ...]:
    found: dict[_Name, ProcessRecord] = {}
    for pid in sorted(pids):
        drivers: frozenset[int] = frozenset()
        if with_drivers:
            # The server itself is no driver, even if it holds an end of their streams.
            drivers = peer_processes.stdio_holders(pid, _above(pid)) - {os.getpid()}
        for entry in processes.lineage(pid, role, drivers):
            found.setdefault(_name(entry), entry)
    return tuple(found.values())


def _above(pid: int) -> list[int]:
    try:
        return [each.pid for each in processes.line(pid)[1:]]
    except NotExaminable:
        return []


def _insert(new: Iterable[ProcessRecord], at: datetime, db: Database) -> None:
    known_processes.record(db, new, at)


def _is_awaited(session: Session) -> bool:
    key = session.agent_key
    return key is not None and session.status is not SessionStatus.INTERRUPTED and not is_anonymous(key)


def _key(entry: ProcessRecord) -> ProcessKey:
    return ProcessKey(entry.pid, entry.started, entry.boot)


def _name(entry: ProcessRecord) -> _Name:
    return entry.boot, entry.pid, entry.started, entry.session_id


def nearest(pid: int, connections: Mapping[str, frozenset[int]]) -> tuple[str, ...]:
    """Return the names of the connections whose client is the nearest ancestor of process `pid`; empty if there is
    none. `connections` maps each name to the processes of its shim and client."""
    above = [process.pid for process in _line(pid)[1:]]
    # Over HTTP one client may have many connections.
    known = {pids: _with_hosts(pids) for pids in set(connections.values())}
    hosts = {name: known[pids] for name, pids in connections.items()}
    for ancestor in above:
        found = tuple(name for name, pids in hosts.items() if ancestor in pids)
        if found:
            return found
    return ()


def _with_hosts(pids: frozenset[int]) -> frozenset[int]:
    """Return `pids` and, for each mere launcher, the processes above it up to the first real program."""
    found = set(pids)
    for pid in pids:
        for process in _line(pid):
            if not is_launcher(_command(process)):
                found.add(process.pid)
                break
            found.add(process.pid)
    return frozenset(pid for pid in found if pid > 1)


def _line(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.parents()]
    except (psutil.Error, ValueError):
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []
