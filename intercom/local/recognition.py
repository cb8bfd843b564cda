"""Who acts at the local socket: an operator, an agent, or somebody who cannot be told.

An agent has a shell under the operator's uid, so uid and token prove nothing. What it cannot choose is where its
processes come from: they descend from processes that are on record as an agent's, or belong to their POSIX session.
An operator sits at a terminal of their own. What a process can still do that leaves its ancestors, its session and its
terminal on purpose is told in docs/explanation/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import frozen

from intercom.local import processes
from intercom.local.processes import NotExaminable, Process, ProcessKey
from intercom.model.agent_process import AgentProcess, Role
from intercom.model.origin import Origin


class Who(StrEnum):
    OPERATOR = "operator"
    AGENT = "agent"
    UNKNOWN = "unknown"


@frozen
class KnownAgents:
    """The processes on record as agents', and the POSIX sessions (each by its leader) that are theirs."""

    processes: frozenset[ProcessKey] = frozenset()
    sessions: frozenset[ProcessKey] = frozenset()

    def of_line(self, line: Iterable[Process]) -> ProcessKey | None:
        """The first of these processes that is an agent's. Process 1 adopts everybody's orphans, so that descending
        from it says nothing."""
        return next((each.key for each in line if each.pid > 1 and each.key in self.processes), None)

    def of_session(self, process: Process, leader: ProcessKey | None) -> bool:
        """Whether the POSIX session of this process is an agent's; `leader` leads it now, None where that one is gone.

        Its number is not used again while one process is left in it. So without a leader it is the one on record, and
        with another leader than the one on record it is a later one.
        """
        if leader is not None:
            return leader in self.sessions
        number = (process.session, process.key.boot)
        return process.session > 0 and any((each.pid, each.boot) == number for each in self.sessions)


@frozen
class Recognised:
    """`why` is half a sentence in words for people; `origin` is what can be seen of the process."""

    who: Who
    why: str
    origin: Origin


def recognise(pid: int, agents: KnownAgents, channel: str = "ctl") -> Recognised:
    """Say who process `pid` is.

    AGENT: it, or a process above it, is on record; or its POSIX session is an agent's, or was started by one. UNKNOWN:
    it has no controlling terminal, is gone, is held by a debugger, or cannot be examined. OPERATOR: none of these.
    """
    try:
        origin = processes.origin(channel, pid)
        who, why = _recognise(pid, agents)
        # The pid may have become another's while it was looked at.
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
    """The leader of a process's POSIX session, and what stands above it; empty where it is gone or out of sight."""
    if process.session <= 0:
        return ()
    try:
        found = processes.examine(process.session)
    except NotExaminable:
        return ()
    # Its number stays the session's when the leader has ended; a process in another session has it by chance only if
    # the one on record is over.
    return processes.line(found.pid) if found.session == found.pid else ()


def lineage(pid: int, role: Role = Role.CLIENT, drivers: Iterable[int] = ()) -> tuple[AgentProcess, ...]:
    """What is to be on record of an agent's process: itself, all above it up to the leader of its POSIX session,
    whatever they are called, and the same of its `drivers`. Nothing beyond: what started the session (a desktop, a
    terminal multiplexer, the init system) is everybody's. Empty where the process cannot be examined."""
    found: dict[ProcessKey, AgentProcess] = {}
    for each, its_role in ((pid, role), *((driver, Role.DRIVER) for driver in drivers)):
        for entry in _lineage(each, its_role):
            found.setdefault(ProcessKey(entry.pid, entry.started, entry.boot), entry)
    return tuple(found.values())


def _lineage(pid: int, role: Role) -> list[AgentProcess]:
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
        AgentProcess(each.pid, each.key.started, each.key.boot, *leader, role if each is line[0] else Role.ANCESTOR)
        for each in session
    ]


def known(entries: Iterable[AgentProcess]) -> KnownAgents:
    """What is on record, made ready to be looked up."""
    entries = tuple(entries)
    return KnownAgents(
        frozenset(ProcessKey(each.pid, each.started, each.boot) for each in entries),
        frozenset(ProcessKey(each.leader, each.leader_started, each.boot) for each in entries if each.leader > 0),
    )


def over(entries: Iterable[AgentProcess]) -> tuple[AgentProcess, ...]:
    """Those that need not stay on record: from before the system started last; gone, with nothing left of their POSIX
    session; or gone, with another entry that keeps the session on record. Looks at every process there is."""
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
