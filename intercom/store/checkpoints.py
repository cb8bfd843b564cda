"""Queries on checkpoints of sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.checkpoint import Checkpoint, CheckpointLine
from intercom.model.manifest import Manifest
from intercom.store import rows
from intercom.store.progress import progress_text, progress_value
from intercom.store.rows import Row

_LINE = "id, session_id, workspace_root, created_at, label, file_count, file_bytes, kept_count"
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


def _hashes(db: Database, id: str) -> dict[str, str]:
    """Return the hashes of a row, read in parts."""
    cursor = db.execute(f"select each.key, each.value from {_EACH_FILE}", (id,))
    found: dict[str, str] = {}
    while part := cursor.fetchmany(_PART):
        found.update(part)
    return found


def _from_row(row: Row, hashes: Mapping[str, str]) -> Checkpoint:
    return Checkpoint(
        id=row["id"],
        session_id=row["session_id"],
        label=row["label"],
        session_state=json.loads(row["session_state"]),
        file_hashes=hashes,
        workspace_root=row["workspace_root"],
        progress_snapshot=progress_value(row["progress_snapshot"]),
        created_at=clock.from_text(row["created_at"]),
        file_facts=json.loads(row["file_facts"] or "{}"),
    )


def _line(row: Row) -> CheckpointLine:
    return CheckpointLine(
        id=row["id"],
        session_id=row["session_id"],
        workspace_root=row["workspace_root"],
        created_at=clock.from_text(row["created_at"]),
        label=row["label"],
        files=row["file_count"],
        size=row["file_bytes"],
        kept=row["kept_count"],
    )


def insert(db: Database, checkpoint: Checkpoint, files: FileColumns | None = None) -> bool:
    """Insert a new checkpoint. Returns False and changes nothing if its id exists. `files` are the columns of its
    manifest, if already built."""
    files = files or file_columns(checkpoint.manifest)
    row = {
        "id": checkpoint.id,
        "session_id": checkpoint.session_id,
        "label": checkpoint.label,
        "session_state": rows.json_text(dict(checkpoint.session_state)),
        "file_hashes": files.hashes,
        "file_facts": files.facts if checkpoint.file_facts else None,
        "file_count": files.count,
        "file_bytes": files.size,
        "kept_count": files.kept,
        "workspace_root": checkpoint.workspace_root,
        "progress_snapshot": progress_text(checkpoint.progress_snapshot),
        "created_at": clock.to_text(checkpoint.created_at),
    }
    return rows.insert(db, "checkpoint", row)


def get(db: Database, id: str) -> Checkpoint | None:
    """Return the checkpoint with this id, or None. It may be large: read it in a worker thread."""
    columns = "id, session_id, label, session_state, workspace_root, progress_snapshot, created_at, file_facts"
    row = rows.one(db, f"select {columns} from checkpoint where id = ?", (id,))
    return None if row is None else _from_row(row, _hashes(db, id))


def state_of(db: Database, id: str) -> tuple[CheckpointLine, Mapping[str, Any]] | None:
    """Return a checkpoint without its files: its line, and the session's state with progress; or None."""
    row = rows.one(db, f"select {_LINE}, session_state, progress_snapshot from checkpoint where id = ?", (id,))
    if row is None:
        return None
    return _line(row), {**json.loads(row["session_state"]), "progress": progress_value(row["progress_snapshot"])}


def line(db: Database, id: str) -> CheckpointLine | None:
    """Return the list line of the checkpoint with this id, or None."""
    row = rows.one(db, f"select {_LINE} from checkpoint where id = ?", (id,))
    return None if row is None else _line(row)


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """Return the ids that begin with the literal `prefix`, sorted; at most 50."""
    return rows.ids_with_prefix(db, "checkpoint", prefix)


def last(db: Database, session_id: str) -> CheckpointLine | None:
    """Return the session's newest checkpoint, or None."""
    row = rows.one(db, f"select {_LINE} from checkpoint where session_id = ? {_NEWEST_FIRST} limit 1", (session_id,))
    return None if row is None else _line(row)


def of(db: Database, session_id: str | None = None) -> tuple[CheckpointLine, ...]:
    """Return the checkpoints of one session or of all, newest first."""
    where, values = ("", ()) if session_id is None else ("where session_id = ?", (session_id,))
    return tuple(
        _line(row) for row in rows.every(db, f"select {_LINE} from checkpoint {where} {_NEWEST_FIRST}", values)
    )


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
