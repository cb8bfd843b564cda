"""Words for an agent that ride on its next result: nudges and steering."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


@frozen
class Instruction:
    """`kind` says why it was given ("nudge", "steer", ...); `by` names the person, or "auto"."""

    id: str
    session_id: str
    kind: str
    text: str
    by: str
    at: datetime
    delivered_at: datetime | None = None


def add(db: Database, id: str, session_id: str, kind: str, text: str, by: str, at: datetime) -> bool:
    """Queue words for a session's agent; False, changing nothing, when this id is there already."""
    row = {
        "id": id,
        "session_id": session_id,
        "kind": kind,
        "text": text,
        "given_by": by,
        "created_at": clock.to_text(at),
    }
    return rows.insert(db, "instruction", row)


def get(db: Database, id: str) -> Instruction | None:
    """The instruction with this id, delivered or not, or None."""
    row = rows.one(db, "select * from instruction where id = ?", (id,))
    return None if row is None else _from_row(row)


def queued(db: Database, session_id: str) -> tuple[Instruction, ...]:
    """What the session's agent has not been given yet, oldest first."""
    found = rows.every(
        db,
        "select * from instruction where session_id = ? and delivered_at is null order by created_at, rowid",
        (session_id,),
    )
    return tuple(_from_row(row) for row in found)


def mark_delivered(db: Database, ids: Sequence[str], at: datetime) -> tuple[str, ...]:
    """Record that the agent has them; returns the ids this call marked, leaving out those marked before."""
    sql = "update instruction set delivered_at = ? where id = ? and delivered_at is null"
    return tuple(id for id in ids if rows.changed(db, sql, (clock.to_text(at), id)))


def _from_row(row: rows.Row) -> Instruction:
    return Instruction(
        id=row["id"],
        session_id=row["session_id"],
        kind=row["kind"],
        text=row["text"],
        by=row["given_by"],
        at=clock.from_text(row["created_at"]),
        delivered_at=rows.time_value(row["delivered_at"]),
    )
