"""The audit trail: who did what when. Rows are only ever added, and go by age alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


@frozen
class AuditEntry:
    """`id` rises with time; `kind` is a past participle ("approved", "refused", ...); `who` names a person, an agent or
    a part of the server."""

    id: int
    at: datetime
    kind: str
    session_id: str | None
    who: str
    summary: str
    data: Mapping[str, Any] | None = None


def record(
    db: Database,
    at: datetime,
    kind: str,
    session_id: str | None,
    who: str,
    summary: str,
    data: Mapping[str, Any] | None = None,
) -> int:
    """Add an entry, in the transaction of what it records; returns its id."""
    cursor = db.execute(
        "insert into audit (at, kind, session_id, who, summary, data) values (?, ?, ?, ?, ?, ?)",
        (clock.to_text(at), kind, session_id, who, summary, None if data is None else rows.json_text(dict(data))),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def recent(
    db: Database, limit: int, session_id: str | None = None, after_id: int | None = None
) -> tuple[AuditEntry, ...]:
    """The newest `limit` entries, or the first `limit` after `after_id`; oldest first either way. Of one session, or of
    all."""
    conditions: list[str] = ["1 = 1"]
    values: list[object] = []
    if session_id is not None:
        conditions.append("session_id = ?")
        values.append(session_id)
    if after_id is not None:
        conditions.append("id > ?")
        values.append(after_id)
    order = "desc" if after_id is None else "asc"
    found = rows.every(
        db,
        f"select * from audit where {' and '.join(conditions)} order by id {order} limit ?",
        (*values, limit),
    )
    if after_id is None:
        found.reverse()
    return tuple(
        AuditEntry(
            id=row["id"],
            at=clock.from_text(row["at"]),
            kind=row["kind"],
            session_id=row["session_id"],
            who=row["who"],
            summary=row["summary"],
            data=None if row["data"] is None else json.loads(row["data"]),
        )
        for row in found
    )
