"""The states that every request for a person shares: pending; decided, expired or interrupted; then delivered.

Approvals, prompts and waits differ only in their columns, so they share these queries. Every change is a
compare-and-set: the expected state is in the statement's WHERE. Of several concurrent writers exactly one succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.origin import Origin
from intercom.model.verdict import Decided, Signature, signature_data, signature_from_data
from intercom.store import rows
from intercom.store.rows import Row

T = TypeVar("T")
S = TypeVar("S", bound=StrEnum)

_OLDEST_FIRST = "order by created_at, rowid"


@frozen
class Lifecycle(Generic[T, S]):
    """The state queries of one request table.

    `to_row` and `from_row` convert a value to columns and back. `told` returns the additional columns that a decision
    sets. `undelivered` are the final statuses whose answer must still be delivered to the agent.
    """

    table: str
    to_row: Callable[[T], Row]
    from_row: Callable[[Database, Row], T]
    undelivered: tuple[str, ...]
    told: Callable[[Decided], Mapping[str, Any]]

    def insert(self, db: Database, request: T) -> bool:
        """Insert a new request. Returns False and changes nothing if its id exists."""
        return rows.insert(db, self.table, self.to_row(request))

    def get(self, db: Database, id: str) -> T | None:
        """Return the request with this id, or None."""
        row = rows.one(db, f"select * from {self.table} where id = ?", (id,))
        return None if row is None else self.from_row(db, row)

    def pending(self, db: Database, session_id: str | None = None) -> tuple[T, ...]:
        """Return pending requests, oldest first; of one session or of all."""
        if session_id is None:
            return self.select(db, f"status = 'pending' {_OLDEST_FIRST}")
        return self.select(db, f"status = 'pending' and session_id = ? {_OLDEST_FIRST}", (session_id,))

    def owed(self, db: Database, session_id: str) -> tuple[T, ...]:
        """Return requests that were decided or expired but not delivered to this session's agent, oldest first."""
        where = f"session_id = ? and delivered_at is null and status in ({rows.holders(self.undelivered)})"
        return self.select(db, f"{where} {_OLDEST_FIRST}", (session_id, *self.undelivered))

    def interrupted(self, db: Database, session_id: str) -> tuple[T, ...]:
        """Return the requests that were interrupted with this session, oldest first."""
        return self.select(db, f"session_id = ? and status = 'interrupted' {_OLDEST_FIRST}", (session_id,))

    def due(self, db: Database, at: datetime) -> tuple[T, ...]:
        """Return pending requests whose deadline is at or before `at`, the longest overdue first."""
        where = "status = 'pending' and expires_at <= ? order by expires_at, rowid"
        return self.select(db, where, (clock.to_text(at),))

    def decide(self, db: Database, id: str, to: S, decided: Decided) -> bool:
        """Move a request from pending to `to`, if the decision came before the deadline.

        Returns True if this decision (same verdict id) decides the request now or did so before: a writer that crashed
        after its commit may try again. Returns False and changes nothing if another decision was first, the deadline
        has passed, or the request is unknown. The deadline does not apply to `to` = expired, a timeout with an answer.
        """
        values = {"to": to.value, **decided_columns(decided), **self.told(decided)}
        sets = ", ".join(f"{name} = :{name}" for name in values if name != "to")
        won = rows.changed(
            db,
            f"update {self.table} set status = :to, {sets} where id = :id and status = 'pending'"
            " and (expires_at is null or expires_at > :decided_at or :to = 'expired')",
            {**values, "id": id},
        )
        return (
            won
            or rows.count(
                db, f"select count(*) from {self.table} where id = ? and verdict_id = ?", (id, decided.verdict_id)
            )
            == 1
        )

    def expire(self, db: Database, id: str, at: datetime) -> bool:
        """Expire a pending request without a decision. Returns whether this call did it. The caller checks the
        deadline."""
        return rows.changed(
            db,
            f"update {self.table} set status = 'expired', closed_at = ? where id = ? and status = 'pending'",
            (clock.to_text(at), id),
        )

    def mark_delivered(self, db: Database, id: str, at: datetime) -> bool:
        """Record that the agent has the answer. Returns False if already recorded or still pending."""
        return rows.changed(
            db,
            f"update {self.table} set delivered_at = ? where id = ? and delivered_at is null and status <> 'pending'",
            (clock.to_text(at), id),
        )

    def interrupt(self, db: Database, session_id: str, at: datetime) -> tuple[str, ...]:
        """Interrupt the pending requests of a session that ended. Returns their ids, oldest first."""
        where = "session_id = :session and status = 'pending'"
        return self.close(db, "interrupted", at, where, {"session": session_id})

    def annul(self, db: Database, id: str, at: datetime) -> bool:
        """Close a request whose recorded decision is invalid. The decision stays recorded as evidence."""
        return rows.changed(
            db,
            f"update {self.table} set status = 'interrupted', closed_at = ? where id = ?"
            " and status in ('approved', 'rejected', 'decided')",
            (clock.to_text(at), id),
        )

    def close(self, db: Database, status: str, at: datetime, where: str, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Move all rows that match `where` to a final status without a decision. Returns their ids, oldest first."""
        ids = rows.column(db, f"select id from {self.table} where {where} {_OLDEST_FIRST}", values)
        sql = f"update {self.table} set status = :to, closed_at = :at where id = :id and {where}"
        named = {**values, "to": status, "at": clock.to_text(at)}
        return tuple(id for id in ids if rows.changed(db, sql, {**named, "id": id}))

    def select(self, db: Database, where: str, values: Iterable[Any] = ()) -> tuple[T, ...]:
        """Return the requests that match a WHERE clause, which includes its ordering."""
        found = rows.every(db, f"select * from {self.table} where {where}", tuple(values))
        return tuple(self.from_row(db, row) for row in found)


def decided_columns(decided: Decided | None) -> Row:
    """Return the columns that store a decision; all null for None."""
    if decided is None:
        names = (
            *("verdict_id", "verdict", "decided_by", "decided_via"),
            *("decided_at", "decided_text", "decided_origin", "signature"),
        )
        return dict.fromkeys(names)
    return {
        "verdict_id": decided.verdict_id,
        "verdict": str(decided.decision),
        "decided_by": decided.by,
        "decided_via": decided.channel,
        "decided_at": clock.to_text(decided.at),
        "decided_text": decided.text,
        "decided_origin": None if decided.origin is None else decided.origin.to_text(),
        "signature": None if decided.signature is None else rows.json_text(signature_data(decided.signature)),
    }


def decided_value(row: Row) -> Decided | None:
    """Return the decision stored in a row, or None."""
    if row["verdict_id"] is None:
        return None
    return Decided(
        verdict_id=row["verdict_id"],
        decision=row["verdict"],
        by=row["decided_by"],
        channel=row["decided_via"],
        at=clock.from_text(row["decided_at"]),
        text=row["decided_text"],
        origin=None if row["decided_origin"] is None else Origin.from_text(row["decided_origin"]),
        signature=_signature(row["signature"]),
    )


def _signature(text: str | None) -> Signature | None:
    try:
        return signature_from_data(json.loads(text or "null"))
    except (ValueError, RecursionError):
        return None
