"""Queries on enrolled operator keys, and on signed commands already carried out."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows
from intercom.store.rows import Table


@frozen
class EnrolledKey:
    """A row of `operator_key`. `added_by` and `revoked_by` are ids of keys, whose signatures are stored with them.
    An unsigned row has no effect."""

    id: str
    public: str
    name: str
    added_at: str
    added_by: str
    added_signature: str
    revoked_at: str | None = None
    revoked_by: str | None = None
    revoked_signature: str | None = None


_KEYS = Table("operator_key", EnrolledKey)


def every(db: Database) -> tuple[EnrolledKey, ...]:
    """Return all keys, in the order of enrolment."""
    return _KEYS.select(db, "true order by rowid")


def add(db: Database, key: EnrolledKey) -> bool:
    """Enrol a key. Returns False if it exists."""
    return _KEYS.insert(db, key)


def revoke(db: Database, id: str, at: str, by: str, signature: str) -> bool:
    """Revoke a key. Returns False if it is unknown or already revoked."""
    sql = (
        "update operator_key set revoked_at = ?, revoked_by = ?, revoked_signature = ?"
        " where id = ? and revoked_at is null"
    )
    return rows.changed(db, sql, (at, by, signature, id))


def carried_out(db: Database, decision_id: str, at: datetime) -> bool:
    """Record that a signed command was carried out. Returns False if it was carried out before."""
    row = {"decision_id": decision_id, "at": clock.to_text(at)}
    return rows.insert(db, "signed_command", row, conflict="(decision_id) do nothing")


def forget_commands(db: Database, before: datetime) -> None:
    """Delete commands from before `before`: their signatures are too old to be accepted again."""
    db.execute("delete from signed_command where at < ?", (clock.to_text(before),))
