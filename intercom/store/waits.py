"""Queries on standby waits, in which idle agents wait for work."""

from __future__ import annotations

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.prompt import Wait, WaitStatus
from intercom.model.verdict import Decided
from intercom.store import rows
from intercom.store.lifecycle import Lifecycle, decided_columns, decided_value
from intercom.store.rows import Row


def _to_row(wait: Wait) -> Row:
    return {
        "id": wait.id,
        "session_id": wait.session_id,
        "message": wait.message,
        "status": wait.status.value,
        "instruction": wait.instruction,
        "slack_ts": wait.slack_ts,
        "created_at": clock.to_text(wait.created_at),
        "expires_at": rows.time_text(wait.expires_at),
        "call": wait.call,
        "delivered_at": rows.time_text(wait.delivered_at),
        **decided_columns(wait.decided),
    }


def _from_row(db: Database, row: Row) -> Wait:
    return Wait(
        id=row["id"],
        session_id=row["session_id"],
        message=row["message"],
        status=WaitStatus(row["status"]),
        instruction=row["instruction"],
        slack_ts=row["slack_ts"],
        created_at=clock.from_text(row["created_at"]),
        expires_at=rows.time_value(row["expires_at"]),
        call=row["call"],
        delivered_at=rows.time_value(row["delivered_at"]),
        decided=decided_value(row),
    )


def instruction(decided: Decided) -> str | None:
    """Return the text for the agent. A stop keeps the word "stop", because its text alone could read as "go on"."""
    if decided.decision == "stop":
        return f"stop: {decided.text}" if decided.text else "stop"
    return decided.text


_life: Lifecycle[Wait, WaitStatus] = Lifecycle(
    table="wait",
    to_row=_to_row,
    from_row=_from_row,
    undelivered=("decided", "expired"),
    told=lambda decided: {"instruction": instruction(decided)},
)

insert = _life.insert
get = _life.get
pending = _life.pending
owed = _life.owed
interrupted = _life.interrupted
due = _life.due
decide = _life.decide
expire = _life.expire
mark_delivered = _life.mark_delivered
annul = _life.annul
interrupt = _life.interrupt


def by_verdict(db: Database, session_id: str, verdict_id: str) -> Wait | None:
    """Return the standby of this session that this decision ended, or None."""
    return next(iter(_life.select(db, "session_id = ? and verdict_id = ?", (session_id, verdict_id))), None)
