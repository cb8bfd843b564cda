"""A census: how many of what there is, in one read. For figures, so it counts and reads no content."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model.card import CardKind
from intercom.model.session import SessionStatus
from intercom.store import rows

#: What waits for a person, by kind: the table, and which of its rows.
_WAITING = {
    CardKind.APPROVAL: ("approval_request", "status = 'pending'"),
    CardKind.PROMPT: ("continuation_prompt", "status = 'pending'"),
    CardKind.STANDBY: ("wait", "status = 'pending'"),
    CardKind.STALL: ("stall_alert", "status in ('pending', 'nudged', 'escalated')"),
    CardKind.APPLY: ("apply_journal", "state = 'stuck'"),
}


@frozen
class Waiting:
    """So many wait, the first of them since `oldest` (None where none waits)."""

    count: int = 0
    oldest: datetime | None = None


@frozen
class Census:
    """`pending` has every kind that the store keeps, `sessions` every status."""

    pending: Mapping[CardKind, Waiting]
    sessions: Mapping[SessionStatus, int]


def take(db: Database) -> Census:
    """Count, as of one moment."""
    pending = {}
    for kind, (table, waits) in _WAITING.items():
        found = rows.one(db, f"select count(*) as number, min(created_at) as oldest from {table} where {waits}")
        assert found is not None, "an aggregate has one row"
        pending[kind] = Waiting(found["number"], rows.time_value(found["oldest"]))
    counted = rows.every(db, "select status, count(*) as number from session group by status")
    numbers = {row["status"]: row["number"] for row in counted}
    return Census(pending, {status: numbers.get(status.value, 0) for status in SessionStatus})
