"""Processes of agents that are known, and terminals that operators have decided from. Both outlive the server."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.process import Origin, ProcessRecord
from intercom.store import rows
from intercom.store.rows import Table

_RECORDS = Table("agent_process", ProcessRecord)


def insert(db: Database, processes: Iterable[ProcessRecord], at: datetime) -> None:
    """Insert processes. Those already recorded stay as they are."""
    for each in processes:
        _RECORDS.insert(db, each, conflict="do nothing", recorded_at=clock.to_text(at))


def every(db: Database) -> tuple[ProcessRecord, ...]:
    """Return all recorded processes, oldest first."""
    return _RECORDS.select(db, "true order by recorded_at, rowid")


def on_record(file: Path) -> tuple[ProcessRecord, ...]:
    """Return all processes recorded in a database that another process may be writing. Returns none if the database
    does not exist. Raises sqlite3.Error if it cannot be read."""
    if not file.exists():
        return ()
    with contextlib.closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return every(Database(connection))


def delete(db: Database, processes: Iterable[ProcessRecord]) -> None:
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
