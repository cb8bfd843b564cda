"""Recognition of the peer at the local socket: an operator, an agent, or unknown.

An agent has a shell under the operator's uid, so uid and token prove nothing. But an agent cannot choose the ancestry
of its processes: they descend from recorded agent processes, or belong to their POSIX sessions. An operator uses a
terminal of their own. docs/explanation/security.md describes what a process can do that leaves all three on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import frozen

from intercom.local import processes
from intercom.local.processes import NotExaminable, Process, ProcessKey
from intercom.model.process import Origin, ProcessRecord, Role


class Who(StrEnum):
    OPERATOR = "operator"
    AGENT = "agent"
    UNKNOWN = "unknown"


@frozen
class KnownAgents:
    """The recorded processes of agents, and their POSIX sessions, each as its leader."""

    processes: frozenset[ProcessKey] = frozenset()
    sessions: frozenset[ProcessKey] = frozenset()

    def of_line(self, line: Iterable[Process]) -> ProcessKey | None:
        """Return the first of these processes that is an agent's. Process 1 is skipped: it adopts all orphans, so
        descent from it proves nothing."""
        return next((each.key for each in line if each.pid > 1 and each.key in self.processes), None)

    def of_session(self, process: Process, leader: ProcessKey | None) -> bool:
        """Whether the POSIX session of this process is an agent's. `leader` is its leader, or None if that has ended.

        The system does not reuse a session's number while a process is left in it. So a session without a leader is the
        recorded one. A session whose leader differs from the recorded one is a later session.
        """
        if leader is not None:
            return leader in self.sessions
        number = (process.session, process.key.boot)
        return process.session > 0 and any((each.pid, each.boot) == number for each in self.sessions)


@frozen
class Recognised:
    """The result of `recognise`. `why` is half a sentence for people; `origin` holds what is visible of the process."""

    who: Who
    why: str
    origin: Origin


def recognise(pid: int, agents: KnownAgents, channel: str = "ctl") -> Recognised:
    """Classify process `pid`.

    AGENT: it or an ancestor is recorded, or its POSIX session is an agent's or was started by one. UNKNOWN: it has no
    controlling terminal, is gone, has a debugger attached, or cannot be examined. OPERATOR: none of these.
    """
    try:
        origin = processes.origin(channel, pid)
        who, why = _recognise(pid, agents)
        # The pid may have been reused during the examination.
        if who is not Who.UNKNOWN and processes.examine(pid).key.started != origin.started:
            raise NotExaminable(f"process {pid} has ended")
    except NotExaminable as hidden:
        return Recognised(Who.UNKNOWN, str(hidden), Origin(channel, pid=pid if pid > 0 else None))
    return Recognised(who, why, origin)


def _recognise(pid: int, agents: KnownAgents) -> tuple[Who, str]:
    line = processes.line(pid)
    process = line[0]
    if (ours := agents.of_line(line)) is not None:
        return Who.AGENT, f"process {pid} is, or was started by, process {ours.pid}, which is an agent's"
    leader = _leader(process)
    if agents.of_session(process, leader[0].key if leader else None):
        return Who.AGENT, f"process {pid} belongs to the session of process {process.session}, which is an agent's"
    if (ours := agents.of_line(leader)) is not None:
        return Who.AGENT, f"the terminal session of process {pid} was started by process {ours.pid}, an agent's"
    if not process.terminal:
        return Who.UNKNOWN, f"process {pid} has no terminal"
    if not leader:
        return Who.UNKNOWN, f"the leader of the session of process {pid} is out of sight"
    for each in (*line, *leader):
        if each.session == process.session and (debugger := processes.tracer(each.pid)):
            return Who.UNKNOWN, f"process {each.pid} is held by a debugger (process {debugger})"
    return Who.OPERATOR, f"process {pid} runs in {processes.terminal_name(process.terminal)}, which is no agent's"


def _leader(process: Process) -> tuple[Process, ...]:
    """Return the leader of a process's POSIX session and its ancestors. Empty if it is gone or hidden."""
    if process.session <= 0:
        return ()
    try:
        found = processes.examine(process.session)
    except NotExaminable:
        return ()
    # The session keeps the number of a leader that has ended. A process in another session can have this number by
    # chance only if the recorded session is over.
    return processes.line(found.pid) if found.session == found.pid else ()


def lineage(pid: int, role: Role = Role.CLIENT, drivers: Iterable[int] = ()) -> tuple[ProcessRecord, ...]:
    """Return what to record for an agent's process. This is the process, all its ancestors up to the leader of its
    POSIX session, and the same for its `drivers`. It stops there: the starter of the session (a desktop, a terminal
    multiplexer, the init system) serves others too. Empty if the process cannot be examined."""
    found: dict[ProcessKey, ProcessRecord] = {}
    for each, its_role in ((pid, role), *((driver, Role.DRIVER) for driver in drivers)):
        for entry in _lineage(each, its_role):
            found.setdefault(ProcessKey(entry.pid, entry.started, entry.boot), entry)
    return tuple(found.values())


def _lineage(pid: int, role: Role) -> list[ProcessRecord]:
    if pid <= 1:
        return []
    try:
        line = processes.line(pid)
        top = _leader(line[0])[:1]
    except NotExaminable:
        return []
    session = [each for each in line if each.session == line[0].session]
    if top and top[0] not in session:
        session.append(top[0])
    leader = (line[0].session, top[0].key.started if top else 0)
    return [
        ProcessRecord(each.pid, each.key.started, each.key.boot, *leader, role if each is line[0] else Role.ANCESTOR)
        for each in session
    ]


def known(entries: Iterable[ProcessRecord]) -> KnownAgents:
    """Index recorded processes for lookups."""
    entries = tuple(entries)
    return KnownAgents(
        frozenset(ProcessKey(each.pid, each.started, each.boot) for each in entries),
        frozenset(ProcessKey(each.leader, each.leader_started, each.boot) for each in entries if each.leader > 0),
    )


def over(entries: Iterable[ProcessRecord]) -> tuple[ProcessRecord, ...]:
    """Return the entries that need not stay recorded. They are from an earlier boot, or gone. An entry that is gone
    stays recorded only if its POSIX session still has processes and no other entry records that session. This examines
    every process."""
    here = processes.boot_id()
    living = {each.key: each for each in processes.every()}
    sessions = {each.session for each in living.values()}
    leaders = {each.pid: each.key.started for each in living.values() if each.pid == each.session}
    kept: set[tuple[int, int]] = set()
    dead, found = [], []
    for entry in entries:
        session = (entry.leader, entry.leader_started)
        if entry.boot != here:
            found.append(entry)
        elif ProcessKey(entry.pid, entry.started, entry.boot) in living:
            kept.add(session)
        elif entry.leader in sessions and leaders.get(entry.leader, entry.leader_started) == entry.leader_started:
            dead.append(entry)
        else:
            found.append(entry)
    for entry in dead:
        session = (entry.leader, entry.leader_started)
        if session in kept:
            found.append(entry)
        kept.add(session)
    return tuple(found)
