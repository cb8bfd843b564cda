"""Uses of leave: which hook, at which event, was told that an operation may be done."""

from __future__ import annotations

from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


def use(db: Database, request_id: str, slot: str, turn: str, call: str, at: datetime) -> bool:
    """Note a use; False, changing nothing, when this hook has used this leave at this event before."""
    row = {"request_id": request_id, "slot": slot, "turn": turn, "call": call, "used_at": clock.to_text(at)}
    return rows.insert(db, "permission_use", row, conflict="do nothing")


def covering(db: Database, key: str, slot: str, turn: str, since: datetime) -> str | None:
    """The request whose leave, for the operation that `key` names, another hook or event has used in the same turn
    since then, and this one has not; the oldest, or None."""
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
