"""The contents that checkpoints keep, by SHA-256, in a database of their own beside the other.

A content is written before the checkpoint that names it; what no checkpoint names is swept away. So a crash leaves at
most what the next sweep removes. Used from worker threads, by one user at a time.

No connection stays open, so nothing can be saved from a file that another program removes or replaces: that is noticed,
and told.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field, frozen

from intercom.model import crash_points
from intercom.model.errors import DatabaseError
from intercom.store import faults, rows
from intercom.store.database import Database, connect, make_private, move_aside, transaction
from intercom.store.disturbance import look

#: How much is written in one transaction: bytes, and contents.
BATCH_BYTES = 16 * 2**20
BATCH = 500
#: How hard contents are pressed. Source shrinks to a third at the fastest level, and little more at others.
LEVEL = 1
#: Rows that a sweep takes away at once.
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
    """The store at `path`, made when it is first written to; its files together are held below `max_bytes`. There is
    one for each file, so that it knows what it did to that itself."""

    path: Path
    max_bytes: int
    _watched: _Watched = field(factory=lambda: _Watched(), init=False, repr=False)

    @contextmanager
    def open(self) -> Iterator[Held]:
        """The store, open for reading and writing in this thread. What was kept is on disk when the block ends without
        an exception, and may be there or not after one.

        Raises DatabaseError when it can not be opened or written. A damaged one is moved aside, and an empty one begun:
        what it held is gone, and checkpoints say so when they are restored. Where the damage is met only in the block,
        that is refused, and the next one has the empty store.
        """
        with self._watched.block(self.path):
            try:
                held = Held(self._database(), self.max_bytes)
                try:
                    yield held
                    held.flush()
                finally:
                    held.db.close()
            except sqlite3.Error as error:
                refused = self._aside() if faults.damaged(error) else faults.refusal(error, self.path)
                if refused is None:
                    raise
                raise refused from error

    def disturbed(self) -> str | None:
        """What another program did to the file since the last look, in a sentence for people, once; None where nothing
        was done, or while the store is open. The first look says what there is to lose. Blocks."""
        what = self._watched.look(self.path)
        if what is None:
            return None
        return (
            f"{self.path}, where the files of checkpoints are kept, {what} while the server runs:"
            " checkpoints from before cannot be restored; put it back if you did not do it yourself"
        )

    def size(self) -> int:
        """The bytes that it takes on disk, without its log."""
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
            if not faults.damaged(error):
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
    """What is known of the file: which one it is, by device and inode. Its size is not: a sweep shrinks it."""

    _open: int = 0
    #: The file as it was last seen, and the one that was opened last.
    _seen: tuple[int, int] | None = None
    _own: tuple[int, int] | None = None
    _found: str | None = None
    _lock: threading.Lock = field(factory=threading.Lock)

    @contextmanager
    def block(self, path: Path) -> Iterator[None]:
        """In the block the store is open, or about to be: what is not noticed before it would be lost with it."""
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
        """The file that stands there now is the store's own, also where it was just made."""
        with self._lock:
            self._seen = self._own = look(path).database

    def forget(self) -> None:
        """The store has moved its file aside itself."""
        with self._lock:
            self._seen = self._own = None

    def look(self, path: Path) -> str | None:
        """What was done to the file, half a sentence, once."""
        with self._lock:
            if self._open == 0:
                self._compare(path)
            found, self._found = self._found, None
            return found

    def _compare(self, path: Path) -> None:
        now = look(path).database
        # What comes to an empty place is no loss, nor is the store's own file where it was put back.
        if self._seen is not None and now != self._seen and (now is None or now != self._own):
            self._found = "was removed" if now is None else "was replaced by another file"
        self._seen = now


def _ready(path: Path) -> Database:
    db = connect(path)
    try:
        # Space that is freed goes back to the system; to be said before the first table.
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
class Held:
    """The open store."""

    db: Database
    max_bytes: int
    _waiting: dict[bytes, tuple[int, int, bytes]] = field(factory=dict)
    _waiting_bytes: int = 0
    _page_size: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._page_size = rows.count(self.db, "pragma page_size")

    def keep(self, hash: str, data: bytes) -> bool:
        """Keep a content, whose SHA-256 is `hash` in hex; False when there is no room for it. A later `flush` puts it
        on disk."""
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
        """Put on disk what was kept since the last time."""
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
        """The content with this hash; None where it is not kept, or what is kept is not it."""
        row = rows.one(self.db, "select pressed, data from content where hash = ?", (bytes.fromhex(hash),))
        if row is None:
            return None
        try:
            data: bytes = zlib.decompress(row["data"]) if row["pressed"] else row["data"]
        except zlib.error:
            return None
        return data if hashlib.sha256(data).hexdigest() == hash else None

    def missing(self, hashes: Iterable[str]) -> frozenset[str]:
        """Those of the hashes whose content is not kept."""
        return frozenset(hash for hash in hashes if not self._has(bytes.fromhex(hash)))

    def sweep(self, named: Iterable[str]) -> int:
        """Take away every content that is not among those `named`; how many went. What can be freed of the file is."""
        self.db.execute("create temporary table named (hash blob primary key) without rowid")
        for part in _parts(named, SWEPT):
            with transaction(self.db):
                for hash in part:
                    self.db.execute("insert or ignore into named values (?)", (bytes.fromhex(hash),))
        gone = 0
        unnamed = f"select hash from content where hash not in (select hash from named) limit {SWEPT}"
        while found := rows.column(self.db, unnamed):
            with transaction(self.db):
                gone += rows.affected(self.db, f"delete from content where hash in ({rows.holders(found)})", found)
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
