"""One server per database: a lock beside it, which the system drops however its holder ends."""

from __future__ import annotations

import fcntl
import json
import os
import time
from types import TracebackType

import attrs

from intercom.model.errors import IntercomError


@attrs.frozen
class Holder:
    """Who has the lock: process id and version of its server; 0 and "" while it is just taking it."""

    pid: int
    version: str


class DatabaseLocked(IntercomError):
    """Another server has the database; `holder` says which."""

    code = "db"

    def __init__(self, message: str, holder: Holder) -> None:
        super().__init__(message, holder_pid=holder.pid)
        self.holder = holder


class DatabaseLock:
    """Held until `release`, the end of the `with` block, or the end of the process."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the lock back; doing so twice does no harm. The file stays: removing it would let two hold one lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DatabaseLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire(database: str | os.PathLike[str], *, version: str) -> DatabaseLock:
    """Take the lock of `database` (a path; the file need not exist, its directory must).

    `version` is written down for whoever finds the lock taken. Raises DatabaseLocked when another process has it, and
    OSError when the file can not be opened (no permission, read-only).
    """
    path = lock_path(database)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "version": version}).encode(), 0)
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
    return DatabaseLock(path, descriptor)


def holder(database: str | os.PathLike[str]) -> Holder | None:
    """Say who has the lock of `database` now; None when nobody has."""
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


def lock_path(database: str | os.PathLike[str]) -> str:
    """Name the lock's file: beside the database itself, so that two names for one database share it."""
    return os.path.realpath(database) + ".lock"


def _lock(descriptor: int) -> None:
    # `holder` locks for a moment to see whether it can, and must not be mistaken for a server.
    for _ in range(5):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _read(descriptor: int) -> Holder:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return Holder(int(found["pid"]), str(found["version"]))
    except (ValueError, KeyError, TypeError):
        return Holder(0, "")
