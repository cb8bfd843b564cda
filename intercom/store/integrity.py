"""Notices what other programs do to the database's files, and keeps its contents.

SQLite keeps working on files that were removed or replaced: its commits are on disk but are lost with the process. The
files are therefore checked after each commit and every few seconds. While the connection still holds everything, its
contents are copied and put back in place. A file that was cut or overwritten is not trusted but moved aside.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from intercom.model.errors import DatabaseError
from intercom.store import database, requests, rows
from intercom.store.database import BESIDE, Database, backup, beside, connect, free_name, make_private
from intercom.store.schema import LATEST, require_known, version

_LOG, _INDEX = BESIDE
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


def unsound(path: Path, last: int, *, thorough: bool) -> Disturbance | None:
    """Return what is wrong with a file that was written, or None.

    Checks that its newest audit entry is not older than `last` and, if `thorough`, all its pages. Reads through a
    separate connection, because the writer's may have cached pages. A file descriptor must not be used: closing one
    drops this process's locks on the file.
    """
    try:
        db = connect(path)
        try:
            sound = not thorough or db.execute("pragma quick_check(1)").fetchone()[0] == "ok"
            kept = newest_entry(db) if version(db) == LATEST else -1
        finally:
            db.close()
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "open" in str(error):
            return None  # checked again at the next look
        sound, kept = False, 0
    except sqlite3.DatabaseError:
        sound, kept = False, 0
    if not sound:
        return Disturbance("was overwritten, and its pages do not hang together any more", whole=False)
    if kept < last:
        return Disturbance("was overwritten with other contents", whole=False)
    return None


def newest_entry(db: Database) -> int:
    """Return the id of the newest audit entry, 0 if there is none."""
    found = db.execute("select max(id) from audit").fetchone()[0]
    return int(found or 0)


def rescue(db: Database, path: Path, at: datetime) -> Path | None:
    """Copy everything committed through the open connection and put the copy in place.

    A file that is there is moved aside first, never deleted; returns its new name. The connection must have no open
    transaction. Close it afterwards, because it still writes to the old files.

    Raises DatabaseError, sqlite3.Error or OSError. Then nothing at `path` has changed, except that a file may have been
    moved aside, and the connection still holds everything.
    """
    path = Path(os.path.realpath(path))
    make_parents(path)
    draft = path.with_name(f"{path.name}.rescued-{os.getpid()}")
    draft.unlink(missing_ok=True)
    backup(db, draft)
    try:
        copy = sqlite3.connect(draft)
        try:
            if copy.execute("pragma quick_check(1)").fetchone()[0] != "ok":
                raise sqlite3.DatabaseError("what the open connection holds does not hang together")
        finally:
            copy.close()
        _to_disk(draft)
        aside = None
        if any(os.path.lexists(beside(path, suffix)) for suffix in ("", *BESIDE)):
            aside = free_name(path, "replaced", at)
            set_aside(path, aside)
        os.rename(draft, path)
        _to_disk(path.parent)
        return aside
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def set_aside(path: Path, target: Path) -> None:
    """Rename a database, its log and its index within its directory. Raises OSError."""
    path = Path(os.path.realpath(path))
    for suffix in (*BESIDE, ""):
        if os.path.lexists(beside(path, suffix)):
            os.rename(beside(path, suffix), beside(target, suffix))


def make_parents(path: Path) -> None:
    """Create the missing directories above a database. Raises DatabaseError."""
    if path.parent.is_dir():
        return
    # make_private also creates an empty file, which `rescue` would move aside as if it were a database.
    make_private(path)
    path.unlink()


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


def kept_copies(path: Path) -> list[Path]:
    """Return the databases that were moved aside from `path`, oldest first."""
    try:
        names = [each for word in ("damaged", "replaced") for each in path.parent.glob(f"{path.name}.{word}-*")]
    except OSError:
        return []
    return sorted((each for each in names if not each.name.endswith(BESIDE)), key=_moved_at)


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
    bytes. `sessions` counts those not terminated, `requests` those pending. `fault` says what is wrong and what to do,
    or None.
    """

    path: Path
    exists: bool
    version: int | None = None
    latest: int = LATEST
    size: int = 0
    sessions: int = 0
    requests: int = 0
    fault: str | None = None


def examine(path: str | os.PathLike[str], *, busy_seconds: float = 1.0) -> Health:
    """Check the database at `path` without creating, upgrading or moving anything. Faults are in the result."""
    file = Path(path)
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return Health(file, exists=False)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return Health(file, exists=True, fault=f"the database {file} cannot be looked at ({reason}); check the path")
    try:
        return _look(file, size, busy_seconds)
    except DatabaseError as refused:
        return Health(file, exists=True, size=size, fault=str(refused))
    except sqlite3.Error as error:
        fault = database.refusal(error, file) or error
        return Health(file, exists=True, size=size, fault=str(fault))


def _look(file: Path, size: int, busy_seconds: float) -> Health:
    db = connect(file, busy_seconds=busy_seconds)
    try:
        db.execute("pragma query_only = on")
        found = version(db)
        try:
            require_known(found)
        except DatabaseError as refused:
            return Health(file, exists=True, version=found, size=size, fault=str(refused))
        if db.execute("pragma quick_check(1)").fetchone()[0] != "ok":
            fault = f"the database {file} is damaged; restart the server, which moves it aside and begins a new one"
            return Health(file, exists=True, version=found, size=size, fault=fault)
        if found < LATEST:
            return Health(file, exists=True, version=found, size=size)
        waiting = requests.waiting(db)
        live = rows.count(db, "select count(*) from session where status <> 'terminated'")
        return Health(file, exists=True, version=found, size=size, sessions=live, requests=waiting)
    finally:
        db.close()
