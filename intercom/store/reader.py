"""Reads concurrent with the writer: worker threads with their own read-only connections."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TypeVar

import trio

from intercom.model.errors import DatabaseError
from intercom.store import database
from intercom.store.database import BUSY_SECONDS, Database, connect

R = TypeVar("R")

#: How many reads run at once; others wait.
CONNECTIONS = 4
#: The page cache of a connection, in KiB. It is small because every write invalidates it and its pages fragment the
#: heap; the operating system caches the file anyway.
_CACHE = 256
#: How long an idle connection stays open, in seconds. Each takes half a megabyte, and one or two usually suffice.
IDLE_SECONDS = 10.0


class Reader:
    """Runs reads on the database at `path`, which the writer must have opened first. A read sees everything
    committed before it began, and one consistent state across all its queries."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        connections: int = CONNECTIONS,
        busy_seconds: float = BUSY_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._path = Path(path)
        self._busy_seconds = busy_seconds
        self._connections = connections
        self._idle_seconds = idle_seconds
        self._limit: trio.CapacityLimiter | None = None
        # (connection, inode, idle since); a stack, so that surplus connections grow old at the front.
        self._idle: list[tuple[Database, int, float]] = []
        self._lock = Lock()
        self._closed = False

    @property
    def path(self) -> Path:
        """The database file."""
        return self._path

    async def read(self, work: Callable[[Database], R]) -> R:
        """Run `work(db)` in a worker thread and return its result.

        `work` must be quick, because a cancelled read still runs to its end. Raises what `work` raised, and
        DatabaseError if the database cannot be read or the reader is closed.
        """
        if self._limit is None:
            self._limit = trio.CapacityLimiter(self._connections)
        return await trio.to_thread.run_sync(self.read_sync, work, limiter=self._limit)

    def read_sync(self, work: Callable[[Database], R]) -> R:
        """Do the same in the calling thread, for callers without an event loop."""
        try:
            db, inode = self._take()
            try:
                db.execute("begin")
                result = work(db)
                db.rollback()
            except BaseException:
                db.close()
                raise
        except sqlite3.Error as error:
            refused = database.refusal(error, self._path)
            if refused is None:
                raise
            raise refused from error
        self._give_back(db, inode)
        return result

    def close(self) -> None:
        """Close all connections; those in use close when their read ends. Later reads raise DatabaseError."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db, *_ in idle:
            db.close()

    def _take(self) -> tuple[Database, int]:
        inode = self._inode()
        while True:
            with self._lock:
                if self._closed:
                    raise DatabaseError("the database is closed; the server is stopping")
                found = self._idle.pop() if self._idle else None
            if found is None:
                break
            # Do not read a file that was moved aside.
            if found[1] == inode:
                return found[0], inode
            found[0].close()
        db = connect(self._path, busy_seconds=self._busy_seconds, any_thread=True)
        db.execute("pragma query_only = on")
        db.execute(f"pragma cache_size = -{_CACHE}")
        return db, inode

    def _give_back(self, db: Database, inode: int) -> None:
        now = monotonic()
        surplus = [db]
        with self._lock:
            if not self._closed and len(self._idle) < self._connections:
                self._idle.append((db, inode, now))
                surplus.clear()
            while self._idle and now - self._idle[0][2] > self._idle_seconds:
                surplus.append(self._idle.pop(0)[0])
        for each in surplus:
            each.close()

    def _inode(self) -> int:
        try:
            return os.stat(self._path).st_ino
        except OSError as error:
            raise DatabaseError(
                f"the database {self._path} cannot be read ({(error.strerror or str(error)).lower()});"
                " restart the server, which makes it anew"
            ) from error
