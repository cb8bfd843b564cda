"""Processes: agents that people start, processes that are known as agents', and where a decision came from."""

from __future__ import annotations

import json
import signal
from datetime import datetime
from enum import StrEnum

import attrs
from attrs import frozen


class AgentProcessState(StrEnum):
    """The state of an agent process. `starting`: it should run, but its start is not confirmed. `waiting`: it ended,
    and will be restarted soon. `ending`: it ended or is being ended, and what depends on it is not settled. `over`:
    everything is settled."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    ENDING = "ending"
    OVER = "over"


class Why(StrEnum):
    """Why an agent process will not run again."""

    ENDED = "ended"
    NOT_STARTED = "not_started"
    CLEARED = "cleared"
    SHUTDOWN = "shutdown"


@frozen
class Exit:
    """How a process ended: its exit `code`, or the `signal` that killed it. Both are None if the end was not observed.
    `oom` means that the system was out of memory and killed processes at that time."""

    code: int | None = None
    signal: int | None = None
    oom: bool = False

    @property
    def is_success(self) -> bool:
        return self.code == 0

    def __str__(self) -> str:
        if self.code is not None:
            return f"exit code {self.code}"
        if self.signal is None:
            return "its end was not observed"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:
            name = f"signal {self.signal}"
        return f"killed by {name} because memory ran out" if self.oom else f"killed by {name}"


@frozen
class Process:
    """A process, identified by pid and start, because pids are reused. `began` is in seconds, counted from the system's
    start if that is known."""

    pid: int
    began: float


@frozen
class AgentProcess:
    """A row of `spawned_agent`. `run` counts its starts from 1, `restarts` consecutive restarts after failures.
    `monitor` is its process monitor, which holds the output and observes the end. `process` is the agent itself.
    `ran_at` is the start of this run, `restart_at` that of the next one. `said` is the error message if it could not be
    started."""

    session_id: str
    state: AgentProcessState
    created_at: datetime
    started_by: str
    label: str | None = None
    run: int = 1
    restarts: int = 0
    monitor: Process | None = None
    process: Process | None = None
    ran_at: datetime | None = None
    restart_at: datetime | None = None
    why: Why | None = None
    exit: Exit | None = None
    said: str | None = None

    @property
    def is_going(self) -> bool:
        """Whether it runs or will run."""
        return self.state in (AgentProcessState.STARTING, AgentProcessState.RUNNING, AgentProcessState.WAITING)


class Role(StrEnum):
    """Why a process is recorded. CLIENT connects to us: a relay, an HTTP client, a hook. DRIVER holds the other end of
    a client's standard streams. ANCESTOR is above one of these in the same POSIX session. STARTED was started for a
    person, and we supervise it."""

    CLIENT = "client"
    DRIVER = "driver"
    ANCESTOR = "ancestor"
    STARTED = "started"


@frozen
class ProcessRecord:
    """A recorded process, identified by `pid`, `started` (clock ticks since boot) and `boot` (the kernel's boot id).
    `leader` is the pid of its POSIX session's leader. `leader_started` is that one's start, 0 if it was gone.
    `session_id` is the Intercom session it belongs to, empty if unknown."""

    pid: int
    started: int
    boot: str
    leader: int
    leader_started: int
    role: Role
    session_id: str = ""


#: Longer names are cut, because a path of an executable has no useful limit.
_LONGEST = 1000


@frozen
class Origin:
    """The origin of a decision. Fields other than `channel` are None if they are unknown or do not apply.

    `channel` is the channel's name, as in a verdict. `pid`, `started` (clock ticks since boot) and `boot` (the kernel's
    boot id) identify the process. `terminal` is its controlling terminal. `leader` is the pid of its POSIX session's
    leader, which started at `leader_started`. `executable` is its file. `parent` is the pid of its parent process, and
    `parent_executable` that one's file.
    """

    channel: str
    pid: int | None = None
    started: int | None = None
    boot: str | None = None
    terminal: str | None = None
    leader: int | None = None
    leader_started: int | None = None
    executable: str | None = None
    parent: int | None = None
    parent_executable: str | None = None

    def to_data(self) -> dict[str, str | int]:
        """Return the known fields as JSON data."""
        known = ((name, getattr(self, name)) for name in _NAMES)
        return {name: value for name, value in known if value is not None}

    def to_text(self) -> str:
        """Return the known fields as compact JSON in ASCII."""
        return json.dumps(self.to_data(), separators=(",", ":"))

    @staticmethod
    def of(data: object) -> Origin:
        """Read what `to_data` returned. Fields of a newer version are ignored. Raises ValueError for anything else."""
        if not isinstance(data, dict) or not isinstance(data.get("channel"), str):
            raise ValueError("this is not the origin of a decision")
        return Origin(**{name: data[name] for name in _NAMES if name in data})

    @staticmethod
    def from_text(text: str) -> Origin:
        """Read what `to_text` wrote, as `of` does."""
        return Origin.of(json.loads(text))

    def describe(self) -> str:
        """Describe it in one phrase: "python3.12 (process 12), in /dev/pts/3, started by bash (process 11)". Empty if
        only the channel is known."""
        if self.pid is None:
            return ""
        words = [_process(self.pid, self.executable), f"in {self.terminal}" if self.terminal else "without a terminal"]
        if self.parent:
            words.append(f"started by {_process(self.parent, self.parent_executable)}")
        return ", ".join(words)


_NAMES = tuple(each.name for each in attrs.fields(Origin))


def _process(pid: int, executable: str | None) -> str:
    name = (executable or "").rpartition("/")[2][:_LONGEST]
    return f"{name} (process {pid})" if name else f"process {pid}"
