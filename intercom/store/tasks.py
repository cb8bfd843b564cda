"""Queries on tasks: which requests clients poll, and which tasks they cancelled.

The status of a task is not stored. It is derived from the request, so the two cannot disagree.
"""

from __future__ import annotations

from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.request import Task
from intercom.store import requests, rows
from intercom.store.rows import Table

_TASKS = Table("task", Task)


def open(db: Database, task: Task) -> Task:
    """Insert a task, once per call. Returns the stored one."""
    _TASKS.insert(db, task, conflict="do nothing")
    found = _TASKS.first(db, "session_id = ? and call = ?", (task.session_id, task.call))
    assert found is not None, "just inserted, or there before"
    return found


def get(db: Database, id: str) -> Task | None:
    """Return the task with this id, or None."""
    return _TASKS.get(db, id)


def page(db: Database, session_id: str, after: str | None, limit: int) -> tuple[Task, ...]:
    """Return at most `limit` tasks of a session after the task `after`, oldest first."""
    return _TASKS.select(
        db,
        "session_id = :session and (:after is null or"
        " (created_at, id) > (select created_at, id from task where id = :after)) order by created_at, id limit :limit",
        {"session": session_id, "after": after, "limit": limit},
    )


def cancel(db: Database, id: str, by: str, at: datetime) -> bool:
    """Cancel a task before its request is answered.

    Returns True if this call (by name) did it, now or before. Returns False and changes nothing if the task is unknown,
    its request is no longer pending, or another call was first.
    """
    task = get(db, id)
    if task is None:
        return False
    if task.cancelled_at is not None:
        return task.cancelled_by == by
    request = requests.find(db, task.request_id)
    if request is None or request.status.value != "pending":
        return False
    return rows.changed(
        db,
        "update task set cancelled_at = ?, cancelled_by = ? where id = ? and cancelled_at is null",
        (clock.to_text(at), by, id),
    )


def asked_after(db: Database, session_id: str) -> tuple[str, ...]:
    """Return the requests of a session that have a task which is not cancelled."""
    sql = "select distinct request_id from task where session_id = ? and cancelled_at is null order by request_id"
    return tuple(rows.column(db, sql, (session_id,)))
