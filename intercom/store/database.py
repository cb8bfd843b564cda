"""The database file: made private, checked, migrated; a damaged one is moved aside and never deleted."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen
from sqlite_utils import Database

from intercom.model.errors import DatabaseError
from intercom.store.schema import MIGRATIONS, Migration, migrate, require_known, version

_CODE = {
    "busy": sqlite3.SQLITE_BUSY,
    "locked": sqlite3.SQLITE_LOCKED,
    "full": sqlite3.SQLITE_FULL,
    "readonly": sqlite3.SQLITE_READONLY,
    "perm": sqlite3.SQLITE_PERM,
    "auth": sqlite3.SQLITE_AUTH,
    "cantopen": sqlite3.SQLITE_CANTOPEN,
    "ioerr": sqlite3.SQLITE_IOERR,
    "corrupt": sqlite3.SQLITE_CORRUPT,
    "notadb": sqlite3.SQLITE_NOTADB,
}


def refusal(error: sqlite3.Error, path: Path) -> DatabaseError | None:
    """Return the error that tells people what is wrong with the database at `path` and what to do. Returns None if
    the query is at fault, not the database: that is a bug in the program."""
    code = _primary(error)
    if code in (_CODE["busy"], _CODE["locked"]):
        text = f"the database {path} is locked by another program; close that program and try again"
    elif code == _CODE["full"]:
        text = f"the disk of the database {path} is full; free some space and try again, nothing was written"
    elif code in (_CODE["readonly"], _CODE["perm"], _CODE["auth"]):
        text = f"no permission to write the database {path}; make the file and its directory writable for this user"
    elif code == _CODE["cantopen"]:
        text = f"the database {path} cannot be opened; check that its directory exists and this user may write there"
    elif code == _CODE["ioerr"]:
        text = f"the disk of the database {path} failed while reading or writing ({error}); check the disk"
    elif damaged(error):
        text = f"the database {path} is damaged; restart the server, which moves it aside and begins a new one"
    else:
        return None
    return DatabaseError(text, path=str(path))


def damaged(error: sqlite3.Error) -> bool:
    """Whether the error says that the file is not a sound database."""
    return _primary(error) in (_CODE["corrupt"], _CODE["notadb"])


def lasting(error: sqlite3.Error) -> bool:
    """Whether the error (no space, no permission, no disk) persists until somebody repairs the cause."""
    names = ("full", "readonly", "perm", "auth", "cantopen", "ioerr")
    return _primary(error) in [_CODE[name] for name in names]


def _primary(error: sqlite3.Error) -> int | None:
    # Extended codes keep the primary code in the low byte.
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


#: Seconds a statement waits for another program's lock.
BUSY_SECONDS = 5.0

#: The suffixes of a database's log and index.
BESIDE = ("-wal", "-shm")


@frozen
class Opened:
    """An open database, the new path of a damaged file, and the path of the backup made before a migration."""

    db: Database
    moved_aside: Path | None = None
    backed_up: Path | None = None


def open_database(
    path: str | os.PathLike[str],
    *,
    busy_seconds: float = BUSY_SECONDS,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    migrations: Sequence[Migration] = MIGRATIONS,
) -> Opened:
    """Open the database for writing, creating or upgrading it as needed.

    Missing directories get mode 0700 and the file 0600; a wider file mode is narrowed. The connection uses WAL mode,
    synchronous=FULL and foreign keys. It waits up to `busy_seconds` for another program's lock and belongs to the
    calling thread. A damaged file is moved aside with its -wal and -shm, and an empty database is created. A database
    with an older schema is copied before it is migrated.

    Raises DatabaseError, which says what to do: no permission, no directory, disk full, locked, another program's
    database, or (code version_mismatch) a schema that is newer, or older than the first release. The file is then
    unchanged.
    """
    file = Path(path)
    make_private(file)
    moved = None
    aside = free_name(file, "damaged", now())
    try:
        try:
            db = _sound(file, busy_seconds, aside)
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise
            moved = _move_aside(file, aside)
            make_private(file)
            db = _sound(file, busy_seconds, aside)
        try:
            backed_up = _upgrade(db, file, now(), migrations)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        refused = refusal(error, file)
        if refused is None:
            raise
        raise refused from error
    return Opened(db, moved, backed_up)


def connect(path: Path, *, busy_seconds: float = BUSY_SECONDS, any_thread: bool = False) -> Database:
    """Open a plain connection to an existing file, without checks, migrations or implicit transactions."""
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
    """Run a block in a write transaction: lock at once, commit at the end, roll back on any error."""
    db.execute("begin immediate")
    try:
        yield
        db.commit()
    except BaseException:
        db.rollback()
        raise


def backup(db: Database, path: str | os.PathLike[str]) -> None:
    """Copy the committed database to a new file of mode 0600. `db` must have no open write transaction. Raises
    DatabaseError if `path` exists or cannot be written; then no new file is left."""
    target = Path(path)
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise DatabaseError(f"the backup {target} exists already; choose another name") from None
    except OSError as error:
        raise DatabaseError(
            f"the backup {target} cannot be written ({_reason(error)}); choose another place"
        ) from error
    try:
        copy = sqlite3.connect(target)
        try:
            db.conn.backup(copy)
            # The copy inherits WAL mode; leave one self-contained file.
            copy.execute("pragma journal_mode = delete")
        finally:
            copy.close()
    except BaseException as error:
        target.unlink()
        refused = refusal(error, target) if isinstance(error, sqlite3.Error) else None
        if refused is None:
            raise
        raise refused from error


def _sound(file: Path, busy_seconds: float, aside: Path) -> Database:
    """Return a configured connection to an undamaged file. Raises sqlite3.DatabaseError if the file is damaged. Its
    log is then copied beside `aside`."""
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
        if isinstance(error, sqlite3.Error) and damaged(error) and log.exists():
            # Closing the last connection deletes the log, which may hold what the file has lost.
            shutil.copyfile(log, beside(aside, "-wal"))
            beside(aside, "-wal").chmod(0o600)
        db.close()
        raise
    return db


def _write_ahead(db: Database, busy_seconds: float) -> str:
    """Switch to a write-ahead log. Returns the resulting journal mode."""
    until = time.monotonic() + busy_seconds
    while True:
        try:
            return str(db.execute("pragma journal_mode = wal").fetchone()[0])
        except sqlite3.OperationalError as error:
            # The busy timeout of SQLite does not apply to this statement.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            time.sleep(0.01)


def _damage() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("the pages of the database do not hang together")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _upgrade(db: Database, file: Path, at: datetime, migrations: Sequence[Migration]) -> Path | None:
    before, latest = version(db), migrations[-1].number
    require_known(before, migrations)
    copy = None
    if 0 < before < latest:
        copy = free_name(file, f"schema-{before}", at)
        backup(db, copy)
    if before != latest:
        # Two programs that open an empty file at once must not both create the schema.
        with transaction(db):
            migrate(db, at, migrations)
    return copy


def make_private(file: Path) -> None:
    """Create the database file and its missing directories, for this user alone. Raises DatabaseError."""
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
            f"the database {file} cannot be opened ({_reason(error)}); {_advice(error)}", path=str(file)
        ) from error


def move_aside(file: Path, at: datetime | None = None) -> Path:
    """Move a damaged database, its log and its index to a free name beside it. Returns that name."""
    return _move_aside(file, free_name(file, "damaged", at or datetime.now(UTC)))


def _move_aside(file: Path, target: Path) -> Path:
    # Move the log first: if a crash left it here, SQLite could take it for that of the new database.
    for suffix in (*BESIDE, ""):
        if beside(file, suffix).exists():
            beside(file, suffix).rename(beside(target, suffix))
    return target


def free_name(file: Path, word: str, at: datetime) -> Path:
    """Return a name beside `file`, with `word` and the time, that no database, log or index uses."""
    stem = f"{file.name}.{word}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 0
    while True:
        name = stem if number == 0 else f"{stem}-{number}"
        if not any(file.with_name(name + suffix).exists() for suffix in ("", *BESIDE)):
            return file.with_name(name)
        number += 1


def beside(file: Path, suffix: str) -> Path:
    """Return the path of a database's log or index; of the database itself for an empty suffix."""
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
