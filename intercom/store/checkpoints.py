"""Queries on checkpoints of sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from attrs import frozen
from sqlite_utils import Database

from intercom.model.checkpoint import Checkpoint, CheckpointLine, Manifest
from intercom.model.session import ProgressItem
from intercom.store import rows
from intercom.store.rows import Row, Table

_EACH_FILE = "checkpoint, json_each(checkpoint.file_hashes) as each where checkpoint.id = ?"
_NEWEST_FIRST = "order by created_at desc, rowid desc"
#: How many entries are converted to or from text at a time; other threads cannot run during one part.
_PART = 2000


@frozen
class FileColumns:
    """The file columns of a row. Build it outside the writer's thread, because there may be many files."""

    hashes: str
    facts: str
    count: int
    size: int
    kept: int


def file_columns(manifest: Manifest) -> FileColumns:
    """Convert a manifest to the columns of a row."""
    hashes = manifest.hashes()
    kept = sum(state.kept for state in manifest.files.values())
    return FileColumns(_object_text(hashes), rows.json_text(manifest.facts()), len(manifest.files), manifest.size, kept)


def _object_text(entries: Mapping[str, Any]) -> str:
    items = iter(entries.items())
    parts = []
    while part := dict(islice(items, _PART)):
        parts.append(rows.json_text(part)[1:-1])
    return "{" + ",".join(parts) + "}"


def _hashes(db: Database, row: Row) -> dict[str, str]:
    """Return the hashes of a row, read in parts."""
    cursor = db.execute(f"select each.key, each.value from {_EACH_FILE}", (row["id"],))
    found: dict[str, str] = {}
    while part := cursor.fetchmany(_PART):
        found.update(part)
    return found


def _facts(db: Database, row: Row) -> dict[str, Any]:
    [text] = rows.column(db, "select file_facts from checkpoint where id = ?", (row["id"],))
    facts: dict[str, Any] = json.loads(text or "{}")
    return facts


#: The file columns are written apart, because converting them may take long.
_CHECKPOINTS = Table("checkpoint", Checkpoint, elsewhere={"file_hashes": _hashes, "file_facts": _facts})
_LINES = Table("checkpoint", CheckpointLine, names={"files": "file_count", "size": "file_bytes", "kept": "kept_count"})
_PROGRESS = rows.json_codec(tuple[ProgressItem, ...])


def insert(db: Database, checkpoint: Checkpoint, files: FileColumns | None = None) -> bool:
    """Insert a new checkpoint. Returns False and changes nothing if its id exists. `files` are the columns of its
    manifest, if already built."""
    files = files or file_columns(checkpoint.manifest)
    return _CHECKPOINTS.insert(
        db,
        checkpoint,
        file_hashes=files.hashes,
        file_facts=files.facts if checkpoint.file_facts else None,
        file_count=files.count,
        file_bytes=files.size,
        kept_count=files.kept,
    )


def get(db: Database, id: str) -> Checkpoint | None:
    """Return the checkpoint with this id, or None. It may be large: read it in a worker thread."""
    return _CHECKPOINTS.get(db, id)


def state_of(db: Database, id: str) -> tuple[CheckpointLine, Mapping[str, Any]] | None:
    """Return a checkpoint without its files: its line, and the session's state with progress; or None."""
    found = line(db, id)
    row = rows.one(db, "select session_state, progress_snapshot as progress from checkpoint where id = ?", (id,))
    if found is None or row is None:
        return None
    progress = None if row["progress"] is None else _PROGRESS.read(row["progress"])
    return found, {**json.loads(row["session_state"]), "progress": progress}


def line(db: Database, id: str) -> CheckpointLine | None:
    """Return the list line of the checkpoint with this id, or None."""
    return _LINES.get(db, id)


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """Return the ids that begin with the literal `prefix`, sorted; at most 50."""
    return _LINES.with_prefix(db, prefix)


def last(db: Database, session_id: str) -> CheckpointLine | None:
    """Return the session's newest checkpoint, or None."""
    return _LINES.first(db, f"session_id = ? {_NEWEST_FIRST} limit 1", (session_id,))


def of(db: Database, session_id: str | None = None) -> tuple[CheckpointLine, ...]:
    """Return the checkpoints of one session or of all, newest first."""
    where, values = ("true", ()) if session_id is None else ("session_id = ?", (session_id,))
    return _LINES.select(db, f"{where} {_NEWEST_FIRST}", values)


def hashes_named(db: Database) -> Iterator[str]:
    """Yield the hash of every file of every checkpoint, with repeats. Rows are read lazily: do not write over the
    same connection before the iteration ends."""
    for id in rows.column(db, "select id from checkpoint"):
        cursor = db.execute(
            "select each.value from checkpoint, json_each(checkpoint.file_hashes) as each where checkpoint.id = ?",
            (id,),
        )
        while found := cursor.fetchmany(_PART):
            yield from (hash for (hash,) in found)
