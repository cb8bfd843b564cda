"""The database file: made private, checked, migrated, and kept from what other programs do to it.

A damaged file is moved aside and never deleted. SQLite keeps working on files that were removed or replaced: its
commits are on disk but are lost with the process. The files are therefore checked after each commit and every few
seconds. While the connection still holds everything, its contents are copied and put back in place. A file that was cut
or overwritten is not trusted but moved aside.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from attrs import evolve, frozen
from sqlite_utils import Database as Database

from intercom.model.errors import DatabaseError
from intercom.store import requests, rows
from intercom.store.schema import LATEST, MIGRATIONS, Migration, migrate, require_known, version

# --- errors ----------------------------------------------------------------------------------------------------------

_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_FORBIDDEN = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DAMAGE = "the database {path} is damaged; restart the server, which moves it aside and creates a new one"

#: What is wrong and what to do, by primary error code.
_REFUSALS = {
    **dict.fromkeys(_LOCKED, "the database {path} is locked by another program; close that program and try again"),
    sqlite3.SQLITE_FULL: "the disk of the database {path} is full; free some space and try again, nothing was written",
    **dict.fromkeys(
        _FORBIDDEN,
        "no permission to write the database {path}; make the file and its directory writable for this user",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the database {path} cannot be opened; check that its directory exists and this user may write there"
    ),
    sqlite3.SQLITE_IOERR: "the disk of the database {path} failed while reading or writing ({error}); check the disk",
    **dict.fromkeys(_DAMAGED, _DAMAGE),
}


def refusal(error: sqlite3.Error, path: Path) -> DatabaseError | None:
    """Return the error that tells people what is wrong with the database at `path` and what to do. Returns None if
    the query is at fault, not the database: that is a bug in the program."""
    text = _REFUSALS.get(_primary(error))
    return None if text is None else DatabaseError(text.format(path=path, error=error), path=str(path))


def damaged(error: sqlite3.Error) -> bool:
    """Whether the error says that the file is not a sound database."""
    return _primary(error) in _DAMAGED


def lasting(error: sqlite3.Error) -> bool:
    """Whether the error (no space, no permission, no disk) persists until somebody repairs the cause."""
    return _primary(error) in _REFUSALS.keys() - {*_LOCKED, *_DAMAGED}


def _primary(error: sqlite3.Error) -> int:
    # Extended codes keep the primary code in the low byte.
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


# --- opening ---------------------------------------------------------------------------------------------------------

#: Seconds a statement waits for another program's lock.
BUSY_SECONDS = 5.0

#: The suffixes of a database's log and index.
COMPANIONS = ("-wal", "-shm")


@frozen
class OpenedDatabase:
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
) -> OpenedDatabase:
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
            moved = set_aside(file, aside)
            make_private(file)
            db = _sound(file, busy_seconds, aside)
        try:
            backed_up = _upgrade(db, file, now(), migrations)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        if (refused := refusal(error, file)) is None:
            raise
        raise refused from error
    return OpenedDatabase(db, moved, backed_up)


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
        with closing(sqlite3.connect(target)) as copy:
            db.conn.backup(copy)
            # The copy inherits WAL mode; leave one self-contained file.
            copy.execute("pragma journal_mode = delete")
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
        if not is_sound(db):
            raise _damage("the pages of the database are not consistent")
    except BaseException as error:
        log = companion(file, "-wal")
        if isinstance(error, sqlite3.Error) and damaged(error) and log.exists():
            # Closing the last connection deletes the log, which may hold what the file has lost.
            shutil.copyfile(log, companion(aside, "-wal"))
            companion(aside, "-wal").chmod(0o600)
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


def is_sound(db: Database | sqlite3.Connection) -> bool:
    """Whether the pages of a database hang together."""
    return bool(db.execute("pragma quick_check(1)").fetchone()[0] == "ok")


def _damage(text: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(text)
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


def move_aside(file: Path) -> Path:
    """Move a damaged database, its log and its index to a free name beside it. Returns that name."""
    return set_aside(file, free_name(file, "damaged", datetime.now(UTC)))


def set_aside(file: Path, target: Path) -> Path:
    """Rename a database, its log and its index. Returns the new name. Raises OSError."""
    # Move the log first: if a crash left it here, SQLite could take it for that of the new database.
    for suffix in (*COMPANIONS, ""):
        if os.path.lexists(companion(file, suffix)):
            companion(file, suffix).rename(companion(target, suffix))
    return target


def free_name(file: Path, word: str, at: datetime) -> Path:
    """Return a name beside `file`, with `word` and the time, that no database, log or index uses."""
    stem = f"{file.name}.{word}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 0
    while True:
        name = stem if number == 0 else f"{stem}-{number}"
        if not any(file.with_name(name + suffix).exists() for suffix in ("", *COMPANIONS)):
            return file.with_name(name)
        number += 1


def companion(file: Path, suffix: str) -> Path:
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


# --- what other programs do to the files -----------------------------------------------------------------------------

_LOG, _INDEX = COMPANIONS
#: Free bytes below which a commit is expected to fail.
_LEAST_FREE = 1024 * 1024
#: The end of the name of a copy: its time, and a number if there are several of that second.
_MOVED_AT = re.compile(r"-(\d{8}T\d{6}Z)(?:-(\d+))?$")


@frozen
class Fault:
    """What happened to the database, in a sentence for people. After a `fatal` fault nothing can be saved, and the
    server has to end."""

    text: str
    level: str = "error"
    fatal: bool = False


@frozen
class Files:
    """The files at a database's path: (device, inode) of the database, its log and its index, None if absent. `size`
    is in bytes and `changed` is the modification time in nanoseconds; both are of the database."""

    database: tuple[int, int] | None
    log: tuple[int, int] | None
    index: tuple[int, int] | None
    size: int = 0
    changed: int = 0


@frozen
class Disturbance:
    """What was done to the files. `whole`: the open connection still holds everything that was committed."""

    what: str
    whole: bool


def look(path: Path) -> Files:
    """Return the present state of the files."""
    # This runs after every commit, so plain strings are used instead of new Path objects.
    database, log, index = _stat(str(path)), _stat(f"{path}{_LOG}"), _stat(f"{path}{_INDEX}")
    return Files(
        _identity(database),
        _identity(log),
        _identity(index),
        size=0 if database is None else database.st_size,
        changed=0 if database is None else database.st_mtime_ns,
    )


def disturbance(opened: Files, now: Files) -> Disturbance | None:
    """Return what was done to the files since they were `opened`, or None. A log or index that was absent then may
    be created later."""
    if now.database is None:
        return Disturbance("was removed", whole=True)
    if now.database != opened.database:
        return Disturbance("was replaced by another file", whole=True)
    for known, found, name in ((opened.log, now.log, _LOG), (opened.index, now.index, _INDEX)):
        if known is not None and found != known:
            return Disturbance(f"lost its {name} file", whole=True)
    if now.size < opened.size:
        return Disturbance(f"was cut from {opened.size} to {now.size} bytes", whole=False)
    return None


def newest_entry(db: Database) -> int:
    """Return the id of the newest audit entry, 0 if there is none."""
    return rows.count(db, "select coalesce(max(id), 0) from audit")


def unsound(
    path: Path,
    last: int,
    *,
    thorough: bool,
    latest: int = LATEST,
    newest_entry: Callable[[Database], int] = newest_entry,
) -> Disturbance | None:
    """Return what is wrong with a file that was written, or None.

    Checks that its schema is `latest`, that its `newest_entry` is not below `last` and, if `thorough`, all its pages.
    Reads through a separate connection, because the writer's may have cached pages. A file descriptor must not be used:
    closing one drops this process's locks on the file.
    """
    try:
        with closing(connect(path)) as db:
            sound = not thorough or is_sound(db)
            kept = newest_entry(db) if version(db) == latest else -1
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "open" in str(error):
            return None  # checked again at the next look
        sound, kept = False, 0
    except sqlite3.DatabaseError:
        sound, kept = False, 0
    if not sound:
        return Disturbance("was overwritten, and its pages are not consistent any more", whole=False)
    if kept < last:
        return Disturbance("was overwritten with other contents", whole=False)
    return None


def rescue(db: Database, path: Path, at: datetime) -> Path | None:
    """Copy everything committed through the open connection and put the copy in place.

    A file that is there is moved aside first, never deleted; returns its new name. The connection must have no open
    transaction. Close it afterwards, because it still writes to the old files.

    Raises DatabaseError, sqlite3.Error or OSError. Then nothing at `path` has changed, except that a file may have been
    moved aside, and the connection still holds everything.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        # This also creates an empty file, which would be moved aside as if it were a database.
        make_private(path)
        path.unlink()
    draft = path.with_name(f"{path.name}.rescued-{os.getpid()}")
    draft.unlink(missing_ok=True)
    backup(db, draft)
    try:
        with closing(sqlite3.connect(draft)) as copy:
            if not is_sound(copy):
                raise sqlite3.DatabaseError("what the open connection holds is not consistent")
        _to_disk(draft)
        aside = None
        if any(os.path.lexists(companion(path, suffix)) for suffix in ("", *COMPANIONS)):
            aside = free_name(path, "replaced", at)
            set_aside(path, aside)
        os.rename(draft, path)
        _to_disk(path.parent)
        return aside
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def shortages(path: Path) -> tuple[str, str]:
    """Return the texts that `shortage` can return for the database at `path`."""
    return (
        f"the file system of the database {path} is read-only: nothing can be saved until it can be written",
        f"the disk of the database {path} is full: nothing can be saved until there is space",
    )


def shortage(path: Path) -> str | None:
    """Return why the file system at `path` cannot be written, or None."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        # A missing directory is reported as a disturbance of the file.
        return None
    read_only, full = shortages(path)
    if found.f_flag & os.ST_RDONLY:
        return read_only
    return full if found.f_bavail * found.f_frsize < _LEAST_FREE else None


# The message of a server that ends, for the next one.


def write_incident(path: Path, text: str, at: datetime) -> None:
    """Write a message for the next server into a file beside the database. Errors are ignored."""
    try:
        file = _incident_file(path)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump({"text": text, "at": at.astimezone(UTC).isoformat()}, out)
    except OSError:
        return  # the fault is also reported in other ways


def take_incident(path: Path) -> str | None:
    """Read and delete the message of an earlier server; None if there is none."""
    file = _incident_file(path)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as found:
            said = json.loads(found.read(10_000))
        file.unlink()
        return f"{said['text']} (noticed {str(said['at'])[:19]} UTC)"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def damaged_copies(path: Path) -> list[Path]:
    """Return the databases that were moved aside from `path`, oldest first."""
    try:
        names = [each for word in ("damaged", "replaced") for each in path.parent.glob(f"{path.name}.{word}-*")]
    except OSError:
        return []
    return sorted((each for each in names if not each.name.endswith(COMPANIONS)), key=_moved_at)


def _moved_at(copy: Path) -> tuple[str, int]:
    """Return the time in a copy's name, and its number among those of the same second."""
    found = _MOVED_AT.search(copy.name)
    return ("", 0) if found is None else (found[1], int(found[2] or 0))


def _incident_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.incident")


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _identity(found: os.stat_result | None) -> tuple[int, int] | None:
    return None if found is None else (found.st_dev, found.st_ino)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@frozen
class Health:
    """The result of a check.

    `version` is the schema's (0: none yet, None: unreadable) and `latest` the one this program knows. `size` is in
    bytes, with what is only in its log yet. `sessions` counts those not terminated, `requests` those pending. `fault`
    says what is wrong and what to do, or None.
    """

    path: Path
    exists: bool
    version: int | None = None
    latest: int = LATEST
    size: int = 0
    sessions: int = 0
    requests: int = 0
    fault: str | None = None


def check(path: str | os.PathLike[str], *, busy_seconds: float = 1.0) -> Health:
    """Check the database at `path` without creating, upgrading or moving anything. Faults are in the result."""
    file = Path(path)
    try:
        size = file.stat().st_size
        with suppress(FileNotFoundError):
            size += companion(file, "-wal").stat().st_size
    except FileNotFoundError:
        return Health(file, exists=False)
    except OSError as error:
        fault = f"the database {file} cannot be looked at ({_reason(error)}); check the path"
        return Health(file, exists=True, fault=fault)
    health = Health(file, exists=True, size=size)
    try:
        with closing(connect(file, busy_seconds=busy_seconds)) as db:
            db.execute("pragma query_only = on")
            health = evolve(health, version=version(db))
            require_known(health.version or 0)
            if not is_sound(db):
                return evolve(health, fault=_DAMAGE.format(path=file))
            if health.version != LATEST:
                return health
            live = rows.count(db, "select count(*) from session where status <> 'terminated'")
            return evolve(health, sessions=live, requests=requests.waiting(db))
    except DatabaseError as refused:
        return evolve(health, fault=str(refused))
    except sqlite3.Error as error:
        return evolve(health, fault=str(refusal(error, file) or error))
