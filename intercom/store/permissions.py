"""Queries on uses of a permission: which hook, at which event, was told that an operation may run."""

from __future__ import annotations

from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


def use(db: Database, request_id: str, slot: str, turn: str, call: str, at: datetime) -> bool:
    """Record a use. Returns False and changes nothing if this hook used this permission at this event before."""
    row = {"request_id": request_id, "slot": slot, "turn": turn, "call": call, "used_at": clock.to_text(at)}
    return rows.insert(db, "permission_use", row, conflict="do nothing")


def covering(db: Database, key: str, slot: str, turn: str, since: datetime) -> str | None:
    """Return the oldest request whose permission for the operation `key` covers this hook too, or None. Another hook
    or event must have used it in the same turn since `since`, and this one must not have."""
    found = rows.one(
        db,
        "select request.id as id from approval_request as request"
        " join permission_use as used on used.request_id = request.id"
        " where request.key = ? and request.status = 'consumed' and used.turn = ? and used.used_at >= ?"
        " and not exists (select 1 from permission_use as own where own.request_id = request.id and own.slot = ?)"
        " order by used.used_at limit 1",
        (key, turn, clock.to_text(since), slot),
    )
    return None if found is None else str(found["id"])
