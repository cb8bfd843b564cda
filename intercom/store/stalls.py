"""Queries on stall alerts, which report agents that went quiet. A session has at most one active alert."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import InvalidState
from intercom.model.stall import STALL_TRANSITIONS, StallAlert, StallStatus
from intercom.store import rows
from intercom.store.progress import progress_text, progress_value
from intercom.store.rows import Row

_ACTIVE = "status in ('pending', 'nudged', 'escalated')"


def _from_row(row: Row) -> StallAlert:
    return StallAlert(
        id=row["id"],
        session_id=row["session_id"],
        last_tool=row["last_tool"],
        last_activity_at=clock.from_text(row["last_activity_at"]),
        idle_seconds=row["idle_seconds"],
        nudge_count=row["nudge_count"],
        status=StallStatus(row["status"]),
        nudge_message=row["nudge_message"],
        progress_snapshot=progress_value(row["progress_snapshot"]),
        slack_ts=row["slack_ts"],
        created_at=clock.from_text(row["created_at"]),
    )


def insert(db: Database, alert: StallAlert) -> bool:
    """Insert a new alert. Returns False and changes nothing if the id exists or the session has an active alert."""
    row = {
        "id": alert.id,
        "session_id": alert.session_id,
        "last_tool": alert.last_tool,
        "last_activity_at": clock.to_text(alert.last_activity_at),
        "idle_seconds": alert.idle_seconds,
        "nudge_count": alert.nudge_count,
        "status": alert.status.value,
        "nudge_message": alert.nudge_message,
        "progress_snapshot": progress_text(alert.progress_snapshot),
        "slack_ts": alert.slack_ts,
        "created_at": clock.to_text(alert.created_at),
    }
    return rows.insert(db, "stall_alert", row, conflict="do nothing")


def get(db: Database, id: str) -> StallAlert | None:
    """Return the alert with this id, or None."""
    row = rows.one(db, "select * from stall_alert where id = ?", (id,))
    return None if row is None else _from_row(row)


def active(db: Database, session_id: str) -> StallAlert | None:
    """Return the session's alert that is pending, nudged or escalated, or None."""
    row = rows.one(db, f"select * from stall_alert where session_id = ? and {_ACTIVE}", (session_id,))
    return None if row is None else _from_row(row)


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """Return the ids that begin with the literal `prefix`, sorted; at most 50."""
    return rows.ids_with_prefix(db, "stall_alert", prefix)


def set_status(
    db: Database,
    id: str,
    expect: StallStatus | Collection[StallStatus],
    to: StallStatus,
    nudge_count: int,
    nudge_message: str | None,
    at: datetime,
) -> bool:
    """Move an alert from `expect` (one status or several) to `to`. Returns whether this call did it. If
    `nudge_message` is None, the present one stays. Raises InvalidState if the transition table lacks the move."""
    expected = (expect,) if isinstance(expect, StallStatus) else tuple(expect)
    for status in expected:
        if to not in STALL_TRANSITIONS[status]:
            raise InvalidState(f"a stall alert that is {status} can not become {to}")
    return rows.changed(
        db,
        "update stall_alert set status = ?, nudge_count = ?, nudge_message = coalesce(?, nudge_message), updated_at = ?"
        f" where id = ? and status in ({rows.holders(expected)})",
        (to.value, nudge_count, nudge_message, clock.to_text(at), id, *(status.value for status in expected)),
    )
