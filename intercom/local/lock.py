"""Locks that allow one server per database. The system releases them when their holder ends for any reason.

The lock file beside the database works even before the database exists. File cleaners may remove it, and another
process could then create and lock it again. So the holder recreates it, and also holds a second lock on the database
itself.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from types import TracebackType

import attrs

from intercom.model.errors import IntercomError

log = logging.getLogger("intercom")

#: Whether `flock` locks are independent of the `fcntl` locks that SQLite takes on the same file.
_APART = sys.platform.startswith("linux")


@attrs.frozen
class Holder:
    """The server that has the lock: process id and version. They are None and "" while it is taking the lock."""

    pid: int | None
    version: str


class DatabaseLocked(IntercomError):
    """Another server has the database; `holder` identifies it."""

    code = "db"

    def __init__(self, message: str, holder: Holder) -> None:
        super().__init__(message, holder_pid=holder.pid)
        self.holder = holder


class DatabaseLock:
    """A lock that is held until `release`, the end of the `with` block, or the end of the process."""

    def __init__(
        self, path: str, descriptor: int, database: str, on_database: int, version: str, runtime_dir: str
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._database = database
        self._on_database = on_database
        self._version = version
        self._runtime_dir = runtime_dir

    def release(self) -> None:
        """Release the lock. A second call has no effect. The file stays: without it there could be two holders."""
        for descriptor in (self._on_database, self._descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._on_database = -1

    def renew(self) -> bool:
        """Recreate the lock file if it was removed or replaced, and lock the database file if that is a different one
        now. Returns whether anything was done. If another program holds the new lock file at this moment, the next call
        tries again. Raises OSError if the file cannot be created, for example in a directory that is gone."""
        if self._descriptor < 0:
            return False
        renewed = False
        if _identity(self.path) != _identity(self._descriptor):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _sign(descriptor, self._version, self._runtime_dir)
            except BlockingIOError:
                os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            else:
                os.close(self._descriptor)
                self._descriptor = descriptor
                renewed = True
                log.warning("the lock file %s was gone; it is there again", self.path)
        if _identity(self._database) != _identity(self._on_database):
            found = _lock_database(self._database)
            if found >= 0:
                # The old descriptor belongs to another file, so closing it ends no SQLite lock on this one.
                if self._on_database >= 0:
                    os.close(self._on_database)
                self._on_database = found
                renewed = True
        return renewed

    def __enter__(self) -> DatabaseLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(database: str | os.PathLike[str], *, version: str, runtime_dir: str = "") -> DatabaseLock:
    """Take the lock of `database`, a path. The file need not exist, but its directory must.

    `version` is stored for processes that find the lock taken, and `runtime_dir`, the directory of the server's
    sockets, for those whose environment names another (`places.recorded`). Raises DatabaseLocked if another process has
    it, and OSError if the file cannot be opened (no permission, read-only).
    """
    path = lock_path(database)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor)
        # Only with the first lock: closing this file in a process that has the database open would end SQLite's locks.
        on_database = _lock_database(os.path.realpath(database))
        _sign(descriptor, version, runtime_dir)
    except BlockingIOError:
        found = _read(descriptor)
        os.close(descriptor)
        who = f"server {found.version} (process {found.pid})" if found.pid else "server"
        raise DatabaseLocked(
            f"another agent-intercom {who} uses {os.fspath(database)}: use that one, stop it, "
            "or give this one another [database] path",
            found,
        ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return DatabaseLock(path, descriptor, os.path.realpath(database), on_database, version, runtime_dir)


def holder(database: str | os.PathLike[str]) -> Holder | None:
    """Return the current holder of the lock of `database`, or None."""
    try:
        descriptor = os.open(lock_path(database), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
    return None


def end_holder(
    database: str | os.PathLike[str], *, seconds: float, asking: Callable[[Holder], object] = lambda server: None
) -> Holder | None:
    """Ask the server that has the lock of `database` to stop, and wait until it has: it finishes what it does, and what
    waits stays pending. `asking` is called with it just before. Returns that server; None if there was none. Raises
    DatabaseLocked if it still runs after so many seconds or may not be asked, and OSError if the lock cannot be
    read."""
    deadline = time.monotonic() + seconds
    asked: Holder | None = None
    while (found := holder(database)) is not None and (asked is None or found == asked):
        if asked is None and found.pid is not None:
            asking(found)
            _ask_to_stop(found, found.pid)
            asked = found
        if time.monotonic() >= deadline:
            who = f"the server (process {found.pid})" if found.pid else "a starting server"
            raise DatabaseLocked(f"{who} did not stop within {seconds:.0f} s: look at its log", found)
        time.sleep(0.05)
    return asked


def _ask_to_stop(server: Holder, pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        # It has just ended, or it is in another container.
        pass
    except PermissionError:
        raise DatabaseLocked(f"the server (process {pid}) may not be stopped by this user", server) from None


def lock_path(database: str | os.PathLike[str]) -> str:
    """Return the path of the lock file. It is beside the real database, so two names of one database share it."""
    return os.path.realpath(database) + ".lock"


def _lock(descriptor: int) -> None:
    # `holder` takes the lock for a moment, and must not be mistaken for a server.
    for _ in range(5):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_database(database: str) -> int:
    """Lock the database file itself. Return -1 if it does not exist or cannot be locked. Raises BlockingIOError if
    another process has that lock."""
    if not _APART:
        return -1
    try:
        descriptor = os.open(database, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1  # the code that opens the database reports the reason
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _sign(descriptor: int, version: str, runtime_dir: str) -> None:
    os.ftruncate(descriptor, 0)
    signed = {"pid": os.getpid(), "version": version, "runtime_dir": runtime_dir}
    os.pwrite(descriptor, json.dumps(signed).encode(), 0)


def _identity(file: str | int) -> tuple[int, int] | None:
    """Which file this is; None for one that is not there."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _read(descriptor: int) -> Holder:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        # 0 and below would be groups of processes.
        if (pid := int(found["pid"])) > 0:
            return Holder(pid, str(found["version"]))
    except (ValueError, KeyError, TypeError):
        pass
    return Holder(None, "")
