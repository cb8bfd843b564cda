"""An agent process that a person started, and its status. Each started session has one."""

from __future__ import annotations

import signal
from datetime import datetime
from enum import StrEnum

from attrs import frozen


class ChildState(StrEnum):
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
            return "nobody saw how it ended"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:
            name = f"signal {self.signal}"
        return f"killed by {name}, as memory ran out" if self.oom else f"killed by {name}"


@frozen
class Process:
    """A process, identified by pid and start, because pids are reused. `began` is in seconds, counted from the system's
    start if that is known."""

    pid: int
    began: float


@frozen
class Child:
    """A row of `child`. `run` counts its starts from 1, `restarts` consecutive restarts after failures. `keeper` is the
    process monitor, which holds the agent's output and observes its end. `process` is the agent itself. `ran_at` is the
    start of this run, `restart_at` that of the next one. `said` is the error message if it could not be started."""

    session_id: str
    state: ChildState
    created_at: datetime
    started_by: str
    label: str | None = None
    run: int = 1
    restarts: int = 0
    keeper: Process | None = None
    process: Process | None = None
    ran_at: datetime | None = None
    restart_at: datetime | None = None
    why: Why | None = None
    exit: Exit | None = None
    said: str | None = None

    @property
    def is_going(self) -> bool:
        """Whether it runs or will run."""
        return self.state in (ChildState.STARTING, ChildState.RUNNING, ChildState.WAITING)
