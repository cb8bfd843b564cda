"""Processes: agents that people started, those that are known as agents', and terminals that operators decided from.

All outlive the server: the next one finds the agents again, and still refuses what a known agent's process decides.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path

from sqlite_utils import Database

from intercom.model.process import AgentProcess, AgentProcessState, Exit, Origin, Process, ProcessRecord
from intercom.store import rows
from intercom.store.rows import Columns, Part, Table


class AgentProcesses(Table[AgentProcess]):
    """Agents that people started: one row for each of their sessions."""

    def is_going(self, db: Database, session_id: str) -> bool:
        """Whether this session has an agent process that runs or is about to run."""
        found = self.get(db, session_id)
        return found is not None and found.is_going

    def unfinished(self, db: Database) -> tuple[AgentProcess, ...]:
        """Return all agent processes that are not over, oldest first."""
        return self.select(db, "state <> 'over' order by created_at, rowid")

    def everyone(self, db: Database, session_ids: Collection[str] | None = None) -> tuple[AgentProcess, ...]:
        """Return the agent processes of these sessions, or all, oldest first."""
        ids = list(session_ids or ())
        where = "true" if session_ids is None else f"session_id in ({rows.placeholders(ids)})"
        return self.select(db, f"{where} order by created_at, rowid", ids)

    def change(self, db: Database, process: AgentProcess, expect: Collection[AgentProcessState]) -> bool:
        """Replace the row of this session if it is of the same run or the one before, and in a state of `expect`.
        Returns False and changes nothing otherwise. Returns True if the row already equals `process`."""
        if self.get(db, process.session_id) == process:
            return True
        where = f"session_id = :id and state in ({rows.literals(expect)}) and run in (:run, :run - 1)"
        values = {"id": process.session_id, "run": process.run}
        return self.update(db, where, values, **self.columns.write(process)) > 0

    def forget(self, db: Database, session_ids: Collection[str]) -> int:
        """Delete those of the given sessions' agent processes that are over. Returns how many were deleted."""
        where = f"session_id in ({rows.placeholders(list(session_ids))}) and state = 'over'"
        return rows.affected(db, f"delete from spawned_agent where {where}", list(session_ids))

    def expired(self, db: Database, cutoff: datetime, limit: int) -> tuple[str, ...]:
        """Return sessions terminated before `cutoff` whose agent process is over, oldest first. Their output may be
        deleted."""
        sql = (
            "select session_id from spawned_agent join session on session.id = session_id where state = 'over'"
            " and status = 'terminated' and terminated_at < ? order by terminated_at, session_id limit ?"
        )
        return tuple(rows.column(db, sql, (cutoff, limit)))


agent_processes = AgentProcesses(
    "spawned_agent",
    AgentProcess,
    key="session_id",
    parts={
        "monitor": Part(Columns(Process, names={"pid": "monitor_pid", "began": "monitor_began"}), "monitor_pid"),
        "process": Part(Columns(Process), "pid"),
        # Neither code nor signal is known if nobody observed the end, so the end has a flag of its own.
        "exit": Part(
            Columns(Exit, names={"code": "exit_code", "signal": "exit_signal", "oom": "exit_oom"}),
            "exited",
            flag=True,
            missing={"exit_oom": 0},
        ),
    },
)

# --- processes that are known as agents' -----------------------------------------------------------------------------

_RECORDS = Table("agent_process", ProcessRecord, conflict="do nothing")


def record(db: Database, processes: Iterable[ProcessRecord], at: datetime) -> None:
    """Insert processes. Those already recorded stay as they are."""
    for each in processes:
        _RECORDS.insert(db, each, recorded_at=at)


def recorded(db: Database) -> tuple[ProcessRecord, ...]:
    """Return all recorded processes, oldest first."""
    return _RECORDS.select(db, "true order by recorded_at, rowid")


def recorded_in(file: Path) -> tuple[ProcessRecord, ...]:
    """Return all processes recorded in a database that another process may be writing. Returns none if the database
    does not exist. Raises sqlite3.Error if it cannot be read."""
    if not file.exists():
        return ()
    with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return recorded(Database(connection))


def forget(db: Database, processes: Iterable[ProcessRecord]) -> None:
    """Delete processes that have ended, each for its session."""
    for each in processes:
        db.execute(
            "delete from agent_process where boot = ? and pid = ? and started = ? and session_id = ?",
            (each.boot, each.pid, each.started, each.session_id),
        )


def is_new_terminal(db: Database, origin: Origin, at: datetime) -> bool:
    """Record that somebody decided from this terminal. Returns whether it is the first time. A terminal is one POSIX
    session at one device since one system start."""
    row = {
        "boot": origin.boot or "",
        "leader": origin.leader or 0,
        "leader_started": origin.leader_started or 0,
        "terminal": origin.terminal or "",
        "first_at": at,
    }
    return rows.insert(db, "operator_terminal", row, conflict="do nothing")


def forget_terminals(db: Database, boot: str) -> None:
    """Delete the terminals from before the last system start: they no longer exist."""
    db.execute("delete from operator_terminal where boot <> ?", (boot,))
