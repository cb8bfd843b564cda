"""A read-only check of the database for `doctor`, also while a server runs."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from attrs import frozen

from intercom.model.errors import DatabaseError
from intercom.store import faults, rows
from intercom.store.database import connect
from intercom.store.migrations import LATEST, version


@frozen
class Health:
    """The result of a check.

    `version` is the schema's (0: none yet, None: unreadable) and `latest` the one this program knows. `size` is in
    bytes. `sessions` counts those not terminated, `requests` those pending. `fault` says what is wrong and what to do,
    or None.
    """

    path: Path
    exists: bool
    version: int | None = None
    latest: int = LATEST
    size: int = 0
    sessions: int = 0
    requests: int = 0
    fault: str | None = None


def examine(path: str | os.PathLike[str], *, busy_seconds: float = 1.0) -> Health:
    """Check the database at `path` without creating, upgrading or moving anything. Faults are in the result."""
    file = Path(path)
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return Health(file, exists=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return Health(file, exists=True, fault=f"the database {file} can not be looked at ({reason}); check the path")
    try:
        return _look(file, size, busy_seconds)
    except DatabaseError as refused:
        return Health(file, exists=True, size=size, fault=str(refused))
    except sqlite3.Error as error:
        fault = faults.refusal(error, file) or error
        return Health(file, exists=True, size=size, fault=str(fault))


def _look(file: Path, size: int, busy_seconds: float) -> Health:
    db = connect(file, busy_seconds=busy_seconds)
    try:
        db.execute("pragma query_only = on")
        found = version(db)
        if found > LATEST:
            fault = f"the database {file} was written by a newer version; upgrade agent-intercom"
            return Health(file, exists=True, version=found, size=size, fault=fault)
        if db.execute("pragma quick_check(1)").fetchone()[0] != "ok":
            fault = f"the database {file} is damaged; restart the server, which moves it aside and begins a new one"
            return Health(file, exists=True, version=found, size=size, fault=fault)
        if found < LATEST:
            return Health(file, exists=True, version=found, size=size)
        waiting = [
            rows.count(db, f"select count(*) from {table} where status = 'pending'")
            for table in ("approval_request", "continuation_prompt", "wait")
        ]
        live = rows.count(db, "select count(*) from session where status <> 'terminated'")
        return Health(file, exists=True, version=found, size=size, sessions=live, requests=sum(waiting))
    finally:
        db.close()
