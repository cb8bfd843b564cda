"""Checkpoints of sessions."""

from __future__ import annotations

import json

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.checkpoint import Checkpoint
from intercom.store import rows
from intercom.store.progress import progress_text, progress_value
from intercom.store.rows import Row


def _from_row(row: Row) -> Checkpoint:
    return Checkpoint(
        id=row["id"],
        session_id=row["session_id"],
        label=row["label"],
        session_state=json.loads(row["session_state"]),
        file_hashes=json.loads(row["file_hashes"]),
        workspace_root=row["workspace_root"],
        progress_snapshot=progress_value(row["progress_snapshot"]),
        created_at=clock.from_text(row["created_at"]),
    )


def insert(db: Database, checkpoint: Checkpoint) -> bool:
    """Write a new checkpoint; False, changing nothing, when one with this id is there already."""
    row = {
        "id": checkpoint.id,
        "session_id": checkpoint.session_id,
        "label": checkpoint.label,
        "session_state": rows.json_text(dict(checkpoint.session_state)),
        "file_hashes": rows.json_text(dict(checkpoint.file_hashes)),
        "workspace_root": checkpoint.workspace_root,
        "progress_snapshot": progress_text(checkpoint.progress_snapshot),
        "created_at": clock.to_text(checkpoint.created_at),
    }
    return rows.insert(db, "checkpoint", row)


def get(db: Database, id: str) -> Checkpoint | None:
    """The checkpoint with this id, or None."""
    row = rows.one(db, "select * from checkpoint where id = ?", (id,))
    return None if row is None else _from_row(row)


def last(db: Database, session_id: str) -> Checkpoint | None:
    """The session's newest checkpoint, or None."""
    row = rows.one(
        db, "select * from checkpoint where session_id = ? order by created_at desc, rowid desc limit 1", (session_id,)
    )
    return None if row is None else _from_row(row)


def of(db: Database, session_id: str | None = None) -> tuple[Checkpoint, ...]:
    """The checkpoints of one session, or of all, newest first."""
    where, values = ("", ()) if session_id is None else ("where session_id = ?", (session_id,))
    found = rows.every(db, f"select * from checkpoint {where} order by created_at desc, rowid desc", values)
    return tuple(_from_row(row) for row in found)
