"""The audit log's head, kept outside of the database: an append-only file of JSON lines in the state directory.

Whoever can write the database can make its whole chain anew. Heads that were written here before show it, as long as
this file, or one of the heads that were logged or posted, is out of reach. Standard library only.
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

#: A file that is larger was not written here.
_LARGEST = 256 * 1024 * 1024


#: What changes when a file does: device and inode, size, time of change.
State = tuple[int, int, int, int]


class AnchorError(Exception):
    """The anchor file cannot be read or written; the message says why."""


def append(file: Path, newest: Head, database: Path) -> State | None:
    """Add a head, on disk when this returns; the directory is made if it is missing. Returns the state of the file that
    has it, which need not stand there any more; None where somebody else wrote to it meanwhile. Raises AnchorError."""
    line = {"sequence": newest.sequence, "hash": newest.hash, "at": newest.at, "database": str(database)}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # A server whose database stands elsewhere may have no state directory yet.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, flags, 0o600)
        try:
            _check(file, descriptor)
            # A line that a crash cut short must not take this one with it.
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
    """The file's state; None where there is none."""
    try:
        found = os.stat(file, follow_symlinks=False)
    except OSError:
        return None
    return _state_of(found)


def holds(file: Path, database: Path, newest: Head) -> bool:
    """Whether this head of the database stands in the file. Raises AnchorError."""
    kept = ((anchor.sequence, anchor.hash) for anchor in read(file, database))
    return (newest.sequence, newest.hash) in kept


def read(file: Path, database: Path) -> list[Anchor]:
    """The heads of this database, oldest first; none where there is no file. A line that was cut short is passed over.
    Raises AnchorError."""
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
    """Verify the log of a database, read-only, whether or not a server has it open. Raises AnchorError, and
    sqlite3.Error for what is no database of ours."""
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
    """Why the file is not the one that was begun when an entry of the log says so, a sentence; None where it is, or
    where the log does not say that there is one. A file that was moved aside and begun again holds no head that is as
    old as that entry, unless there is an entry for it too."""
    begun = db.execute("select max(id) from audit where kind = ?", (ANCHORED,)).fetchone()[0]
    if begun is None:
        # It may have gone by age. What was posted since was kept before.
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
    """What does not fit between the newest anchors and the log, in words: quick, for every start. A head that is newer
    than its anchor fits: a crash comes between the two."""
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


#: So many of the newest anchors are compared at a start; `audit verify` compares all.
_COMPARED = 200


def connect(database: Path) -> sqlite3.Connection:
    """A connection that can only read."""
    db = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.execute("pragma query_only = on")
    # What somebody else put there need not be text, and must not end the verification: no two bytes look alike.
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
