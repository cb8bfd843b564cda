"""Agents that people started: one row for each of their sessions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.process import AgentProcess, AgentProcessState, Exit, Process
from intercom.store import rows
from intercom.store.rows import Columns, Part, Table

_PROCESSES = Table(
    "child",
    AgentProcess,
    parts={
        "monitor": Part(Columns(Process, names={"pid": "keeper_pid", "began": "keeper_began"}), "keeper_pid"),
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


def insert(db: Database, child: AgentProcess) -> bool:
    """Insert a new agent process. Returns False and changes nothing if its session has one already."""
    return _PROCESSES.insert(db, child, conflict="(session_id) do nothing")


def get(db: Database, session_id: str) -> AgentProcess | None:
    """Return the agent process of this session, or None."""
    return _PROCESSES.first(db, "session_id = ?", (session_id,))


def is_going(db: Database, session_id: str) -> bool:
    """Whether this session has an agent process that runs or is about to run."""
    return bool(
        rows.count(
            db,
            "select count(*) from child where session_id = ? and state in ('starting', 'running', 'waiting')",
            (session_id,),
        )
    )


def unfinished(db: Database) -> tuple[AgentProcess, ...]:
    """Return all agent processes that are not over, oldest first."""
    return _PROCESSES.select(db, "state <> 'over' order by created_at, rowid")


def everyone(db: Database, session_ids: Collection[str] | None = None) -> tuple[AgentProcess, ...]:
    """Return the agent processes of these sessions, or all, oldest first."""
    ids = list(session_ids or ())
    where = "true" if session_ids is None else f"session_id in ({rows.placeholders(ids)})"
    return _PROCESSES.select(db, f"{where} order by created_at, rowid", ids)


def change(db: Database, child: AgentProcess, expect: Collection[AgentProcessState]) -> bool:
    """Replace the row of `child` if it is of the same run or the one before, and in a state of `expect`. Returns
    False and changes nothing otherwise. Returns True if the row already equals `child`."""
    row = _PROCESSES.columns.write(child)
    if get(db, child.session_id) == child:
        return True
    named = ", ".join(f"{name} = :{name}" for name in row if name != "session_id")
    states = ", ".join(f"'{state.value}'" for state in expect)
    return rows.changed(
        db,
        f"update child set {named} where session_id = :session_id and state in ({states}) and run in (:run, :run - 1)",
        row,
    )


def forget(db: Database, session_ids: Collection[str]) -> int:
    """Delete those of the given sessions' agent processes that are over. Returns how many were deleted."""
    where = f"session_id in ({rows.placeholders(list(session_ids))}) and state = 'over'"
    return rows.affected(db, f"delete from child where {where}", list(session_ids))


def expired(db: Database, cutoff: datetime, limit: int) -> tuple[str, ...]:
    """Return sessions terminated before `cutoff` whose agent process is over, oldest first. Their output may be
    deleted."""
    return tuple(
        rows.column(
            db,
            "select session_id from child join session on session.id = session_id where state = 'over'"
            " and status = 'terminated' and terminated_at < ? order by terminated_at, session_id limit ?",
            (clock.to_text(cutoff), limit),
        )
    )
