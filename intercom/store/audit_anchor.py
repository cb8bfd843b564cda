"""The heads of the audit log, kept outside the database: an append-only file of JSON lines in the state directory.

A program that can write the database can rewrite its whole chain. Earlier heads reveal that, unless the program can
also change this file and every head that was logged or posted. Uses the standard library only.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from intercom.store.audit_chain import ANCHORED, POSTED, Anchor, Head, Verification, entry_data, head, verify

#: The largest file accepted, in bytes; the server never writes one this large.
_LARGEST = 256 * 1024 * 1024


#: The state of a file: device, inode, size in bytes, modification time in nanoseconds.
State = tuple[int, int, int, int]


class AnchorError(Exception):
    """The anchor file cannot be read or written. The message says why."""


def append(file: Path, newest: Head, database: Path) -> State | None:
    """Append a head to the file, on disk when this returns. A missing directory is created.

    Returns the state of the file written, which may no longer be at this path. Returns None if another program wrote to
    it at the same time. Raises AnchorError.
    """
    line = {"sequence": newest.sequence, "hash": newest.hash, "at": newest.at, "database": str(database)}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # A server whose database is elsewhere may have no state directory yet.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, flags, 0o600)
        try:
            _check(file, descriptor)
            # A crash may have cut the last line short; start on a new line so that this one stays readable.
            end = b"" if _ends_line(file) else b"\n"
            data = end + json.dumps(line).encode("ascii") + b"\n"
            before = os.fstat(descriptor).st_size
            os.write(descriptor, data)
            os.fsync(descriptor)
            after = os.fstat(descriptor)
            return _state_of(after) if after.st_size == before + len(data) else None
        finally:
            os.close(descriptor)
    except OSError as error:
        raise AnchorError(f"{file} cannot be written ({(error.strerror or str(error)).lower()})") from None


def state(file: Path) -> State | None:
    """Return the file's state; None if there is no file."""
    try:
        found = os.stat(file, follow_symlinks=False)
    except OSError:
        return None
    return _state_of(found)


def holds(file: Path, database: Path, newest: Head) -> bool:
    """Whether the file contains this head of the database. Raises AnchorError."""
    kept = ((anchor.sequence, anchor.hash) for anchor in read(file, database))
    return (newest.sequence, newest.hash) in kept


def read(file: Path, database: Path) -> list[Anchor]:
    """Return the heads of this database, oldest first; none if there is no file. A line that was cut short is
    skipped. Raises AnchorError."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise AnchorError(f"{file} cannot be read ({(error.strerror or str(error)).lower()})") from None
    with os.fdopen(descriptor, "rb") as opened:
        _check(file, descriptor)
        data = opened.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise AnchorError(f"{file} is larger than any that the server writes: move it aside")
    return [anchor for anchor in _parsed(data) if anchor.database == str(database)]


def examine(database: Path, file: Path) -> Verification:
    """Verify the audit log of a database read-only, even while a server has it open. Raises AnchorError, and
    sqlite3.Error if the file is not our database."""
    anchors = read(file, database)
    with closing(connect(database)) as db:
        db.execute("begin")
        found = verify(db, anchors)
        if (fault := beginning_fault(db, anchors, file)) is not None:
            found.add(None, fault)
        again = db.execute("select id, at, data from audit where kind = ? order by id", (ANCHORED,))
        found.begun_again = [
            (int(id), str(at)) for id, at, data in again.fetchall() if entry_data({"data": data}).get("again") is True
        ]
        return found


def beginning_fault(db: sqlite3.Connection, anchors: list[Anchor], file: Path) -> str | None:
    """Return a sentence if the file does not date from the log entry that records its beginning, else None. A
    replaced file holds no head as old as that entry, unless another entry records the replacement."""
    begun = db.execute("select max(id) from audit where kind = ?", (ANCHORED,)).fetchone()[0]
    if begun is None:
        # Retention may have deleted that entry. A posted head was written to the file first.
        begun = db.execute("select min(id) from audit where kind = ?", (POSTED,)).fetchone()[0]
    if begun is None:
        return None
    if not anchors:
        return f"{file} is gone, or holds nothing of this database: the log's head was kept there"
    first = anchors[0]
    if first.sequence > begun:
        return (
            f"{file} was begun again on {first.at}, and no entry says so: heads were kept there since entry {begun},"
            f" and its first is of entry {first.sequence}"
        )
    return None


def compare(db: sqlite3.Connection, anchors: list[Anchor]) -> list[str]:
    """Return how the newest anchors contradict the log, in sentences; fast enough for every start. The log may be
    newer than its last anchor: a crash can come between the two."""
    newest = head(db)
    faults: list[str] = []
    for anchor in anchors[-_COMPARED:]:
        if newest is None or anchor.sequence > newest.sequence:
            last = 0 if newest is None else newest.sequence
            faults.append(
                f"entries {last + 1} to {anchor.sequence} of the audit log are gone: the last was there on {anchor.at}"
            )
            continue
        row = db.execute("select hash from audit where id = ?", (anchor.sequence,)).fetchone()
        if row is None:
            oldest = db.execute("select min(id) from audit").fetchone()[0]
            if anchor.sequence > oldest:
                faults.append(f"entry {anchor.sequence} of the audit log is gone: it was there on {anchor.at}")
        elif row[0] != anchor.hash:
            faults.append(f"entry {anchor.sequence} of the audit log is not what it was on {anchor.at}")
    return faults


#: How many of the newest anchors are compared at a start; `audit verify` compares all.
_COMPARED = 200


def connect(database: Path) -> sqlite3.Connection:
    """Open a read-only connection."""
    db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.execute("pragma query_only = on")
    # Another program may have stored bytes that are not UTF-8. They must not stop the verification or compare equal.
    db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return db


def _state_of(found: os.stat_result) -> State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _check(file: Path, descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise AnchorError(f"{file} is not a file of yours alone: run chmod 600 on it, or move it aside")


def _ends_line(file: Path) -> bool:
    with open(file, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        if size == 0:
            return True
        opened.seek(size - 1)
        return opened.read(1) == b"\n"


def _parsed(data: bytes) -> Iterator[Anchor]:
    for line in data.split(b"\n"):
        try:
            found = json.loads(line)
            yield Anchor(int(found["sequence"]), str(found["hash"]), str(found["at"]), str(found["database"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            continue
