"""Queries on agent processes started by people, one row for each session."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.child import Child, ChildState, Exit, Process, Why
from intercom.store import rows
from intercom.store.rows import Row


def _to_row(child: Child) -> Row:
    ended = child.exit or Exit()
    return {
        "session_id": child.session_id,
        "state": child.state.value,
        "created_at": clock.to_text(child.created_at),
        "started_by": child.started_by,
        "label": child.label,
        "run": child.run,
        "restarts": child.restarts,
        "keeper_pid": child.keeper and child.keeper.pid,
        "keeper_began": child.keeper and child.keeper.began,
        "pid": child.process and child.process.pid,
        "began": child.process and child.process.began,
        "ran_at": rows.time_text(child.ran_at),
        "restart_at": rows.time_text(child.restart_at),
        "why": child.why and child.why.value,
        "exit_code": ended.code,
        "exit_signal": ended.signal,
        "exit_oom": int(ended.oom),
        "exited": int(child.exit is not None),
        "said": child.said,
    }


def _from_row(row: Row) -> Child:
    keeper, process = (row["keeper_pid"], row["keeper_began"]), (row["pid"], row["began"])
    return Child(
        session_id=row["session_id"],
        state=ChildState(row["state"]),
        created_at=clock.from_text(row["created_at"]),
        started_by=row["started_by"],
        label=row["label"],
        run=row["run"],
        restarts=row["restarts"],
        keeper=None if keeper[0] is None else Process(*keeper),
        process=None if process[0] is None else Process(*process),
        ran_at=rows.time_value(row["ran_at"]),
        restart_at=rows.time_value(row["restart_at"]),
        why=None if row["why"] is None else Why(row["why"]),
        exit=Exit(row["exit_code"], row["exit_signal"], bool(row["exit_oom"])) if row["exited"] else None,
        said=row["said"],
    )


def insert(db: Database, child: Child) -> bool:
    """Insert a new agent process. Returns False and changes nothing if its session has one already."""
    return rows.insert(db, "child", _to_row(child), conflict="(session_id) do nothing")


def get(db: Database, session_id: str) -> Child | None:
    """Return the agent process of this session, or None."""
    row = rows.one(db, "select * from child where session_id = ?", (session_id,))
    return None if row is None else _from_row(row)


def is_going(db: Database, session_id: str) -> bool:
    """Whether this session has an agent process that runs or is about to run."""
    return bool(
        rows.count(
            db,
            "select count(*) from child where session_id = ? and state in ('starting', 'running', 'waiting')",
            (session_id,),
        )
    )


def unfinished(db: Database) -> tuple[Child, ...]:
    """Return all agent processes that are not over, oldest first."""
    found = rows.every(db, "select * from child where state <> 'over' order by created_at, rowid")
    return tuple(_from_row(row) for row in found)


def everyone(db: Database) -> tuple[Child, ...]:
    """Return all agent processes, oldest first."""
    return tuple(_from_row(row) for row in rows.every(db, "select * from child order by created_at, rowid"))


def change(db: Database, child: Child, expect: Collection[ChildState]) -> bool:
    """Replace the row of `child` if it is of the same run or the one before, and in a state of `expect`. Returns
    False and changes nothing otherwise. Returns True if the row already equals `child`."""
    row = _to_row(child)
    if get(db, child.session_id) == child:
        return True
    named = ", ".join(f"{name} = :{name}" for name in row if name != "session_id")
    held = ", ".join(f"'{state.value}'" for state in expect)
    return rows.changed(
        db,
        f"update child set {named} where session_id = :session_id and state in ({held}) and run in (:run, :run - 1)",
        row,
    )


def forget(db: Database, session_ids: Collection[str]) -> int:
    """Delete those of the given sessions' agent processes that are over. Returns how many were deleted."""
    where = f"session_id in ({rows.holders(list(session_ids))}) and state = 'over'"
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
