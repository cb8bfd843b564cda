"""Processes: facts about them from the operating system, and whether one is an operator's or an agent's.

On Linux this reads a few files of `/proc` per process (about 10 µs each); elsewhere it uses psutil. It uses nothing
that a process chooses itself, such as its name, environment or command line.

An agent has a shell under the operator's uid, so uid and token prove nothing. But an agent cannot choose the ancestry
of its processes: they descend from recorded agent processes, or belong to their POSIX sessions. An operator uses a
terminal of their own. docs/explanation/security.md describes what a process can do that leaves all three on purpose.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum

from attrs import frozen

from intercom.model.process import Origin, ProcessRecord, Role

#: The maximum number of ancestors; real processes have fewer.
_LONGEST_LINE = 256
#: The read size for `/proc/<pid>/stat`, which is always shorter.
_STAT_BYTES = 4096
#: The number of attempts for a line of ancestors that changes while it is read.
_TRIES = 5
#: The clock ticks of `started` in a second.
TICKS = os.sysconf("SC_CLK_TCK") if sys.platform.startswith("linux") else 100
#: The major device numbers of pseudo-terminals.
_PTS_MAJORS = range(136, 144)
_LINUX = sys.platform.startswith("linux")


class NotExaminable(Exception):
    """A process is gone, or the system hides it. The message says which, as half a sentence."""


@frozen
class ProcessKey:
    """Identifies one process: pids are reused, and start times alone collide. `started` counts clock ticks since the
    system started, and `boot` is the kernel's boot id."""

    pid: int
    started: int
    boot: str


@frozen
class Process:
    """A process. `session` is the pid of its POSIX session's leader, 0 if that is hidden. `terminal` is the device
    number of its controlling terminal, 0 for none."""

    key: ProcessKey
    parent: int
    session: int
    terminal: int

    @property
    def pid(self) -> int:
        return self.key.pid


@functools.cache
def boot_id() -> str:
    """Return the identifier of the current boot."""
    if _LINUX:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    import psutil

    return str(int(psutil.boot_time()))


def examine(pid: int) -> Process:
    """Return the facts about the process that has this pid now. Raises NotExaminable; a zombie counts as gone."""
    if pid <= 0:
        raise NotExaminable("the system does not tell which process it is")
    return _by_proc(pid) if _LINUX else _by_psutil(pid)


def _by_proc(pid: int) -> Process:
    try:
        # One read returns the whole file.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            # The name in parentheses may contain any character.
            fields = os.read(descriptor, _STAT_BYTES).rpartition(b")")[2].split()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise NotExaminable(f"process {pid} is gone, or hidden from us") from error
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        raise NotExaminable(f"process {pid} has ended")
    parent, session, terminal = int(fields[1]), int(fields[3]), int(fields[4])
    return Process(ProcessKey(pid, int(fields[19]), boot_id()), parent, session, max(0, terminal))


def _by_psutil(pid: int) -> Process:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise NotExaminable(f"process {pid} has ended")
        with process.oneshot():
            name = process.terminal()
            started = int(process.create_time() * TICKS)
            terminal = 0 if name is None else os.stat(name).st_rdev
            return Process(ProcessKey(pid, started, boot_id()), process.ppid(), os.getsid(pid), terminal)
    except (psutil.Error, OSError) as error:
        raise NotExaminable(f"process {pid} is gone, or hidden from us") from error


def every() -> Iterator[Process]:
    """Iterate over all visible processes. Fifty take about a millisecond."""
    for pid in pids():
        try:
            yield examine(pid)
        except NotExaminable:
            continue


def pids() -> list[int]:
    """Return the pids of all visible processes."""
    if _LINUX:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    import psutil

    return psutil.pids()


def is_running(pid: int) -> bool:
    """Whether a process with this id is running. It may be another one than before."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # It is another user's.
        return True
    return True


def is_there(key: ProcessKey) -> bool:
    """Whether exactly this process is running."""
    try:
        return examine(key.pid).key == key
    except NotExaminable:
        return False


def line(pid: int) -> tuple[Process, ...]:
    """Return process `pid` and its visible ancestors, nearest first. Raises NotExaminable.

    If the line changes while it is read (a parent ends), it is read again, so no unrelated process is taken for a
    parent.
    """
    for _ in range(_TRIES):
        found = _line(pid)
        # A parent that is younger than its child has a reused pid.
        ages = [each.key.started for each in found]
        if found == _line(pid) and ages == sorted(ages, reverse=True):
            return tuple(found)
    raise NotExaminable(f"the ancestors of process {pid} change all the time")


def _line(pid: int) -> list[Process]:
    found = [examine(pid)]
    while found[-1].parent > 0:
        if len(found) == _LONGEST_LINE:
            raise NotExaminable(f"process {pid} has too many ancestors")
        try:
            found.append(examine(found[-1].parent))
        except NotExaminable:
            if not _is_hidden(found[-1].parent):
                raise
            break
    return found


def _is_hidden(pid: int) -> bool:
    """Whether a process exists but is visible to its owner only, which is a mount option of `/proc`."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def tracer(pid: int) -> int:
    """Return the pid of the debugger that is attached to this process, or 0. Raises NotExaminable."""
    if not _LINUX:
        return 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for words in file:
                if words.startswith(b"TracerPid:"):
                    return int(words.split()[1])
    except OSError as error:
        raise NotExaminable(f"process {pid} is gone, or hidden from us") from error
    return 0


def executable(pid: int) -> str | None:
    """Return the file that a process runs, or None if it is hidden."""
    try:
        if _LINUX:
            return os.readlink(f"/proc/{pid}/exe")
        import psutil

        return psutil.Process(pid).exe() or None
    except Exception:  # psutil raises many kinds of errors, and this is only one field of a record
        return None


def terminal_name(device: int) -> str | None:
    """Return the name of a terminal's device number, or None for no terminal."""
    if not device:
        return None
    if not _LINUX:
        return os.fspath(f"terminal {os.major(device)}:{os.minor(device)}")
    # The layout in `stat`: the minor's low byte, the major, and the minor's other bits.
    major, minor = (device >> 8) & 0xFFF, (device & 0xFF) | ((device >> 12) & 0xFFF00)
    if major in _PTS_MAJORS:
        return f"/dev/pts/{(major - _PTS_MAJORS[0]) * 256 + minor}"
    return f"/dev/tty{minor}" if major == 4 else f"terminal {major}:{minor}"


def origin(channel: str, pid: int) -> Origin:
    """Return the origin of an action of this process, with the fields that are visible."""
    try:
        process = examine(pid)
    except NotExaminable:
        return Origin(channel, pid=pid if pid > 0 else None)
    try:
        leader_started: int | None = examine(process.session).key.started
    except NotExaminable:
        leader_started = None
    return Origin(
        channel,
        pid=process.pid,
        started=process.key.started,
        boot=process.key.boot,
        terminal=terminal_name(process.terminal),
        leader=process.session or None,
        leader_started=leader_started,
        executable=executable(process.pid),
        parent=process.parent or None,
        parent_executable=executable(process.parent),
    )


# --- recognition -----------------------------------------------------------------------------------------------------


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
        seen = origin(channel, pid)
        who, why = _recognise(pid, agents)
        # The pid may have been reused during the examination.
        if who is not Who.UNKNOWN and examine(pid).key.started != seen.started:
            raise NotExaminable(f"process {pid} has ended")
    except NotExaminable as hidden:
        return Recognised(Who.UNKNOWN, str(hidden), Origin(channel, pid=pid if pid > 0 else None))
    return Recognised(who, why, seen)


def _recognise(pid: int, agents: KnownAgents) -> tuple[Who, str]:
    ancestry = line(pid)
    process = ancestry[0]
    if (ours := agents.of_line(ancestry)) is not None:
        return Who.AGENT, f"process {pid} is, or was started by, process {ours.pid}, which is an agent's"
    leader = _leader(process)
    if agents.of_session(process, leader[0].key if leader else None):
        return Who.AGENT, f"process {pid} belongs to the session of process {process.session}, which is an agent's"
    if (ours := agents.of_line(leader)) is not None:
        return Who.AGENT, f"the terminal session of process {pid} was started by process {ours.pid}, an agent's"
    if not process.terminal:
        return Who.UNKNOWN, f"process {pid} has no terminal"
    if not leader:
        return Who.UNKNOWN, f"the leader of the session of process {pid} cannot be seen"
    for each in (*ancestry, *leader):
        if each.session == process.session and (debugger := tracer(each.pid)):
            return Who.UNKNOWN, f"process {each.pid} is controlled by a debugger (process {debugger})"
    return Who.OPERATOR, f"process {pid} runs in {terminal_name(process.terminal)}, which is no agent's"


def _leader(process: Process) -> tuple[Process, ...]:
    """Return the leader of a process's POSIX session and its ancestors. Empty if it is gone or hidden."""
    if process.session <= 0:
        return ()
    try:
        found = examine(process.session)
    except NotExaminable:
        return ()
    # The session keeps the number of a leader that has ended. A process in another session can have this number by
    # chance only if the recorded session is over.
    return line(found.pid) if found.session == found.pid else ()


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
        ancestry = line(pid)
        top = _leader(ancestry[0])[:1]
    except NotExaminable:
        return []
    session = [each for each in ancestry if each.session == ancestry[0].session]
    if top and top[0] not in session:
        session.append(top[0])
    leader = (ancestry[0].session, top[0].key.started if top else 0)
    return [
        ProcessRecord(
            each.pid, each.key.started, each.key.boot, *leader, role if each is ancestry[0] else Role.ANCESTOR
        )
        for each in session
    ]


def known_agents(entries: Iterable[ProcessRecord]) -> KnownAgents:
    """Index recorded processes for lookups."""
    entries = tuple(entries)
    return KnownAgents(
        frozenset(ProcessKey(each.pid, each.started, each.boot) for each in entries),
        frozenset(ProcessKey(each.leader, each.leader_started, each.boot) for each in entries if each.leader > 0),
    )


def ended_records(entries: Iterable[ProcessRecord]) -> tuple[ProcessRecord, ...]:
    """Return the entries that need not stay recorded. They are from an earlier boot, or gone. An entry that is gone
    stays recorded only if its POSIX session still has processes and no other entry records that session. This examines
    every process."""
    here = boot_id()
    living = {each.key: each for each in every()}
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
