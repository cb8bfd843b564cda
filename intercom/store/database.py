"""Opening the database: made private, checked, brought up to date; a damaged one moved aside, never deleted."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen
from sqlite_utils import Database

from intercom.model.errors import DatabaseError
from intercom.store import faults
from intercom.store.migrations import LATEST, migrate, version

__all__ = [
    "BESIDE",
    "Database",
    "Opened",
    "backup",
    "beside",
    "connect",
    "free_name",
    "make_private",
    "move_aside",
    "open_database",
    "transaction",
]

#: Seconds a statement waits for another program's lock.
BUSY_SECONDS = 5.0

#: What belongs to a database: its log and its index.
BESIDE = ("-wal", "-shm")


@frozen
class Opened:
    """`moved_aside` is where a damaged file was moved, `backed_up` the copy made before the schema was changed."""

    db: Database
    moved_aside: Path | None = None
    backed_up: Path | None = None


def open_database(
    path: str | os.PathLike[str],
    *,
    busy_seconds: float = BUSY_SECONDS,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Opened:
    """Open the database for writing, creating or upgrading it as needed.

    Missing directories are made with mode 0700, the file with 0600 (one with a wider mode is narrowed). The connection
    is in WAL mode with synchronous=FULL and foreign keys on, waits `busy_seconds` for another program's lock, and
    belongs to the thread that called. A damaged file is moved aside with its -wal and -shm under a new name beside it,
    and an empty database begun; one with an older schema is copied beside itself before it is changed.

    Raises DatabaseError, saying what to do: no permission, no directory, disk full, locked by another program, another
    program's database, or (code version_mismatch) a newer schema. The file is then as it was.
    """
    file = Path(path)
    make_private(file)
    moved = None
    aside = free_name(file, "damaged", now())
    try:
        try:
            db = _sound(file, busy_seconds, aside)
        except sqlite3.DatabaseError as error:
            if not faults.damaged(error):
                raise
            moved = _move_aside(file, aside)
            make_private(file)
            db = _sound(file, busy_seconds, aside)
        try:
            backed_up = _upgrade(db, file, now())
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        refused = faults.refusal(error, file)
        if refused is None:
            raise
        raise refused from error
    return Opened(db, moved, backed_up)


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS, any_thread: bool = False) -> Database:
    """A plain connection to an existing file, with no check and no migration; transactions are begun explicitly."""
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=not any_thread,
    )
    try:
        return Database(conn, execute_plugins=False)
    except BaseException:
        conn.close()
        raise


@contextmanager
def transaction(db: Database) -> Iterator[None]:
    """One write transaction: takes the write lock at once, commits at the end, rolls back on any error."""
    db.execute("begin immediate")
    try:
        yield
        db.commit()
    except BaseException:
        db.rollback()
        raise


def backup(db: Database, path: str | os.PathLike[str]) -> None:
    """Copy the database, as committed, to a new file of mode 0600.

    `db` must have no open write transaction. Raises DatabaseError when `path` exists or can not be written; then no
    file is left.
    """
    target = Path(path)
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise DatabaseError(f"the backup {target} exists already; choose another name") from None
    except OSError as error:
        raise DatabaseError(
            f"the backup {target} can not be written ({_reason(error)}); choose another place"
        ) from error
    try:
        copy = sqlite3.connect(target)
        try:
            db.conn.backup(copy)
            # the copy took over WAL mode; leave one self-contained file
            copy.execute("pragma journal_mode = delete")
        finally:
            copy.close()
    except BaseException as error:
        target.unlink()
        refused = faults.refusal(error, target) if isinstance(error, sqlite3.Error) else None
        if refused is None:
            raise
        raise refused from error


def _sound(file: Path, busy_seconds: float, aside: Path) -> Database:
    """A configured connection to a file whose pages hang together; sqlite3.DatabaseError when they do not, with a copy
    of the log kept beside `aside`."""
    db = connect(file, busy_seconds=busy_seconds)
    try:
        if _write_ahead(db, busy_seconds) != "wal":
            raise DatabaseError(
                f"the file system of {file} does not support write-ahead logs; set [database] path elsewhere"
            )
        db.execute("pragma synchronous = full")
        db.execute("pragma foreign_keys = on")
        db.execute("pragma journal_size_limit = 67108864")
        if db.execute("pragma quick_check(1)").fetchone()[0] != "ok":
            raise _damage()
    except BaseException as error:
        log = beside(file, "-wal")
        if isinstance(error, sqlite3.Error) and faults.damaged(error) and log.exists():
            # closing the last connection deletes the log, which may hold what the file has lost
            shutil.copyfile(log, beside(aside, "-wal"))
            beside(aside, "-wal").chmod(0o600)
        db.close()
        raise
    return db


def _write_ahead(db: Database, busy_seconds: float) -> str:
    """Switch to a write-ahead log; the journal mode there is then."""
    until = time.monotonic() + busy_seconds
    while True:
        try:
            return str(db.execute("pragma journal_mode = wal").fetchone()[0])
        except sqlite3.OperationalError as error:
            # SQLite does not wait for others here, as it does everywhere else
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.01)


def _damage() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("the pages of the database do not hang together")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _upgrade(db: Database, file: Path, at: datetime) -> Path | None:
    before = version(db)
    copy = None
    if 0 < before < LATEST:
        copy = free_name(file, f"schema-{before}", at)
        backup(db, copy)
    if before != LATEST:
        # two programs that open an empty file at once must not both create it
        with transaction(db):
            migrate(db, at)
    return copy


def make_private(file: Path) -> None:
    """Make the file of a database, and directories above it, for this user alone. Raises DatabaseError."""
    try:
        missing = [parent for parent in file.parents if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(handle).st_mode & 0o077:
                os.fchmod(handle, 0o600)
        finally:
            os.close(handle)
    except OSError as error:
        raise DatabaseError(
            f"the database {file} can not be opened ({_reason(error)}); {_advice(error)}", path=str(file)
        ) from error


def move_aside(file: Path, at: datetime | None = None) -> Path:
    """Move a damaged database and what belongs to it to a free name beside it, and say which."""
    return _move_aside(file, free_name(file, "damaged", at or datetime.now(UTC)))


def _move_aside(file: Path, target: Path) -> Path:
    # the log first: left behind, it could be taken for that of the new database
    for suffix in (*BESIDE, ""):
        if beside(file, suffix).exists():
            beside(file, suffix).rename(beside(target, suffix))
    return target


def free_name(file: Path, word: str, at: datetime) -> Path:
    """A name beside `file` that neither a database nor anything of one has, which says `word` and when."""
    stem = f"{file.name}.{word}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 0
    while True:
        name = stem if number == 0 else f"{stem}-{number}"
        if not any(file.with_name(name + suffix).exists() for suffix in ("", *BESIDE)):
            return file.with_name(name)
        number += 1


def beside(file: Path, suffix: str) -> Path:
    """The file of a database's log or index; the database itself for no suffix."""
    return file.with_name(file.name + suffix)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _advice(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "give this user the right to write there, or set [database] path elsewhere"
    if isinstance(error, NotADirectoryError | FileExistsError):
        return "a part of the path is a file and not a directory; set [database] path elsewhere"
    if isinstance(error, IsADirectoryError):
        return "set [database] path to a file, not a directory"
    return "free some space there, or set [database] path elsewhere"
