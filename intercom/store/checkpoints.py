"""Checkpoints of sessions, restores of them, and the contents of files, by SHA-256, in a second database.

A content is written before the checkpoint that refers to it, and a sweep deletes unreferenced contents. So a crash
leaves at most what the next sweep deletes. Contents are used from worker threads, by one user at a time. No connection
to them stays open, so nothing can be saved if another program removes or replaces the file; that is reported.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from intercom.model import crash_points
from intercom.model.checkpoint import (
    CLEANED_UP,
    RESTORE_TRANSITIONS,
    UNDER_WAY,
    WAITING,
    Checkpoint,
    CheckpointLine,
    Divergence,
    DivergenceKind,
    DivergenceSummary,
    Manifest,
    Restore,
    RestoreState,
)
from intercom.model.errors import DatabaseError
from intercom.model.session import ProgressItem
from intercom.store import database, rows
from intercom.store.database import Database, connect, look, make_private, move_aside, transaction
from intercom.store.requests import DECIDED
from intercom.store.rows import Codec, Row, States, Table

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


# --- contents --------------------------------------------------------------------------------------------------------

#: The most that is written in one transaction: bytes, and number of contents.
BATCH_BYTES = 16 * 2**20
BATCH = 500
#: The zlib level. Source code shrinks to a third at the fastest level, and little more at others.
LEVEL = 1
#: How many rows a sweep deletes in one transaction.
SWEPT = 2000

_SCHEMA = """
create table if not exists content (
    hash blob not null unique,
    size integer not null,
    pressed integer not null check (pressed in (0, 1)),
    data blob not null
)
"""


@frozen(eq=False)
class Contents:
    """The store at `path`, created at the first write and limited to `max_bytes`. Use one instance per file, so that
    its own changes are told from those of other programs."""

    path: Path
    max_bytes: int
    _watched: _Watched = field(factory=lambda: _Watched(), init=False, repr=False)

    @contextmanager
    def open(self) -> Iterator[OpenContents]:
        """Open the store for reading and writing in this thread.

        What was kept is on disk when the block ends normally. After an exception it may or may not be there.

        Raises DatabaseError if the store cannot be opened or written. A damaged store is moved aside and replaced by an
        empty one; restoring a checkpoint reports the missing contents. Damage found inside the block raises
        DatabaseError, and the next block has the empty store.
        """
        with self._watched.block(self.path):
            try:
                opened = OpenContents(self._database(), self.max_bytes)
                try:
                    yield opened
                    opened.flush()
                finally:
                    opened.db.close()
            except sqlite3.Error as error:
                refused = self._aside() if database.damaged(error) else database.refusal(error, self.path)
                if refused is None:
                    raise
                raise refused from error

    def disturbed(self) -> str | None:
        """Return, once, a sentence on what another program did to the file since the last look, or None. The first
        call only records the file. Returns None while the store is open. Blocks."""
        what = self._watched.look(self.path)
        if what is None:
            return None
        return (
            f"{self.path}, where the files of checkpoints are kept, {what} while the server runs:"
            " checkpoints from before cannot be restored; put it back if you did not do it yourself"
        )

    def size(self) -> int:
        """Return the size on disk in bytes, without the log."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def _aside(self) -> DatabaseError:
        moved = self._move_aside()
        return DatabaseError(
            f"the contents that checkpoints keep were damaged and have been moved to {moved}; try again",
            path=str(self.path),
        )

    def _database(self) -> Database:
        make_private(self.path)
        try:
            db = _ready(self.path)
        except sqlite3.DatabaseError as error:
            if not database.damaged(error):
                raise
            self._move_aside()
            make_private(self.path)
            db = _ready(self.path)
        self._watched.opened(self.path)
        return db

    def _move_aside(self) -> Path:
        moved = move_aside(self.path)
        self._watched.forget()
        return moved


@define
class _Watched:
    """The known identity of the file: device and inode. The size is not compared, because a sweep shrinks it."""

    _open: int = 0
    #: The file last seen, and the file last opened.
    _seen: tuple[int, int] | None = None
    _own: tuple[int, int] | None = None
    _found: str | None = None
    _lock: threading.Lock = field(factory=threading.Lock)

    @contextmanager
    def block(self, path: Path) -> Iterator[None]:
        """Count the store as open in the block. Checks the file before and after, so that no change is missed."""
        with self._lock:
            self._compare(path)
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                self._compare(path)

    def opened(self, path: Path) -> None:
        """Record the present file as the store's own, also if it was just created."""
        with self._lock:
            self._seen = self._own = look(path).database

    def forget(self) -> None:
        """Forget the file, because the store has moved it aside itself."""
        with self._lock:
            self._seen = self._own = None

    def look(self, path: Path) -> str | None:
        """Return, once, what was done to the file, as the verb phrase of a sentence; None if nothing was."""
        with self._lock:
            if self._open == 0:
                self._compare(path)
            found, self._found = self._found, None
            return found

    def _compare(self, path: Path) -> None:
        now = look(path).database
        # A file that appears at an empty path is no loss, nor is the store's own file if it was put back.
        if self._seen is not None and now != self._seen and (now is None or now != self._own):
            self._found = "was removed" if now is None else "was replaced by another file"
        self._seen = now


def _ready(path: Path) -> Database:
    db = connect(path)
    try:
        # Freed space returns to the file system. SQLite requires this before the first table.
        db.execute("pragma auto_vacuum = incremental")
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        db.execute("pragma journal_size_limit = 67108864")
        db.execute(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


@define
class OpenContents:
    """The open store."""

    db: Database
    max_bytes: int
    _waiting: dict[bytes, tuple[int, int, bytes]] = field(factory=dict)
    _waiting_bytes: int = 0
    _page_size: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._page_size = rows.count(self.db, "pragma page_size")

    def put(self, hash: str, data: bytes) -> bool:
        """Store a content whose SHA-256 in hex is `hash`. Returns False if there is no room. The next `flush` writes
        it to disk."""
        key = bytes.fromhex(hash)
        if key in self._waiting or self._has(key):
            return True
        pressed = zlib.compress(data, LEVEL)
        entry = (len(data), 1, pressed) if len(pressed) < len(data) else (len(data), 0, data)
        if self._used() + self._waiting_bytes + len(entry[2]) > self.max_bytes:
            return False
        self._waiting[key] = entry
        self._waiting_bytes += len(entry[2])
        if self._waiting_bytes >= BATCH_BYTES or len(self._waiting) >= BATCH:
            self.flush()
        return True

    def flush(self) -> None:
        """Write the pending contents to disk."""
        if not self._waiting:
            return
        with transaction(self.db):
            for key, (size, pressed, data) in self._waiting.items():
                self.db.execute(
                    "insert into content (hash, size, pressed, data) values (?, ?, ?, ?) on conflict do nothing",
                    (key, size, pressed, data),
                )
        self._waiting.clear()
        self._waiting_bytes = 0
        crash_points.reach("contents.kept")

    def read(self, hash: str) -> bytes | None:
        """Return the content with this hash; None if it is absent or does not match its hash."""
        row = rows.one(self.db, "select pressed, data from content where hash = ?", (bytes.fromhex(hash),))
        if row is None:
            return None
        try:
            data: bytes = zlib.decompress(row["data"]) if row["pressed"] else row["data"]
        except zlib.error:
            return None
        return data if hashlib.sha256(data).hexdigest() == hash else None

    def missing(self, hashes: Iterable[str]) -> frozenset[str]:
        """Return those of the hashes whose content is not stored."""
        return frozenset(hash for hash in hashes if not self._has(bytes.fromhex(hash)))

    def sweep(self, named: Iterable[str]) -> int:
        """Delete every content that is not in `named` and free its disk space. Returns how many were deleted."""
        self.db.execute("create temporary table named (hash blob primary key) without rowid")
        for part in _parts(named, SWEPT):
            with transaction(self.db):
                for hash in part:
                    self.db.execute("insert or ignore into named values (?)", (bytes.fromhex(hash),))
        gone = 0
        unnamed = f"select hash from content where hash not in (select hash from named) limit {SWEPT}"
        while found := rows.column(self.db, unnamed):
            with transaction(self.db):
                gone += rows.affected(self.db, f"delete from content where hash in ({rows.placeholders(found)})", found)
        self.db.execute("drop table named")
        if gone:
            self.db.execute("pragma incremental_vacuum").fetchall()
            self.db.execute("pragma wal_checkpoint(truncate)").fetchall()
        return gone

    def _has(self, key: bytes) -> bool:
        return rows.count(self.db, "select count(*) from content where hash = ?", (key,)) == 1

    def _used(self) -> int:
        pages = rows.count(self.db, "pragma page_count") - rows.count(self.db, "pragma freelist_count")
        return pages * self._page_size


def _parts(items: Iterable[str], size: int) -> Iterator[list[str]]:
    part: list[str] = []
    for item in items:
        part.append(item)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


# --- restores --------------------------------------------------------------------------------------------------------


def _divergence_text(found: DivergenceSummary) -> str:
    return rows.json_text(
        {
            "modified": found.modified,
            "deleted": found.deleted,
            "added": found.added,
            "first": [[each.kind.value, each.path] for each in found.first],
            "remarks": list(found.remarks),
        }
    )


def _divergence_value(text: str) -> DivergenceSummary:
    data = json.loads(text)
    first = tuple(Divergence(path, DivergenceKind(kind)) for kind, path in data["first"])
    return DivergenceSummary(data["modified"], data["deleted"], data["added"], first, tuple(data["remarks"]))


#: The states of a restore that has created its successor.
_MADE = "and state in ('handed_over', 'done', 'stuck', 'given_up')"


class Restores(Table[Restore]):
    """Restores of checkpoints, from the request to the end.

    Each is recorded step by step, so that a crash leaves all of it or nothing. Every change of state is a
    compare-and-set.
    """

    def known(self, db: Database, id: str) -> Restore:
        """Do as `get`, for a restore that exists: restores outlive those who carry them out."""
        restore = self.get(db, id)
        assert restore is not None
        return restore

    def steps(self, db: Database, id: str) -> str:
        """Return the steps of a restore: the JSON text of the file transaction. There may be many."""
        [found] = rows.column(db, "select steps from restore where id = ?", (id,)) or [None]
        return "[]" if found is None else str(found)

    def waiting(self, db: Database) -> tuple[Restore, ...]:
        """Return the restores that wait for a person, oldest first."""
        return self._in(db, WAITING)

    def under_way(self, db: Database) -> tuple[Restore, ...]:
        """Return the restores in progress, oldest first."""
        return self._in(db, UNDER_WAY)

    def to_clean_up(self, db: Database) -> tuple[Restore, ...]:
        """Return the restores that ended without their files and may have left staged ones, oldest first."""
        return self._in(db, CLEANED_UP, "and steps is not null")

    def save_steps(self, db: Database, id: str, steps: str) -> None:
        """Record the steps of an accepted restore, before its files are staged."""
        self.update(db, "id = :id and state = 'accepted'", {"id": id}, steps=steps)

    def forget_steps(self, db: Database, id: str) -> None:
        """Delete the steps of a restore whose staged files were discarded."""
        self.update(db, "id = :id and state in ('accepted', 'failed', 'given_up')", {"id": id}, steps=None)

    def by_successor(self, db: Database, session_id: str) -> Restore | None:
        """Return the restore that created this session, or None."""
        return self.first(db, f"successor_id = ? {_MADE}", (session_id,))

    def by_ended(self, db: Database, session_id: str) -> Restore | None:
        """Return the latest restore that replaced this session with a successor, or None."""
        where = f"session_id = ? {_MADE} order by created_at desc, rowid desc limit 1"
        return self.first(db, where, (session_id,))

    def latest_successor(self, db: Database, session_id: str) -> str:
        """Return the session that this one became through restores; itself if there were none."""
        seen = {session_id}
        while (restore := self.by_ended(db, session_id)) is not None and restore.successor_id not in seen:
            session_id = restore.successor_id
            seen.add(session_id)
        return session_id

    def _in(self, db: Database, states: Collection[RestoreState], also: str = "") -> tuple[Restore, ...]:
        return self.select(db, f"state in ({rows.literals(states)}) {also} order by created_at, rowid")


restores = Restores(
    "restore",
    Restore,
    codecs={"divergence": Codec(_divergence_text, _divergence_value)},
    parts={"decided": DECIDED},
    states=States("a restore", "state", RESTORE_TRANSITIONS),
)
