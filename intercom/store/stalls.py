"""Queries on stall alerts, which report agents that went quiet. A session has at most one active alert."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import InvalidState
from intercom.model.session import STALL_TRANSITIONS, StallAlert, StallStatus
from intercom.store import rows
from intercom.store.rows import Table

_ALERTS = Table("stall_alert", StallAlert)

_ACTIVE = "status in ('pending', 'nudged', 'escalated')"


def insert(db: Database, alert: StallAlert) -> bool:
    """Insert a new alert. Returns False and changes nothing if the id exists or the session has an active alert."""
    return _ALERTS.insert(db, alert, conflict="do nothing")


def get(db: Database, id: str) -> StallAlert | None:
    """Return the alert with this id, or None."""
    return _ALERTS.get(db, id)


def active(db: Database, session_id: str) -> StallAlert | None:
    """Return the session's alert that is pending, nudged or escalated, or None."""
    return _ALERTS.first(db, f"session_id = ? and {_ACTIVE}", (session_id,))


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """Return the ids that begin with the literal `prefix`, sorted; at most 50."""
    return _ALERTS.with_prefix(db, prefix)


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
            raise InvalidState(f"a stall alert that is {status} cannot become {to}")
    return rows.changed(
        db,
        "update stall_alert set status = ?, nudge_count = ?, nudge_message = coalesce(?, nudge_message), updated_at = ?"
        f" where id = ? and status in ({rows.placeholders(expected)})",
        (to.value, nudge_count, nudge_message, clock.to_text(at), id, *(status.value for status in expected)),
    )
