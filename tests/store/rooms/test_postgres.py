"""Rooms in PostgreSQL: connections that die, wake-ups between nodes, and the start of several nodes at once."""

from __future__ import annotations

import logging
import re
import socket
import statistics
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import psycopg
import pytest
import trio
from attrs import evolve

from actors import ChildSpec, Refused, StartFailed, Supervisor, System
from intercom.masking import KNOWN
from intercom.model import clock
from intercom.model.errors import DatabaseError, InvalidArguments, NotFound
from intercom.store import postgres as store
from intercom.store import room_schema, rows
from intercom.store.postgres import CHANNEL, PostgresRooms, Wakes
from intercom.store.postgres_connection import Server, translated
from intercom.store.room_database import RoomsDatabase
from intercom.store.store_and_reader import StoreUnavailable
from tests.support.figures import Record, tell
from tests.support.postgres import PASSWORD, PostgresServer, proxy

pytestmark = pytest.mark.real_time

#: A table that shows whether a work was done once: each has a number, counted in its room without gaps.
TABLES = """
    create table counter (room text primary key, last bigint not null);
    create table note (id text primary key, room text not null, number bigint not null, unique (room, number))
"""


@asynccontextmanager
async def node(url: str, **options: Any) -> AsyncIterator[PostgresRooms]:
    """The store of one node."""
    made: list[PostgresRooms] = []
    system = System([ChildSpec("node", lambda: Supervisor(made[0].children()), shutdown=None)])
    made.append(PostgresRooms(url, system, **options))
    async with system:
        yield made[0]


@pytest.fixture
def notes(postgres: PostgresServer, database: str) -> str:
    """A database with the tables for notes."""
    postgres.execute(TABLES, database=database)
    return database


def note(room: str, id: str) -> Callable[[RoomsDatabase], int]:
    """Number a note; again, return the number it has."""

    def work(db: RoomsDatabase) -> int:
        db.execute("insert into counter values (?, 0) on conflict (room) do nothing", (room,))
        number = rows.count(db, "select last from counter where room = ? for update", (room,)) + 1
        if (earlier := rows.value(db, "select number from note where id = ?", (id,))) is not None:
            return int(earlier)
        db.execute("insert into note values (:id, :room, :number)", {"id": id, "room": room, "number": number})
        rows.affected(db, "update counter set last = ? where room = ?", (number, room))
        return number

    return work


class Writing:
    """Writers that number notes in several rooms, each one after another, until they have written enough."""

    def __init__(self, rooms: PostgresRooms, *, count: int, each: int) -> None:
        self.numbered: dict[str, int] = {}
        self.is_over = False
        self.runs: Counter[str] = Counter()
        self._rooms = rooms
        self._count = count
        self._each = each

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for writer in range(self._count):
                nursery.start_soon(self._write, f"room {writer % 4}", writer)
        self.is_over = True

    async def _write(self, room: str, writer: int) -> None:
        for number in range(self._each):
            id = f"{writer}/{number}"
            work = note(room, id)

            def counted(db: RoomsDatabase, id: str = id, work: Callable[[RoomsDatabase], int] = work) -> int:
                self.runs[id] += 1
                return work(db)

            self.numbered[id] = await self._rooms.transact(room, counted)

    def check(self, postgres: PostgresServer, database: str) -> None:
        """Each note is there once, with the number that its writer was told, and no number is missing."""
        found = postgres.execute("select id, room, number from note", database=database)
        assert {id: number for id, _, number in found} == self.numbered
        assert len(found) == self._count * self._each
        numbers: dict[str, list[int]] = {}
        for _, room, number in found:
            numbers.setdefault(room, []).append(number)
        for of_room in numbers.values():
            assert sorted(of_room) == list(range(1, len(of_room) + 1))

    @property
    def repeats(self) -> int:
        return sum(self.runs.values()) - len(self.runs)


# Connections that die


async def test_work_is_done_once_although_its_connections_end(
    postgres: PostgresServer, notes: str, record_property: Record
) -> None:
    ended = 0
    async with node(postgres.url(notes)) as rooms, trio.open_nursery() as nursery:
        writing = Writing(rooms, count=12, each=40)
        nursery.start_soon(writing.run)
        while not writing.is_over:
            ended += postgres.end_connections(notes)
            await trio.sleep(0.03)
    writing.check(postgres, notes)
    assert writing.repeats > 0
    tell(record_property, "connections ended", {"connections": ended, "works repeated": writing.repeats})


async def test_work_is_done_once_although_the_server_dies(
    postgres: PostgresServer, notes: str, record_property: Record
) -> None:
    kills = 0
    async with node(postgres.url(notes)) as rooms, trio.open_nursery() as nursery:
        writing = Writing(rooms, count=12, each=80)
        nursery.start_soon(writing.run)
        while not writing.is_over:
            await trio.sleep(0.1)
            await trio.to_thread.run_sync(lambda: postgres.restart(kill=True))
            kills += 1
        assert await rooms.read(lambda db: rows.count(db, "select count(*) from note")) == 960
    writing.check(postgres, notes)
    assert rooms.fault is None
    tell(record_property, "server killed", {"kills": kills, "works repeated": writing.repeats})


async def test_a_transaction_whose_answer_to_commit_was_lost_is_repeated_without_harm(
    postgres: PostgresServer, notes: str
) -> None:
    with proxy(postgres) as network:
        async with node(network.url(notes)) as rooms:
            seen = 0

            def lose(packet: bytes) -> bool:
                nonlocal seen
                seen += b"COMMIT" in packet
                return b"COMMIT" in packet and seen % 3 == 0

            network.lose = lose
            writing = Writing(rooms, count=4, each=20)
            await writing.run()
            network.lose = lambda _packet: False
        assert network.lost >= 20
        assert writing.repeats >= network.lost - 4
    writing.check(postgres, notes)


async def test_a_server_that_stays_away_ends_in_a_sentence(
    postgres: PostgresServer, notes: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "TRANSACTION_SECONDS", 1.0)
    monkeypatch.setattr(store, "READ_SECONDS", 1.0)
    caplog.set_level(logging.INFO, "intercom.store")
    async with node(postgres.url(notes)) as rooms:
        await trio.to_thread.run_sync(postgres.stop)
        with pytest.raises(StoreUnavailable, match=r"no PostgreSQL server answers at .*; this may not be rec"):
            await rooms.transact("r", note("r", "1"))
        with pytest.raises(DatabaseError, match=r"no PostgreSQL server answers.*; try again shortly"):
            await rooms.read(lambda db: rows.count(db, "select count(*) from note"))
        assert rooms.fault is not None
        await trio.to_thread.run_sync(postgres.start)
        assert await rooms.transact("r", note("r", "1")) == 1
        assert rooms.fault is None
    texts = [record.message for record in caplog.records if record.name == "intercom.store"]
    assert [text.rpartition(" ")[0].rpartition(" ")[2] for text in texts] == ["tried", "reached"], texts


async def test_a_wait_for_a_server_that_hangs_can_be_cancelled_at_once(postgres: PostgresServer, notes: str) -> None:
    async with node(postgres.url(notes)) as rooms:
        await rooms.transact("r", note("r", "1"))
        await rooms.read(lambda db: rows.count(db, "select count(*) from note"))
        hanging = [psutil.Process(pid) for pid in postgres.connections(notes)]
        for each in hanging:
            each.suspend()
        try:
            began = trio.current_time()
            with trio.move_on_after(0.1):
                await rooms.read(lambda db: rows.count(db, "select count(*) from note"))
            with trio.move_on_after(0.1):
                await rooms.transact("r", note("r", "2"))
            assert trio.current_time() - began < 2
        finally:
            for each in hanging:
                each.resume()
        assert await rooms.transact("r", note("r", "3")) in (2, 3)


async def test_a_node_that_hangs_in_a_transaction_does_not_keep_a_room(postgres: PostgresServer, notes: str) -> None:
    url = postgres.url(notes)
    hanging = Server.at(url).connect()
    setting = "idle_in_transaction_session_timeout"
    assert hanging.execute(f"show {setting}".encode()).fetchall() == [("10s",)]
    hanging.execute(f"set {setting} = '500ms'".encode())
    async with node(url) as rooms:
        await rooms.transact("r", note("r", "1"))
        hanging.execute(b"select last from counter where room = 'r' for update")
        assert await rooms.transact("r", note("r", "2")) == 2
    hanging.close()


# Works


async def test_what_a_work_refuses_is_undone_and_raised(postgres: PostgresServer, notes: str) -> None:
    def refuse(error: Exception) -> Callable[[RoomsDatabase], None]:
        def work(db: RoomsDatabase) -> None:
            note("r", "1")(db)
            raise error

        return work

    async with node(postgres.url(notes), writers=1) as rooms:
        for error in (NotFound("it is not there"), Refused("not now")):
            with pytest.raises(type(error), match=str(error)):
                await rooms.transact("r", refuse(error))
            assert await rooms.read(lambda db: rows.count(db, "select count(*) from note")) == 0


async def test_a_mistake_in_a_work_harms_no_other(
    postgres: PostgresServer, notes: str, caplog: pytest.LogCaptureFixture
) -> None:
    nothing: dict[str, str] = {}
    works: list[Callable[[RoomsDatabase], Any]] = [
        lambda db: db.execute("select * from nowhere"),
        lambda db: nothing["typo"],
        lambda db: [db.execute("insert into note values ('1', 'r', 1)") for _ in range(2)],
    ]
    async with node(postgres.url(notes), writers=1) as rooms:
        for work in works:
            with pytest.raises(StoreUnavailable, match="a fault in the server itself"):
                await rooms.transact("r", work)
        assert await rooms.transact("r", note("r", "1")) == 1
        with pytest.raises(psycopg.errors.UndefinedTable):
            await rooms.read(lambda db: db.execute("select * from nowhere"))
        with pytest.raises(KeyError):
            await rooms.read(lambda db: nothing["typo"])
        assert await rooms.read(lambda db: rows.count(db, "select count(*) from note")) == 1
    assert sum("a work asked of the rooms' store failed" in record.message for record in caplog.records) == 3


async def test_a_read_sees_one_state_throughout_and_cannot_write(postgres: PostgresServer, notes: str) -> None:
    half, go_on = threading.Event(), threading.Event()

    def count_twice(db: RoomsDatabase) -> tuple[int, int]:
        first = rows.count(db, "select count(*) from note")
        half.set()
        go_on.wait(30)
        return first, rows.count(db, "select count(*) from note")

    found: list[tuple[int, int]] = []
    async with node(postgres.url(notes)) as rooms, trio.open_nursery() as nursery:
        await rooms.transact("r", note("r", "1"))

        async def read() -> None:
            found.append(await rooms.read(count_twice))

        nursery.start_soon(read)
        await trio.to_thread.run_sync(half.wait)
        await rooms.transact("r", note("r", "2"))
        assert await rooms.read(lambda db: rows.count(db, "select count(*) from note")) == 2
        go_on.set()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await rooms.read(lambda db: db.execute("delete from note"))
    assert found == [(1, 1)]


async def test_reads_are_refused_when_the_store_has_stopped(database_url: str) -> None:
    async with node(database_url) as rooms:
        pass
    with pytest.raises(DatabaseError, match="the database is closed"):
        await rooms.read(lambda db: None)


# Statements and values


@pytest.mark.parametrize(
    ("sql", "text", "names"),
    [
        ("select ?, ?", "select $1, $2", None),
        ("select :a, :b, :a", "select $1, $2, $1", ("a", "b")),
        ("select ?::text, :: int", "select $1::text, :: int", None),
        ("select :a::jsonb, :a1", "select $1::jsonb, $2", ("a", "a1")),
        ("select '?', ':a', 'it''s ?', ?", "select '?', ':a', 'it''s ?', $1", None),
        (r"select E'\'?', e':a\\', ?", r"select E'\'?', e':a\\', $1", None),
        ('select ":a?", "x""?" from t where ?', 'select ":a?", "x""?" from t where $1', None),
        ("select ? -- why?\n, ? /* :a? */", "select $1 -- why?\n, $2 /* :a? */", None),
        ("select $$ ? $$, $x$ $$ :a $x$, ?", "select $$ ? $$, $x$ $$ :a $x$, $1", None),
        ("select a[1:2], b like '%?%', c % ?", "select a[1:2], b like '%?%', c % $1", None),
        ("select a[1:n], :n", "select a[1:n], $1", ("n",)),
    ],
)
def test_parameters_are_translated_where_they_are_parameters(
    sql: str, text: str, names: tuple[str, ...] | None
) -> None:
    found = translated(sql)
    assert (found.text.decode(), found.names) == (text, names)


def test_a_statement_has_one_kind_of_parameters() -> None:
    with pytest.raises(ValueError, match="either"):
        translated("select ?, :a")


async def test_statements_with_percent_signs_and_casts_run(database_url: str) -> None:
    def work(db: RoomsDatabase) -> list[Any]:
        return [
            rows.value(db, "select '100%' || ?::text || '%s ? :a %(a)s'", ("!",)),
            rows.value(db, "select '100%, %s, ?, :a'"),
            rows.one(db, "select :a::int + :a::int as twice, 'x' like '%x%' as likes", {"a": 21}),
            rows.column(db, f"select x from unnest(array[1,2,3]) x where x in ({rows.placeholders((1, 3))})", (1, 3)),
        ]

    async with node(database_url) as rooms:
        assert await rooms.transact("r", work) == [
            "100%!%s ? :a %(a)s",
            "100%, %s, ?, :a",
            {"twice": 42, "likes": True},
            [1, 3],
        ]


async def test_values_come_back_as_sqlite_returns_them(postgres: PostgresServer, database: str) -> None:
    postgres.execute(
        "create table it (id uuid, at timestamptz, data jsonb, number bigint, flag int, word text)", database=database
    )
    id = str(uuid.uuid4())
    at = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)

    def work(db: RoomsDatabase) -> Any:
        sql = "insert into it values (:id, :at, :data, :number, :flag, :word)"
        for instant in (at, at.replace(microsecond=0), at.replace(microsecond=1)):
            values = {"id": id, "at": instant, "data": '{"a":1}', "number": 2**40, "flag": 1, "word": None}
            assert rows.affected(db, sql, values) == 1
        return rows.every(db, "select * from it order by at"), rows.value(db, "select sum(number) from it")

    async with node(postgres.url(database)) as rooms:
        found, total = await rooms.transact("r", work)
    assert [each["at"] for each in found] == sorted(
        clock.to_text(each) for each in (at, at.replace(microsecond=0), at.replace(microsecond=1))
    )
    row = {name: value for name, value in found[0].items() if name != "at"}
    assert row == {"id": id, "data": '{"a": 1}', "number": 2**40, "flag": 1, "word": None}
    assert total == 3 * 2**40


@pytest.mark.parametrize("text", ["half a pair \ud800", "nothing \0 after"])
async def test_text_that_cannot_be_stored_is_refused(postgres: PostgresServer, notes: str, text: str) -> None:
    async with node(postgres.url(notes), writers=1) as rooms:
        with pytest.raises(InvalidArguments, match="cannot"):
            await rooms.transact("r", note("r", text))
        assert await rooms.transact("r", note("r", "1")) == 1


async def test_numbers_and_ids_that_cannot_be_stored_are_refused(postgres: PostgresServer, notes: str) -> None:
    async with node(postgres.url(notes), writers=1) as rooms:
        with pytest.raises(InvalidArguments, match="out of range"):
            await rooms.transact("r", lambda db: db.execute("insert into note values ('x', 'r', ?)", (2**70,)))
        with pytest.raises(InvalidArguments, match="uuid"):
            await rooms.transact("r", lambda db: db.execute("select id from sessions where id = ?", ("room 7",)))


# Wake-ups


class Heard:
    """What a node is told, with the time."""

    def __init__(self, rooms: PostgresRooms) -> None:
        self.ids: list[str] = []
        self.at: list[float] = []
        self._news = trio.Event()
        rooms.on_wake(self._hear)

    def _hear(self, id: str) -> None:
        self.ids.append(id)
        self.at.append(time.perf_counter())
        self._news.set()
        self._news = trio.Event()

    async def until(self, fits: Callable[[list[str]], bool]) -> None:
        with trio.fail_after(120):
            while not fits(self.ids):
                await self._news.wait()


async def test_wake_ups_reach_another_node_within_milliseconds(database_url: str, record_property: Record) -> None:
    async with node(database_url) as one, node(database_url) as other:
        heard, own = Heard(other), Heard(one)
        await _both_listen(one, other, heard, own)
        took = []
        for number in range(200):
            began = time.perf_counter()
            one.wake([f"room {number}"])
            await heard.until(lambda ids, number=number: ids[-1:] == [f"room {number}"])
            took.append(heard.at[-1] - began)
        await trio.sleep(0.05)
        assert not [id for id in own.ids if id.startswith("room")]
    assert statistics.median(took) < 0.1
    figures = {"median": round(1e6 * statistics.median(took)), "95 %": round(1e6 * sorted(took)[190])}
    tell(record_property, "a wake-up to another node, microseconds", figures)


async def _both_listen(one: PostgresRooms, other: PostgresRooms, heard: Heard, own: Heard) -> None:
    """Wait until each node has heard the other. What they hear when they connect may be before or after."""
    while "ready" not in heard.ids or "ready" not in own.ids:
        one.wake(["ready"])
        other.wake(["ready"])
        await trio.sleep(0.01)
    await trio.sleep(0.05)
    heard.ids.clear()
    own.ids.clear()


async def test_a_burst_of_wakes_is_a_few_notifications(postgres: PostgresServer, database: str) -> None:
    url = postgres.url(database)
    ids = [str(uuid.uuid4()) for _ in range(1000)]
    async with node(url) as one, node(url) as other:
        heard, own = Heard(other), Heard(one)
        await _both_listen(one, other, heard, own)
        with psycopg.connect(url, autocommit=True) as witness:
            witness.execute(f"listen {CHANNEL}")
            for id in ids:
                one.wake([id])
            for _ in range(1000):
                one.wake(ids[:1])
            await heard.until(lambda found: {*ids} <= {*found})
            sent = list(witness.notifies(timeout=0.2))
    assert len(sent) <= 10
    assert all(len(each.payload) < 8000 for each in sent)


def test_notifications_are_as_long_as_postgresql_takes_them() -> None:
    wakes, other = Wakes(), Wakes()
    ids = [str(uuid.uuid4()) for _ in range(5000)]
    for some in ([], ids[:1], ids, [*ids, "ä" * 500, '"\\' * 300]):
        payloads = wakes.payloads(some)
        assert all(len(each.encode()) < 8000 for each in payloads)
        assert len(payloads) <= len(some) // 150 + 1
        assert [id for each in payloads for id in other.heard(each)] == some
        assert [id for each in payloads for id in wakes.heard(each)] == []
    assert [[*other.heard(each)] for each in wakes.payloads(["x" * 9000])] == [[""]]


def test_wakes_are_collected_until_they_are_taken() -> None:
    wakes = Wakes()
    assert not wakes.add([])
    assert wakes.add(["a", "b"])
    assert not wakes.add(["b", "c"])
    assert wakes.take() == ["a", "b", "c"]
    assert wakes.take() == []
    assert wakes.add(["a"])


@pytest.mark.parametrize("payload", ["", "hello", "[]", "7", '{"rooms":["a"]}', '{"node":"x"}'])
async def test_what_others_notify_means_any_room(postgres: PostgresServer, database: str, payload: str) -> None:
    async with node(postgres.url(database)) as one, node(postgres.url(database)) as other:
        heard = Heard(one)
        await _both_listen(one, other, Heard(other), heard)
        postgres.execute("select pg_notify(%s, %s)", [CHANNEL, payload], database=database)
        await heard.until(lambda ids: ids == [""])


async def test_a_listener_that_lost_its_connection_says_that_all_rooms_may_be_new(
    postgres: PostgresServer, database: str
) -> None:
    async with node(postgres.url(database)) as one, node(postgres.url(database)) as other:
        heard, own = Heard(other), Heard(one)
        await _both_listen(one, other, heard, own)
        for restart in (lambda: postgres.end_connections(database), lambda: postgres.restart(kill=True)):
            await trio.to_thread.run_sync(restart)
            await heard.until(lambda ids: "" in ids)
            one.wake(["after"])
            await heard.until(lambda ids: "after" in ids)
            heard.ids.clear()


# The start


def _causes(failed: BaseException | None) -> BaseException:
    while isinstance(failed, StartFailed):
        failed = failed.reason
    assert failed is not None
    return failed


async def _refusal(url: str, **options: Any) -> DatabaseError:
    """Start a node in vain. What it says."""
    with pytest.raises(StartFailed) as failed:
        async with node(url, start_seconds=0, **options):
            pass
    found = _causes(failed.value)
    assert isinstance(found, DatabaseError)
    assert PASSWORD not in str(found) + repr(found) + str(failed.value)
    assert "\n" not in str(found)
    return found


async def test_nodes_that_start_at_once_migrate_once(postgres: PostgresServer, database: str) -> None:
    async def start() -> None:
        async with node(postgres.url(database)) as rooms:
            assert await rooms.read(lambda db: rows.count(db, "select count(*) from sessions")) == 0

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(start)
    versions = postgres.execute("select version from schema_version order by version", database=database)
    assert versions == [(step.number,) for step in room_schema.MIGRATIONS]


async def test_a_newer_schema_is_refused(postgres: PostgresServer, database: str) -> None:
    url = postgres.url(database)
    async with node(url):
        pass
    postgres.execute("insert into schema_version values (999, 'later', 'later')", database=database)
    refused = await _refusal(url)
    assert refused.error_code == "version_mismatch"
    assert "newer version (schema 999" in str(refused)


async def test_another_programs_tables_are_refused(postgres: PostgresServer, database: str) -> None:
    postgres.execute("create table messages (id int)", database=database)
    assert "messages of another program" in str(await _refusal(postgres.url(database)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("intercom:", "nobody:"), "does not accept the password of the user nobody"),
        ((PASSWORD, "wrong" + PASSWORD[::-1]), "does not accept the password of the user intercom"),
        (("/test_", "/best_"), "has no database best_"),
        (("127.0.0.1", "nowhere.invalid"), "the host of the PostgreSQL server, nowhere.invalid:"),
        (("127.0.0.1:", "127.0.0.1:1"), "the database URL|no PostgreSQL server answers|cannot be used"),
        (("127.0.0.1:", "127.0.0.1:port"), "the database URL|cannot be used"),
    ],
)
async def test_a_database_that_cannot_be_used_ends_in_one_sentence(
    database_url: str, change: tuple[str, str], expected: str
) -> None:
    url = database_url.replace(*change)
    assert url != database_url
    refused = await _refusal(url)
    assert any(each in str(refused) for each in expected.split("|")), refused


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_what_hangs_up_at_the_address_is_no_server(how: str) -> None:
    """So does a server that is about to stop, and libpq says the same of a refusal that it sees late."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    taken, _ = listener.accept()
                    if how == "resets":
                        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    taken.close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        refused = await _refusal(f"postgresql://intercom:{PASSWORD}@127.0.0.1:{listener.getsockname()[1]}/notes")
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()
    assert re.fullmatch(r"no PostgreSQL server answers at \S+; start it, or correct the database URL", str(refused))


async def test_what_hangs_up_during_tls_is_not_mistaken_for_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    taken, _ = listener.accept()
                    taken.recv(8)
                    taken.sendall(b"S")
                    taken.recv(1)
                    # What is unread makes it a reset.
                    taken.close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        refused = await _refusal(f"postgresql://intercom:{PASSWORD}@{place}/notes?sslmode=require")
        listener.shutdown(socket.SHUT_RDWR)
        answering.join()
    assert re.fullmatch(rf"the PostgreSQL server at {place} cannot be used \(.*\)", str(refused))


def test_a_url_that_cannot_be_read_is_not_quoted(database_url: str) -> None:
    with pytest.raises(DatabaseError, match="the database URL cannot be read") as refused:
        Server.at(database_url.replace("://", "//"))
    assert PASSWORD not in str(refused.value)
    assert refused.value.__cause__ is None


async def test_a_user_without_rights_is_told(postgres: PostgresServer, database: str) -> None:
    postgres.execute("drop role if exists guest")
    postgres.execute("create role guest login password 'moss-and-gravel'")
    refused = await _refusal(postgres.url(database, user="guest"))
    assert "the user guest may not do this" in str(refused)
    assert "a database that this user owns" in str(refused)


async def test_a_database_in_another_encoding_is_refused(postgres: PostgresServer, database: str) -> None:
    postgres.execute("drop database if exists latin")
    postgres.execute("create database latin encoding 'LATIN1' locale 'C' locale_provider libc template template0")
    assert "encoding LATIN1" in str(await _refusal(postgres.url("latin")))


async def test_the_start_waits_for_a_server_that_starts_too(postgres: PostgresServer, database: str) -> None:
    await trio.to_thread.run_sync(postgres.stop)
    started = trio.Event()

    async def start_node() -> None:
        async with node(postgres.url(database)):
            started.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_node)
        await trio.sleep(0.3)
        assert not started.is_set()
        await trio.to_thread.run_sync(postgres.start)
        await started.wait()


async def test_connections_have_our_name_and_no_more_of_them_than_needed(
    postgres: PostgresServer, database: str
) -> None:
    async with node(postgres.url(database)) as rooms:
        heard = Heard(rooms)
        rooms.wake(["a"])
        await rooms.read(lambda db: None)
        await rooms.read(lambda db: rows.value(db, "select 1"))
        names = postgres.execute("select application_name from pg_stat_activity where datname = %s", [database])
        assert {name for (name,) in names} == {"agent-intercom"}
        assert len(names) <= 3, heard.ids
    # The server ends a connection a moment after its client.
    while postgres.connections(database):
        await trio.lowlevel.checkpoint()


async def test_a_connection_that_opens_after_the_node_has_stopped_is_closed(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_connecting, go, made = trio.Event(), threading.Event(), []
    connect, loop = Server.connect, trio.lowlevel.current_trio_token()

    def late(server: Server, *, autocommit: bool = False) -> Any:
        if autocommit:
            loop.run_sync_soon(is_connecting.set)
            go.wait()
        made.append(connect(server, autocommit=autocommit))
        return made[-1]

    monkeypatch.setattr(Server, "connect", late)
    async with node(postgres.url(database)):
        await is_connecting.wait()
        before = len(made)
    go.set()
    while len(made) == before or not all(each.closed for each in made):
        await trio.lowlevel.checkpoint()


def test_a_password_is_masked_wherever_texts_are_masked(database_url: str) -> None:
    server = Server.at(database_url)
    assert PASSWORD not in repr(server) + str(server) + server.where
    assert PASSWORD not in KNOWN.mask(f"see {database_url}", [])
    assert server.where.startswith("test_")
    assert evolve(server) == server


async def test_sessions_are_durable_whatever_the_server_prefers(postgres: PostgresServer, database: str) -> None:
    postgres.execute(f"alter database {database} set synchronous_commit = off")
    postgres.execute(f"alter database {database} set timezone = 'Asia/Tokyo'")
    names = "synchronous_commit", "TimeZone", "lock_timeout"

    def settings(db: RoomsDatabase) -> list[str]:
        return [rows.value(db, "select current_setting(?)", (name,)) for name in names]

    async with node(postgres.url(database)) as rooms:
        assert await rooms.transact("r", settings) == ["on", "UTC", "10s"]
        now = await rooms.read(lambda db: rows.value(db, "select now()"))
    assert abs(clock.from_text(now) - datetime.now(UTC)) < timedelta(minutes=1)
