"""The database of rooms: one small interface over SQLite (one machine) and PostgreSQL (several nodes).

`intercom.store.rooms` has the queries. They run in a `work`: a function that a `RoomStore` calls with a
`RoomsDatabase`, in a transaction (`transact`) or on a snapshot (`read`). `SqliteRooms` is the store for one machine;
`intercom.store.postgres` has the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from actors import ChildSpec, System
from intercom.model.metrics import Measured, unmeasured
from intercom.store import room_schema
from intercom.store.database import BUSY_SECONDS, Fault, OpenedDatabase
from intercom.store.rows import Values
from intercom.store.store_and_reader import Reader, Store
from intercom.store.writer import Writer
from intercom.store.writer_messages import Database, Inspect

R = TypeVar("R")


class Dialect(Enum):
    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


class Cursor(Protocol):
    """The result of a statement. `rowcount` says how many rows a write changed."""

    @property
    def rowcount(self) -> int: ...

    @property
    def description(self) -> Sequence[Sequence[object]] | None: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class RoomsDatabase(Protocol):
    """A connection in a transaction, as a work gets it.

    Parameters are `?` or `:name` on both databases, so a statement has no other question mark or colon: it casts with
    `cast(... as ...)`. All columns come back as str, int or None: a time, a UUID and JSON as text.
    """

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, sql: str, values: Values = (), /) -> Cursor: ...


class RoomStore(Protocol):
    """Where rooms are stored. Its works are synchronous, quick, and must not begin, commit or roll back."""

    @property
    def dialect(self) -> Dialect: ...

    def children(self) -> Sequence[ChildSpec]:
        """Return the actors that the store consists of, in start order."""

    async def transact(self, room_id: str, work: Callable[[RoomsDatabase], R]) -> R:
        """Run `work(db)` in one transaction and return its result, which is on disk then.

        If the connection or the writer fails, the work runs again, also if its first run was committed. It must
        therefore be safe to repeat: every write carries an id that was made before.

        Raises what the work refuses (RoomRefused), DatabaseError if nothing was written, and StoreUnavailable if it is
        not known whether the work was done.
        """

    async def read(self, work: Callable[[RoomsDatabase], R]) -> R:
        """Run `work(db)` on one consistent snapshot and return its result. Raises DatabaseError."""

    def wake(self, room_ids: Collection[str]) -> None:
        """Tell the other nodes that these rooms have new messages. Returns at once; a notification may be lost."""

    def on_wake(self, call: Callable[[str], object]) -> None:
        """Have `call` called with the id of each room that another node woke; with "" if it may be any room."""


# --- SQLite ----------------------------------------------------------------------------------------------------------

#: The name of the actor that writes the rooms' SQLite file.
WRITER = "rooms-store"


class SqliteDatabase:
    """A SQLite connection as a `RoomsDatabase`."""

    __slots__ = ("_connection",)
    dialect = Dialect.SQLITE

    def __init__(self, db: Database) -> None:
        # Not through the library: its `execute` looks at the transaction before and after each statement.
        self._connection = db.conn

    def execute(self, sql: str, values: Values = (), /) -> Cursor:
        return self._connection.execute(sql, values)


class SqliteRooms:
    """Rooms in the SQLite file at `path`, for one machine: a writer that commits for all rooms, and readers.

    `children` must run in `system` before anything is read. The callbacks are those of `Writer`. Nobody else writes the
    file, so there is nobody to wake.
    """

    dialect = Dialect.SQLITE

    def __init__(
        self,
        path: str | os.PathLike[str],
        system: System,
        *,
        on_opened: Callable[[OpenedDatabase], None] | None = None,
        busy_seconds: float = BUSY_SECONDS,
        measured: Measured = unmeasured,
        on_fault: Callable[[Fault], object] = lambda _fault: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.path = Path(path)
        self._store = Store(system.named(WRITER))
        self._reader = Reader(self.path, busy_seconds=busy_seconds)
        self._writer = partial(
            Writer,
            self.path,
            on_opened=on_opened,
            busy_seconds=busy_seconds,
            measured=measured,
            on_fault=on_fault,
            now=now,
            migrations=room_schema.SQLITE,
            newest_entry=room_schema.newest_message,
        )

    def children(self) -> Sequence[ChildSpec]:
        return (ChildSpec(WRITER, self._writer, shutdown=10.0),)

    async def transact(self, room_id: str, work: Callable[[RoomsDatabase], R]) -> R:
        return await self._store.transact(lambda db: work(SqliteDatabase(db)))

    async def read(self, work: Callable[[RoomsDatabase], R]) -> R:
        return await self._reader.read(lambda db: work(SqliteDatabase(db)))

    def wake(self, room_ids: Collection[str]) -> None:
        pass

    def on_wake(self, call: Callable[[str], object]) -> None:
        pass

    def inspect(self) -> None:
        """Have the writer check whether other programs removed, replaced or cut the file."""
        self._store.tell(Inspect())

    def close(self) -> None:
        """Close the readers' connections. Later reads raise DatabaseError."""
        self._reader.close()
