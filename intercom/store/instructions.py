"""Instructions that are attached to an agent's next result (nudges, steering), and tasks for a later agent.

A task is for a session, or for the next agent in a workspace. An agent that takes it makes it an instruction for its
session. If that agent leaves before the delivery, the task is free again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model.decision import SignedCommand, signed_command_from_text
from intercom.model.session import Instruction, Kind
from intercom.store import rows
from intercom.store.rows import Codec, Table

_OPEN = "delivered_at is null and closed_at is null"
#: In the inbox of a workspace; and what an agent of a session may take, from there or addressed to the session.
_LEFT = "session_id is null and workspace_root = ?"
_FREE = f"(session_id = ? or ({_LEFT})) and kind = 'task' and taken_at is null and {_OPEN}"
#: What is to be delivered to a session: its own instructions, and tasks that its agent has taken.
_QUEUED = f"session_id = ? and {_OPEN} and (kind <> 'task' or taken_at is not null)"


@frozen
class Load:
    """How many instructions wait, and their total size in UTF-8 bytes."""

    count: int
    bytes: int


_INSTRUCTIONS = Table(
    "instruction",
    Instruction,
    names={"by": "given_by", "channel": "given_via", "at": "created_at", "signed": "signature"},
    codecs={"signed": Codec(rows.json_codec(SignedCommand).write, signed_command_from_text)},
)


insert = _INSTRUCTIONS.insert
get = _INSTRUCTIONS.get
with_prefix = _INSTRUCTIONS.with_prefix


def queued(db: Database, session_id: str) -> tuple[Instruction, ...]:
    """Return what the session's agent has yet to receive, oldest first; of tasks, only those it has taken."""
    return _INSTRUCTIONS.select(db, f"{_QUEUED} order by created_at, rowid", (session_id,))


def inbox(db: Database, session_id: str, workspace_root: str) -> tuple[Instruction, ...]:
    """Return the tasks that an agent of this session might take, oldest first."""
    return _INSTRUCTIONS.select(db, f"{_FREE} order by created_at, rowid", (session_id, workspace_root))


def listed(
    db: Database, limit: int, session_id: str | None = None, kinds: Sequence[Kind] = ()
) -> tuple[Instruction, ...]:
    """Return the newest `limit` instructions, oldest first; optionally of one session or of some kinds."""
    where = f"(:session is null or session_id = :session) and kind in ({rows.literals(kinds or Kind)})"
    newest = f"{where} order by created_at desc, rowid desc limit :limit"
    return _INSTRUCTIONS.select(db, newest, {"session": session_id, "limit": limit})[::-1]


def load(db: Database, session_id: str | None, workspace_root: str | None = None) -> Load:
    """Measure what waits for a session or, without one, in the inbox of a workspace."""
    where, value = ("session_id = ?", session_id) if session_id is not None else (_LEFT, workspace_root)
    total = "select count(*), coalesce(sum(length(cast(text as blob))), 0) from instruction"
    return Load(*db.execute(f"{total} where {where} and {_OPEN}", (value,)).fetchone())


def take(db: Database, session_id: str, ids: Sequence[str], at: datetime) -> tuple[str, ...]:
    """Let a session take these tasks of its `inbox`. Returns the ids of those it took."""
    return _each(db, ids, "taken_at is null", session_id=session_id, taken_at=at)


def give_back(db: Database, session_id: str, *, written: bool = False) -> tuple[str, ...]:
    """Free the workspace tasks that this session took but did not receive. Returns their ids. Tasks written to its
    agent, which may be working on them, are freed only if `written`."""
    where = f"session_id = ? and workspace_root is not null and taken_at is not null and {_OPEN}"
    if not written:
        where += " and written_at is null"
    found = rows.column(db, f"select id from instruction where {where}", (session_id,))
    return _each(db, found, "true", session_id=None, taken_at=None, written_at=None)


def mark_written(db: Database, ids: Sequence[str], at: datetime) -> None:
    """Record that these were written to the agent, which has not confirmed them yet."""
    _each(db, ids, _OPEN, written_at=at)


def move(db: Database, session_id: str, to: str) -> bool:
    """Move undelivered instructions to another session. Returns whether there were any."""
    return _INSTRUCTIONS.update(db, f"session_id = :old and {_OPEN}", {"old": session_id}, session_id=to) > 0


def close(db: Database, ids: Sequence[str], at: datetime) -> tuple[str, ...]:
    """Close instructions so that they are never delivered. Returns the ids that were still open."""
    return _each(db, ids, _OPEN, closed_at=at)


def close_session(db: Database, session_id: str, at: datetime) -> tuple[str, ...]:
    """Close the open instructions of a session that ended. Returns their ids."""
    ids = rows.column(db, f"select id from instruction where session_id = ? and {_OPEN} order by rowid", (session_id,))
    return close(db, ids, at)


def mark_delivered(db: Database, ids: Sequence[str], at: datetime) -> tuple[Instruction, ...]:
    """Record that the agent has these. Returns those that this call marked."""
    found = (get(db, id) for id in _each(db, ids, "delivered_at is null", delivered_at=at))
    return tuple(each for each in found if each is not None)


def _each(db: Database, ids: Sequence[str], which: str, **columns: object) -> tuple[str, ...]:
    """Set columns of those of the instructions that are in a state. Returns their ids."""
    return tuple(id for id in ids if _INSTRUCTIONS.update(db, f"id = :id and {which}", {"id": id}, **columns))
