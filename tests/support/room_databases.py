"""The databases of rooms for tests: each test that takes `room_db` or `room_store` runs on SQLite and on PostgreSQL.

Import the fixtures into a `conftest.py`. PostgreSQL is loaded and started when the first test needs it.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors import ChildSpec, Supervisor, System
from intercom.store import room_schema
from intercom.store.database import open_database
from intercom.store.room_database import Dialect, RoomsDatabase, RoomStore, SqliteDatabase, SqliteRooms

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

# --- a connection ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
def room_db(request: pytest.FixtureRequest) -> Iterator[RoomsDatabase]:
    """A connection to an empty database of rooms, in a transaction that is undone after the test."""
    with room_database(request.param) as db:
        yield db


@contextmanager
def room_database(dialect: Dialect) -> Iterator[RoomsDatabase]:
    """The same, for tests that make several."""
    if dialect is Dialect.POSTGRESQL:
        from intercom.store.postgres import PostgresDatabase, Server

        connection = Server.at(_migrated()).connect()
        try:
            yield PostgresDatabase(connection)
        finally:
            connection.rollback()
            connection.close()
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "rooms.db"
        file.write_bytes(_sqlite_file())
        db = open_database(file, migrations=room_schema.SQLITE).db
        try:
            db.execute("begin immediate")
            yield SqliteDatabase(db)
        finally:
            db.close()


@functools.cache
def _sqlite_file() -> bytes:
    """An empty database of rooms: migrations run once a process."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "new.db"
        # Closed, its log is in the file.
        open_database(file, migrations=room_schema.SQLITE).db.close()
        return file.read_bytes()


@functools.cache
def _migrated() -> str:
    """The URL of a PostgreSQL database of rooms in which nothing is ever committed."""
    from intercom.store.postgres import Server

    server = _postgres()
    url = server.url(server.new_database())
    with Server.at(url).connect() as connection:
        migrate(connection)
    return url


def migrate(connection: Any) -> int:
    """Bring the schema of a PostgreSQL database up to date; the version that it had."""
    from intercom.store.postgres import PostgresDatabase

    return room_schema.migrate_postgresql(PostgresDatabase(connection), datetime.now(UTC))


def _postgres() -> PostgresServer:
    from tests.support.postgres import shared_server

    server = shared_server()
    server.start()
    return server


# --- a store ---------------------------------------------------------------------------------------------------------


@pytest.fixture(params=list(Dialect), ids=lambda dialect: dialect.value)
async def room_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RoomStore]:
    """A store of rooms that runs, with nothing in it. Tests with it are marked `real_time`."""
    async with running_store(request.param, tmp_path) as store:
        yield store


@asynccontextmanager
async def running_store(dialect: Dialect, directory: Path) -> AsyncIterator[RoomStore]:
    """The same, for tests that start several. On SQLite its file is in the directory."""
    url = ""
    if dialect is Dialect.POSTGRESQL:
        server = _postgres()
        name = server.new_database()
        url = server.url(name)
    try:
        async with store_at(url or directory / "rooms.db") as store:
            yield store
    finally:
        if url:
            server.start()
            server.drop(name)


@asynccontextmanager
async def store_at(where: str | Path, **options: Any) -> AsyncIterator[RoomStore]:
    """A store in this SQLite file, or at this URL of a PostgreSQL database, that runs."""
    store: RoomStore
    system = System([ChildSpec("rooms", lambda: Supervisor(store.children()), shutdown=None)])
    if isinstance(where, Path):
        store = SqliteRooms(where, system, **options)
    else:
        from intercom.store.postgres import PostgresRooms

        store = PostgresRooms(where, system, **options)
    async with system:
        yield store
    if isinstance(store, SqliteRooms):
        store.close()
