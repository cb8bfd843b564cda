"""Words for an agent that ride on its next result (nudges, steering), and tasks left for one that is not there yet.

A task is for a session, or for whoever works in a workspace next. It becomes words for a session when an agent of that
takes it, and is free for another should that agent go before it had it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from attrs import asdict, frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.steering import Instruction, Kind
from intercom.model.verdict import SignedCommand, signature_from_data
from intercom.store import rows

_OPEN = "delivered_at is null and closed_at is null"
#: In the inbox of a workspace, for any agent of it; and what an agent of a session might take, of that or its own.
_LEFT = "session_id is null and workspace_root = ?"
_FREE = f"(session_id = ? or ({_LEFT})) and kind = 'task' and taken_at is null and {_OPEN}"
#: What is a session's to be told: its own words, and tasks that its agent has taken.
_QUEUED = f"session_id = ? and {_OPEN} and (kind <> 'task' or taken_at is not null)"


@frozen
class Load:
    """How many words wait, and how many bytes they have in UTF-8."""

    count: int
    bytes: int


def insert(db: Database, word: Instruction) -> bool:
    """Queue words; False, changing nothing, when this id is there already."""
    row = {
        "id": word.id,
        "session_id": word.session_id,
        "workspace_root": word.workspace_root,
        "kind": word.kind.value,
        "text": word.text,
        "given_by": word.by,
        "given_via": word.channel,
        "created_at": clock.to_text(word.at),
        "taken_at": rows.time_text(word.taken_at),
        "delivered_at": rows.time_text(word.delivered_at),
        "closed_at": rows.time_text(word.closed_at),
        "written_at": rows.time_text(word.written_at),
        "signature": None if word.signed is None else rows.json_text(asdict(word.signed)),
    }
    return rows.insert(db, "instruction", row)


def get(db: Database, id: str) -> Instruction | None:
    """The instruction with this id, however it stands, or None."""
    row = rows.one(db, "select * from instruction where id = ?", (id,))
    return None if row is None else _from_row(row)


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """The ids that begin with `prefix`, taken literally, sorted; at most 50."""
    return rows.ids_with_prefix(db, "instruction", prefix)


def queued(db: Database, session_id: str) -> tuple[Instruction, ...]:
    """What the session's agent has not been given yet, oldest first; of tasks, those it has taken."""
    return _select(db, f"{_QUEUED} order by created_at, rowid", session_id)


def inbox(db: Database, session_id: str, workspace_root: str) -> tuple[Instruction, ...]:
    """The tasks that an agent of this session might take, oldest first."""
    return _select(db, f"{_FREE} order by created_at, rowid", session_id, workspace_root)


def listed(
    db: Database, limit: int, session_id: str | None = None, kinds: Sequence[Kind] = ()
) -> tuple[Instruction, ...]:
    """The newest `limit` instructions, oldest first: of one session or of all, of these kinds or of all."""
    where, values = ["1 = 1"], list[Any]()
    if session_id is not None:
        where.append("session_id = ?")
        values.append(session_id)
    if kinds:
        where.append(f"kind in ({rows.holders(kinds)})")
        values += [kind.value for kind in kinds]
    found = _select(db, f"{' and '.join(where)} order by created_at desc, rowid desc limit ?", *values, limit)
    return found[::-1]


def load(db: Database, session_id: str | None, workspace_root: str | None = None) -> Load:
    """How much waits for a session, or (without one) in the inbox of a workspace."""
    where, value = ("session_id = ?", session_id) if session_id is not None else (_LEFT, workspace_root)
    row = rows.one(
        db,
        f"select count(*) as count, coalesce(sum(length(cast(text as blob))), 0) as bytes from instruction"
        f" where {where} and {_OPEN}",
        (value,),
    )
    assert row is not None, "a count is always there"
    return Load(row["count"], row["bytes"])


def take(db: Database, session_id: str, ids: Sequence[str], at: datetime) -> tuple[str, ...]:
    """Let a session take these tasks, of its `inbox`; the ids of those it took."""
    sql = "update instruction set session_id = ?, taken_at = ? where id = ? and taken_at is null"
    return tuple(id for id in ids if rows.changed(db, sql, (session_id, clock.to_text(at), id)))


def give_back(db: Database, session_id: str, *, written: bool = False) -> tuple[str, ...]:
    """Free the tasks of a workspace that this session took and was not given; their ids. Those that were written to its
    agent, which may work on them, only if `written`."""
    where = f"session_id = ? and workspace_root is not null and taken_at is not null and {_OPEN}"
    if not written:
        where += " and written_at is null"
    found = tuple(rows.column(db, f"select id from instruction where {where}", (session_id,)))
    free = "session_id = null, taken_at = null, written_at = null"
    rows.changed(db, f"update instruction set {free} where {where}", (session_id,))
    return found


def mark_written(db: Database, ids: Sequence[str], at: datetime) -> None:
    """Record that these were written to the agent that is to be told, which has not said that it has them."""
    sql = f"update instruction set written_at = ? where id = ? and {_OPEN}"
    for id in ids:
        rows.changed(db, sql, (clock.to_text(at), id))


def move(db: Database, session_id: str, to: str) -> bool:
    """Give to another session what this one's agent has not been given; whether there was anything."""
    return rows.changed(db, f"update instruction set session_id = ? where session_id = ? and {_OPEN}", (to, session_id))


def close(db: Database, ids: Sequence[str], at: datetime) -> tuple[str, ...]:
    """Let these never be told; returns the ids this call closed, leaving out those told or closed before."""
    sql = f"update instruction set closed_at = ? where id = ? and {_OPEN}"
    return tuple(id for id in ids if rows.changed(db, sql, (clock.to_text(at), id)))


def close_session(db: Database, session_id: str, at: datetime) -> tuple[str, ...]:
    """A session has ended: what was for its agent alone is never told. The ids."""
    ids = rows.column(db, f"select id from instruction where session_id = ? and {_OPEN} order by rowid", (session_id,))
    return close(db, ids, at)


def mark_delivered(db: Database, ids: Sequence[str], at: datetime) -> tuple[Instruction, ...]:
    """Record that the agent has them; returns those this call marked as they are then, leaving out others."""
    sql = "update instruction set delivered_at = ? where id = ? and delivered_at is null"
    marked = [id for id in ids if rows.changed(db, sql, (clock.to_text(at), id))]
    found = (get(db, id) for id in marked)
    return tuple(word for word in found if word is not None)


def _select(db: Database, where: str, *values: Any) -> tuple[Instruction, ...]:
    return tuple(_from_row(row) for row in rows.every(db, f"select * from instruction where {where}", values))


def _from_row(row: rows.Row) -> Instruction:
    return Instruction(
        id=row["id"],
        session_id=row["session_id"],
        workspace_root=row["workspace_root"],
        kind=Kind(row["kind"]),
        text=row["text"],
        by=row["given_by"],
        channel=row["given_via"],
        at=clock.from_text(row["created_at"]),
        taken_at=rows.time_value(row["taken_at"]),
        delivered_at=rows.time_value(row["delivered_at"]),
        closed_at=rows.time_value(row["closed_at"]),
        written_at=rows.time_value(row["written_at"]),
        signed=_signed(row["signature"]),
    )


def _signed(text: str | None) -> SignedCommand | None:
    """What was signed; None also for what nobody here wrote, which then counts as none."""
    try:
        value = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(fields := value.get("fields"), dict):
        return None
    signature = signature_from_data(value.get("signature"))
    if signature is None or not all(isinstance(part, str) for part in fields.values()):
        return None
    return SignedCommand(signature, fields)
