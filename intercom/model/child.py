"""A child: the process of an agent that people started, and how it fares. One for each session they started."""

from __future__ import annotations

import signal
from datetime import datetime
from enum import StrEnum

from attrs import frozen


class ChildState(StrEnum):
    """`starting`: it is to run, and nobody knows yet that it does. `waiting`: it ended, and runs again soon. `ending`:
    it ended or is being ended, and what hangs on it is not settled. `over`: all that is done."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    ENDING = "ending"
    OVER = "over"


class Why(StrEnum):
    """Why a child is not to run any more."""

    ENDED = "ended"
    NOT_STARTED = "not_started"
    CLEARED = "cleared"
    SHUTDOWN = "shutdown"


@frozen
class Exit:
    """How a process ended: `code` its own, or the `signal` that killed it, neither when nobody saw it. `oom` says that
    the system killed for want of memory then."""

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
    """A process, named for good: pids are used again. `began` is in seconds, since the system's start where that is
    told."""

    pid: int
    began: float


@frozen
class Child:
    """A row of `child`. `run` counts its starts from 1, `restarts` those in a row that ended badly; `keeper` holds its
    output and sees its end, `process` is the agent itself. `ran_at` says when this run began, `restart_at` when the
    next one is due. `said` is an error's sentence, where it could not be started."""

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
        """Whether it runs, or is to run."""
        return self.state in (ChildState.STARTING, ChildState.RUNNING, ChildState.WAITING)
