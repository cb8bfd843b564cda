"""Queries on agent processes, and on terminals that operators have decided from. Both outlive the server."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.agent_process import AgentProcess, Role
from intercom.model.origin import Origin
from intercom.store import rows


def insert(db: Database, processes: Iterable[AgentProcess], at: datetime) -> None:
    """Insert processes. Those already recorded stay as they are."""
    for each in processes:
        row = {
            "pid": each.pid,
            "started": each.started,
            "boot": each.boot,
            "leader": each.leader,
            "leader_started": each.leader_started,
            "role": each.role.value,
            "session_id": each.session_id,
            "recorded_at": clock.to_text(at),
        }
        rows.insert(db, "agent_process", row, conflict="do nothing")


def every(db: Database) -> tuple[AgentProcess, ...]:
    """Return all recorded processes, oldest first."""
    found = rows.every(db, "select * from agent_process order by recorded_at, rowid")
    return tuple(
        AgentProcess(
            pid=row["pid"],
            started=row["started"],
            boot=row["boot"],
            leader=row["leader"],
            leader_started=row["leader_started"],
            role=Role(row["role"]),
            session_id=row["session_id"],
        )
        for row in found
    )


def on_record(file: Path) -> tuple[AgentProcess, ...]:
    """Return all processes recorded in a database that another process may be writing. Returns none if the database
    does not exist. Raises sqlite3.Error if it cannot be read."""
    if not file.exists():
        return ()
    with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return every(Database(connection))


def delete(db: Database, processes: Iterable[AgentProcess]) -> None:
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
        "first_at": clock.to_text(at),
    }
    return rows.insert(db, "operator_terminal", row, conflict="do nothing")


def forget_terminals(db: Database, boot: str) -> None:
    """Delete the terminals from before the last system start: they no longer exist."""
    db.execute("delete from operator_terminal where boot <> ?", (boot,))
