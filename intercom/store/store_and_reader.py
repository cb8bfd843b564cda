"""The two handles by which the server uses the store: `Store` asks its writer, `Reader` reads beside it.

A transaction fails in one of three ways. The work refuses (IntercomError, Refused): it alone was undone. The database
cannot be written (DatabaseError): nothing was written. The writer does not answer (StoreUnavailable): whether the work
was done is not known. `STORE_FAULTS` are the last two, in which the work is not at fault and may be asked for again.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TypeVar

import trio
from attrs import frozen

from actors import Busy, Down, Name, NotRunning, ask
from intercom.model.errors import DatabaseError
from intercom.store import database
from intercom.store.database import BUSY_SECONDS, connect
from intercom.store.writer_messages import Database, Inspect, Touch, Transact

R = TypeVar("R")

#: How long a transaction may take, in seconds. A writer that crashed is running again well within it.
TRANSACTION_SECONDS = 30.0
#: The same for transactions that write or delete much: checkpoints, and what is deleted by age.
LARGE_TRANSACTION_SECONDS = 60.0
#: The same for a look whether the writer works. It is short, because somebody waits for the answer.
PROBE_SECONDS = 2.0


class StoreUnavailable(Exception):
    """The writer did not answer. The message says what to do.

    It is no IntercomError: an actor that gets it crashes, and reads from the database what was done.
    """


STORE_FAULTS = (DatabaseError, StoreUnavailable)


@frozen
class Store:
    """The store. `writer` names the actor that owns the database."""

    writer: Name

    async def transact(
        self, work: Callable[[Database], R], *, timeout: float = TRANSACTION_SECONDS, retry: bool = True
    ) -> R:
        """Run `work(db)` in one transaction and return its result, which is on disk then.

        If the writer crashes, the next one runs the work again, also if its first run was committed. If the work is not
        safe to repeat, set `retry` to False. See `Transact` for what `work` may do.

        Raises what the work refuses, DatabaseError, and StoreUnavailable.
        """
        try:
            return await ask(self.writer, Transact(work), timeout=timeout, retry=retry)
        except Busy as fault:
            raise StoreUnavailable("too much waits to be recorded, and this was not; try again shortly") from fault
        except trio.TooSlowError as fault:
            raise StoreUnavailable(
                f"the database has not recorded this within {timeout:g} seconds, and may still do it:"
                " check before you try again"
            ) from fault
        except (Down, NotRunning) as fault:
            raise StoreUnavailable(
                "the part of the server that writes the database is restarting, and this may not be recorded:"
                " check, and try again if it is not"
            ) from fault

    def transact_soon(self, work: Callable[[Database], object]) -> None:
        """Have `work(db)` run in one of the next transactions, without waiting. If it fails, nobody is told."""
        self.writer.tell(Transact(work))

    def tell(self, message: Touch | Inspect) -> None:
        """Notify the writer, without waiting."""
        self.writer.tell(message)


# --- reads -----------------------------------------------------------------------------------------------------------

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
        self._searching = trio.Lock()
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

    async def search(self, work: Callable[[Database], R]) -> R:
        """Do the same for work that looks through whole tables, one at a time: anybody may search, as often as they
        like, and what people decide about must be read meanwhile."""
        async with self._searching:
            return await self.read(work)

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
            if (refused := database.refusal(error, self._path)) is None:
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
                " restart the server, which creates a new one"
            ) from error
