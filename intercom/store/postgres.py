"""Rooms in PostgreSQL, for any number of nodes: actors that own connections, and wake-ups between the nodes.

Each write is a transaction of its own, on the connection that its room's id selects, so the writes of one room do not
wait for each other's locks. Reads have other connections. If the server or a connection dies, the work is run again on
a new connection. That is safe because works are safe to repeat, and necessary because an answer to COMMIT may be lost.

Wake-ups are notifications of PostgreSQL. They are never sent in the transaction of a write: a transaction that notifies
takes a lock of the whole server while it commits. docs/explanation/decisions/rooms-postgresql.md says more.

This module and `postgres_connection` are the only ones that import psycopg. Others import them lazily, when there is a
PostgreSQL to use.
"""

from __future__ import annotations

import functools
import json
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import ClassVar, Generic, TypeVar
from zlib import crc32

import psycopg
import trio
from attrs import frozen
from psycopg.rows import TupleRow

from actors import Actor, Busy, ChildSpec, Down, NotRunning, Refused, Request, System, ThreadActor, ask
from intercom.model.errors import DatabaseError, IntercomError
from intercom.model.metrics import Committed, Measured, unmeasured
from intercom.store import room_schema, rows
from intercom.store.postgres_connection import Connection, Readers, TryAgain, Unreachable

# Re-exported: those who use the store import them from here.
from intercom.store.postgres_connection import PostgresDatabase as PostgresDatabase
from intercom.store.postgres_connection import Server as Server
from intercom.store.room_database import Dialect, RoomsDatabase
from intercom.store.store_and_reader import TRANSACTION_SECONDS, StoreUnavailable

R = TypeVar("R")

logger = logging.getLogger("intercom.store")

#: How many rooms of a node are written, and how many reads run, at once. Others wait.
WRITERS = 4
READERS = 4
#: How long a read may take, in seconds: long enough for a restart of the server.
READ_SECONDS = 10.0
#: How long the start waits for a server that cannot be reached yet, in seconds: both may be started at once.
START_SECONDS = 30.0

#: The oldest version of the server that is still maintained.
OLDEST_VERSION = 14

CHANNEL = "intercom_rooms"
#: The most bytes of ids in a notification. PostgreSQL takes less than 8,000, the rest included.
PAYLOAD_BYTES = 7_900

#: The registered names of the actors.
DATABASE = "rooms-database"
LISTENER = "rooms-listener"
NOTIFIER = "rooms-notifier"


def _pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further attempt. Nodes that lost one server do not come back in step."""
    yield 0
    pause = 0.05
    while True:
        yield pause * random.uniform(0.5, 1)
        pause = min(2 * pause, 1)


# --- wake-ups --------------------------------------------------------------------------------------------------------


class Wakes:
    """The rooms that the other nodes have to be told of. `node` names this one, which need not hear of them."""

    def __init__(self) -> None:
        self.node = secrets.token_hex(8)
        self._ids: set[str] = set()
        self._lock = Lock()

    def add(self, ids: Collection[str]) -> bool:
        """Add rooms. Returns whether there were none."""
        with self._lock:
            were_none = not self._ids
            self._ids.update(ids)
            return were_none and bool(self._ids)

    def take(self) -> list[str]:
        """Return all rooms, and begin again with none."""
        with self._lock:
            ids, self._ids = self._ids, set()
        return sorted(ids)

    def payloads(self, ids: Sequence[str]) -> list[str]:
        """Return these rooms as notifications, as few as possible."""
        made: list[list[str]] = []
        left = 0
        for id in ids:
            length = len(json.dumps(id)) + 1
            if length > PAYLOAD_BYTES:
                # No id of ours. "" stands for any room.
                id, length = "", 3
            if length > left:
                made.append([])
                left = PAYLOAD_BYTES
            made[-1].append(id)
            left -= length
        return [json.dumps({"node": self.node, "rooms": each}, separators=(",", ":")) for each in made]

    def heard(self, payload: str) -> Sequence[str]:
        """Return the rooms of a notification; none if this node sent it, "" if it cannot be read."""
        try:
            said = json.loads(payload)
            return () if said["node"] == self.node else [str(each) for each in said["rooms"]]
        except (ValueError, TypeError, KeyError):
            return [""]


@frozen
class Notify:
    """The notifier's message: tell the other nodes what is to be told."""


class Notifier(ThreadActor):
    """Sends the collected wake-ups. While one notification is on its way, the next ones are collected."""

    def __init__(self, server: Server, wakes: Wakes) -> None:
        super().__init__()
        self._server = server
        self._wakes = wakes
        self._db: psycopg.Connection[TupleRow] | None = None
        self._pauses = _pauses()

    def on_start(self) -> None:
        # An earlier incarnation may have left some.
        self.actor_ref.tell(Notify())

    def on_receive(self, _message: Notify) -> None:
        ids = self._wakes.take()
        if not ids:
            return
        try:
            if self._db is None or self._db.closed:
                self._db = self._connected()
            sql = "select pg_notify($1, payload) from unnest($2::text[]) as payload"
            self._db.execute(sql, (CHANNEL, self._wakes.payloads(ids)))
            self._pauses = _pauses()
        except (psycopg.Error, Unreachable, DatabaseError) as error:
            logger.debug("other nodes cannot be notified now, and look by themselves: %s", error)
            self._close()
            self._wakes.add(ids)
            self.set_timer("again", next(self._pauses), Notify())

    def _connected(self) -> psycopg.Connection[TupleRow]:
        made = self._server.connect(autocommit=True)
        # A notification is a transaction, which would wait for the disk with the lock of all notifications.
        made.execute("set synchronous_commit = off")
        return made

    def on_stop(self) -> None:
        self._close()

    def on_failure(self, *_crash: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


class Listener(Actor):
    """Hears the wake-ups of other nodes. `call` is called with each room's id, and with "" after every connect."""

    def __init__(self, server: Server, wakes: Wakes, call: Callable[[str], object]) -> None:
        super().__init__()
        self._server = server
        self._wakes = wakes
        self._call = call

    def on_start(self) -> None:
        self.spawn(self._run)

    async def _run(self) -> None:
        pauses = _pauses()
        while True:
            try:
                async with self._connection() as db:
                    pauses = _pauses()
                    # What was notified in the meantime was not heard.
                    self._call("")
                    await self._listen(db)
            except (psycopg.Error, OSError, Unreachable, DatabaseError) as error:
                logger.debug("wake-ups of other nodes are not heard now: %s", error)
            await trio.sleep(next(pauses))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[psycopg.Connection[TupleRow]]:
        """Connect in a thread, which cannot be cancelled: it closes a connection that came too late."""
        opened: list[psycopg.Connection[TupleRow]] = []
        lock, is_over = Lock(), False

        def connect() -> psycopg.Connection[TupleRow]:
            made = self._server.connect(autocommit=True)
            try:
                made.execute(f"listen {CHANNEL}")
            except BaseException:
                made.close()
                raise
            with lock:
                opened.append(made)
                if is_over:
                    made.close()
            return made

        try:
            yield await trio.to_thread.run_sync(connect, abandon_on_cancel=True)
        finally:
            with lock:
                is_over = True
                for each in opened:
                    each.close()

    async def _listen(self, db: psycopg.Connection[TupleRow]) -> None:
        while True:
            # The first look is at what came with the answer to LISTEN.
            for notification in db.notifies(timeout=0):
                for id in self._wakes.heard(notification.payload):
                    self._call(id)
            await trio.lowlevel.wait_readable(db.fileno())


# --- the store -------------------------------------------------------------------------------------------------------


@frozen
class Transact(Request[R], Generic[R]):
    """A request to run `work(db)` in one transaction."""

    work: Callable[[RoomsDatabase], R]


class Writer(ThreadActor):
    """Owns a connection for writes."""

    mailbox_size: ClassVar[int] = 10_000
    refusals = (Refused, IntercomError, TryAgain, StoreUnavailable)

    def __init__(self, server: Server, measured: Measured) -> None:
        super().__init__()
        self._connection = Connection(server)
        self._measured = measured

    def on_receive(self, message: Transact[R]) -> R:
        began = time.perf_counter()
        try:
            result = self._connection.run(message.work)
        except self.refusals:
            raise
        except Exception as error:
            logger.error("a work asked of the rooms' store failed and was undone", exc_info=error)
            raise StoreUnavailable(
                "a fault in the server itself has kept this from being recorded; its log says more"
            ) from error
        self._measured(Committed(1, time.perf_counter() - began))
        return result

    def on_stop(self) -> None:
        self._connection.close()

    def on_failure(self, *_crash: object) -> None:
        self._connection.close()


class Database(Actor):
    """Brings the schema up to date before the other actors of the store start, and closes the readers after them."""

    def __init__(self, rooms: PostgresRooms) -> None:
        super().__init__()
        self._rooms = rooms

    async def on_start(self) -> None:
        await self._rooms.open()

    def on_stop(self) -> None:
        self._rooms.close()

    def on_failure(self, *_crash: object) -> None:
        self._rooms.close()


class PostgresRooms:
    """Rooms in the PostgreSQL database at `url`, for any number of nodes. A `RoomStore`.

    `children` must run in `system` before anything is read. The start migrates the database, and waits `start_seconds`
    for a server that cannot be reached. It fails with DatabaseError. Raises DatabaseError if the URL cannot be read.
    """

    dialect = Dialect.POSTGRESQL

    def __init__(
        self,
        url: str,
        system: System,
        *,
        writers: int = WRITERS,
        readers: int = READERS,
        start_seconds: float = START_SECONDS,
        measured: Measured = unmeasured,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.server = Server.at(url)
        #: Why the server cannot be reached now; None if it can.
        self.fault: str | None = None
        self._names = [f"rooms-writer-{number}" for number in range(1, writers + 1)]
        self._writers = [system.named(name) for name in self._names]
        self._notifier = system.named(NOTIFIER)
        self._readers = Readers(self.server, readers)
        self._wakes = Wakes()
        self._on_wake: Callable[[str], object] = lambda _id: None
        self._start_seconds = start_seconds
        self._measured = measured
        self._now = now
        self._is_migrated = False

    def children(self) -> Sequence[ChildSpec]:
        return (
            ChildSpec(DATABASE, lambda: Database(self), shutdown=10.0),
            *[
                ChildSpec(name, functools.partial(Writer, self.server, self._measured), shutdown=10.0)
                for name in self._names
            ],
            ChildSpec(NOTIFIER, functools.partial(Notifier, self.server, self._wakes), shutdown=10.0),
            ChildSpec(LISTENER, functools.partial(Listener, self.server, self._wakes, self._woken)),
        )

    # Transactions

    async def transact(self, room_id: str, work: Callable[[RoomsDatabase], R]) -> R:
        writer = self._writers[crc32(room_id.encode("utf-8", "surrogatepass")) % len(self._writers)]
        message = Transact(work)
        try:
            return await self._repeated(lambda: ask(writer, message, retry=True), TRANSACTION_SECONDS)
        except Busy as fault:
            raise StoreUnavailable("too much waits to be recorded, and this was not; try again shortly") from fault
        except (TryAgain, Down, NotRunning) as fault:
            raise StoreUnavailable(
                f"{fault}; this may not be recorded: check, and try again if it is not"
                if isinstance(fault, TryAgain)
                else "the part of the server that writes the rooms is restarting, and this may not be recorded:"
                " check, and try again if it is not"
            ) from fault

    async def read(self, work: Callable[[RoomsDatabase], R]) -> R:
        try:
            return await self._repeated(lambda: self._readers.read(work), READ_SECONDS)
        except TryAgain as fault:
            raise DatabaseError(f"{fault}; try again shortly") from fault

    async def _repeated(self, attempt: Callable[[], Awaitable[R]], seconds: float) -> R:
        """Make an attempt, and further ones while it raises TryAgain, for so many seconds. Raises TryAgain."""
        last = TryAgain(f"the database {self.server.where} has not answered within {seconds:g} seconds")
        with trio.move_on_after(seconds):
            for pause in _pauses():
                try:
                    result = await attempt()
                except TryAgain as fault:
                    last = fault
                    self._note(fault)
                else:
                    self._note(None)
                    return result
                await trio.sleep(pause)
        raise last

    def _note(self, fault: TryAgain | None) -> None:
        """Log once that the server cannot be reached, and once that it can again."""
        if isinstance(fault, Unreachable) and self.fault is None:
            logger.warning("%s; this is tried again", fault)
            self.fault = str(fault)
        elif fault is None and self.fault is not None:
            logger.info("the database %s can be reached again", self.server.where)
            self.fault = None

    # Wake-ups

    def wake(self, room_ids: Collection[str]) -> None:
        if self._wakes.add(room_ids):
            self._notifier.tell(Notify())

    def on_wake(self, call: Callable[[str], object]) -> None:
        """Register `call` instead of an earlier one. It is called on the loop."""
        self._on_wake = call

    def _woken(self, id: str) -> None:
        self._on_wake(id)

    # Start and end

    async def open(self) -> None:
        """Migrate the database, once, and allow reads."""
        self._readers.open()
        if self._is_migrated:
            # A restarted actor must not wait for a server that is down: the others cope with that.
            return
        until = trio.current_time() + self._start_seconds
        for pause in _pauses():
            try:
                await trio.to_thread.run_sync(self._migrate, abandon_on_cancel=True)
                break
            except TryAgain as fault:
                if trio.current_time() + pause >= until:
                    raise DatabaseError(str(fault)) from fault
                self._note(fault)
            await trio.sleep(pause)
        self._note(None)
        self._is_migrated = True

    def _migrate(self) -> None:
        connection = Connection(self.server)
        try:
            connection.run(self._prepare)
        finally:
            connection.close()

    def _prepare(self, db: RoomsDatabase) -> None:
        version = rows.value(db, "select current_setting('server_version_num')")
        if int(version) // 10_000 < OLDEST_VERSION:
            raise DatabaseError(
                f"the PostgreSQL server at {self.server.host} has version {int(version) // 10_000};"
                f" rooms need {OLDEST_VERSION} or newer"
            )
        encoding = rows.value(db, "select current_setting('server_encoding')")
        if encoding != "UTF8":
            raise DatabaseError(
                f"the database {self.server.where} has the encoding {encoding}; create one with the encoding UTF8"
            )
        # A migration, and waiting for that of another node, may take long.
        db.execute("select set_config('statement_timeout', '0', true), set_config('lock_timeout', '0', true)")
        room_schema.migrate_postgresql(db, self._now())

    def close(self) -> None:
        """Close the readers' connections. Later reads raise DatabaseError."""
        self._readers.close()
