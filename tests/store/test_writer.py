"""The writer: one transaction for all that is queued, nothing answered before it is on disk."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from actors import ChildSpec, Down, Refused, System, ask
from intercom.model import crash_points
from intercom.model.errors import DatabaseError, IntercomError, InvalidArguments, NotFound
from intercom.store import audit, sessions
from intercom.store.database import Database, OpenedDatabase, connect, open_database
from intercom.store.requests import approvals
from intercom.store.writer import Writer
from intercom.store.writer_messages import Touch, Transact

from . import cases
from .cases import NOW, after


class TaskWriter(Writer):
    """On the loop, so that its timers run in virtual time."""

    run_as_task = True


def system(path: Path, kind: type[Writer] = Writer, **options: Any) -> System:
    return System([ChildSpec("store", lambda: kind(path, **options))])


def prepared(tmp_path: Path) -> Path:
    """A database with the session "s1"."""
    path = tmp_path / "intercom.db"
    db = open_database(path).db
    sessions.insert(db, cases.session("s1"))
    db.close()
    return path


def note(word: str) -> Callable[[Database], int]:
    return lambda db: audit.record(db, NOW, "noted", None, "test", word)


def words(path: Path) -> list[str]:
    db = connect(path)
    try:
        return [entry.summary for entry in audit.recent(db, 10_000)]
    finally:
        db.close()


class Statements:
    """What the writer's connection executes."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def watch(self, opened: OpenedDatabase) -> None:
        opened.db.conn.set_trace_callback(self.seen.append)

    def count(self, word: str) -> int:
        return sum(statement.lower().startswith(word) for statement in self.seen)


class Gate:
    """A work that holds the writer until it is let go."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self._open = threading.Event()
        self._token = trio.lowlevel.current_trio_token()

    def __call__(self, db: Database) -> None:
        self._token.run_sync_soon(self.reached.set)
        self._open.wait(30)

    def let_go(self) -> None:
        self._open.set()


async def in_one_group(store: Any, works: list[Callable[[Database], Any]]) -> list[Any]:
    """Ask for all works while the writer is busy, so that they are one group; the answers or what they raised."""
    answers: list[Any] = [None] * len(works)

    async def one(place: int) -> None:
        try:
            answers[place] = await ask(store, Transact(works[place]))
        except (IntercomError, Refused, Down) as error:
            answers[place] = error

    gate = Gate()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, store, Transact(gate))
        await gate.reached.wait()
        for place in range(len(works)):
            nursery.start_soon(one, place)
            # one after the other, so that they are queued in this order
            await trio.testing.wait_all_tasks_blocked()
        gate.let_go()
    return answers


@pytest.mark.real_time
async def test_a_work_is_answered_with_what_it_returned(tmp_path: Path) -> None:
    async with system(prepared(tmp_path)) as running:
        store = running.named("store")
        assert await ask(store, Transact(note("hello"))) == 1
        found = await ask(store, Transact(lambda db: sessions.get(db, "s1")))
        assert found == cases.session("s1")
        assert words(tmp_path / "intercom.db") == ["hello"]


@pytest.mark.real_time
async def test_what_is_queued_is_one_commit(tmp_path: Path) -> None:
    statements = Statements()
    async with system(prepared(tmp_path), on_opened=statements.watch) as running:
        answers = await in_one_group(running.named("store"), [note(str(number)) for number in range(64)])
    assert answers == list(range(1, 65))
    # the gate's own, and one for all the others
    assert statements.count("commit") == 2
    assert words(tmp_path / "intercom.db") == [str(number) for number in range(64)]


@pytest.mark.real_time
async def test_nothing_is_answered_before_it_is_on_disk(tmp_path: Path) -> None:
    path = prepared(tmp_path)
    async with system(path) as running:
        store = running.named("store")
        async with trio.open_nursery() as nursery:

            async def one(word: str) -> None:
                await ask(store, Transact(note(word)))
                assert word in words(path)

            for number in range(20):
                nursery.start_soon(one, str(number))


@pytest.mark.real_time
async def test_a_refusal_undoes_its_own_work_alone(tmp_path: Path) -> None:
    def refuse(db: Database) -> None:
        note("refused")(db)
        raise NotFound("no such thing")

    def refuse_plainly(db: Database) -> None:
        note("refused")(db)
        raise Refused("no")

    async with system(prepared(tmp_path)) as running:
        answers = await in_one_group(running.named("store"), [note("a"), refuse, note("b"), refuse_plainly, note("c")])
    assert [type(answer) for answer in answers] == [int, NotFound, int, Refused, int]
    assert words(tmp_path / "intercom.db") == ["a", "b", "c"]


@pytest.mark.parametrize("mistake", ["key", "sql", "constraint"])
@pytest.mark.real_time
async def test_a_mistake_in_a_work_is_its_askers_alone(
    mistake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(db: Database) -> None:
        note("wrong")(db)
        if mistake == "key":
            raise KeyError("typo")
        if mistake == "sql":
            db.execute("select nonsense from nowhere")
        approvals.insert(db, cases.approval("r1", session_id="no such session"))

    async def run() -> None:
        async with system(prepared(tmp_path)) as running:
            store = running.named("store")
            answers = await in_one_group(store, [note("a"), wrong, note("b")])
            assert [type(answer) for answer in answers] == [int, Down, int]
            assert answers[1].begun
            assert await ask(store, Transact(note("c")))

    with caplog.at_level(logging.CRITICAL + 1):
        await run()
    assert words(tmp_path / "intercom.db") == ["a", "b", "c"]


@pytest.mark.real_time
async def test_a_work_that_ends_the_transaction_brings_the_group_down(tmp_path: Path) -> None:
    async with system(prepared(tmp_path)) as running:
        store = running.named("store")
        answers = await in_one_group(store, [lambda db: db.rollback(), note("b")])
        assert [type(answer) for answer in answers] == [Down, Down]
        # the next incarnation serves
        await ask(store, Transact(note("c")), retry=True, timeout=20)
    assert words(tmp_path / "intercom.db") == ["c"]


@pytest.mark.real_time
async def test_what_sqlite_can_not_hold_is_refused(tmp_path: Path) -> None:
    async with system(prepared(tmp_path)) as running:
        store = running.named("store")
        with pytest.raises(InvalidArguments, match="surrogate"):
            await ask(store, Transact(note("half \ud800")))
        with pytest.raises(InvalidArguments, match="64 bits"):
            await ask(store, Transact(lambda db: sessions.set_stall(db, "s1", 2**70, False)))
        assert await ask(store, Transact(note("fine")))


@pytest.mark.real_time
async def test_a_full_disk_refuses_the_group_and_the_writer_lives(tmp_path: Path) -> None:
    def nearly_full(opened: OpenedDatabase) -> None:
        pages = opened.db.execute("pragma page_count").fetchone()[0]
        opened.db.execute(f"pragma max_page_count = {pages + 2}")

    async with system(prepared(tmp_path), on_opened=nearly_full) as running:
        store = running.named("store")
        answers = await in_one_group(store, [note("a"), note("x" * 100_000), note("b")])
        assert [type(answer) for answer in answers] == [DatabaseError] * 3
        assert "is full; free some space and try again, nothing was written" in str(answers[0])
        assert await ask(store, Transact(note("c")))
    assert words(tmp_path / "intercom.db") == ["c"]


@pytest.mark.real_time
async def test_a_database_locked_by_another_program_refuses_until_it_is_free(tmp_path: Path) -> None:
    path = prepared(tmp_path)
    async with system(path, busy_seconds=0.05) as running:
        store = running.named("store")
        other = connect(path)
        other.execute("begin immediate")
        with pytest.raises(DatabaseError, match="locked by another program; close that program"):
            await ask(store, Transact(note("a")))
        other.rollback()
        other.close()
        assert await ask(store, Transact(note("b")))
    assert words(path) == ["b"]


@pytest.mark.real_time
async def test_a_database_that_became_read_only_refuses(tmp_path: Path) -> None:
    def read_only(opened: OpenedDatabase) -> None:
        opened.db.execute("pragma query_only = on")

    async with system(prepared(tmp_path), on_opened=read_only) as running:
        with pytest.raises(DatabaseError, match="no permission to write"):
            await ask(running.named("store"), Transact(note("a")))


@pytest.mark.real_time
async def test_a_writer_that_meets_damage_says_so_and_opens_the_file_anew(tmp_path: Path) -> None:
    opened: list[OpenedDatabase] = []

    def damage(db: Database) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    async with system(prepared(tmp_path), on_opened=opened.append) as running:
        store = running.named("store")
        answers = await in_one_group(store, [note("a"), damage])
        assert [type(answer) for answer in answers] == [DatabaseError, DatabaseError]
        assert "damaged" in str(answers[1])
        await ask(store, Transact(note("b")), retry=True, timeout=20)
    assert len(opened) == 2
    assert words(tmp_path / "intercom.db") == ["b"]


@pytest.mark.parametrize(("point", "kept"), [("store.before_commit", False), ("store.after_commit", True)])
@pytest.mark.real_time
async def test_a_writer_that_falls_around_its_commit_answers_nobody(
    point: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepared(tmp_path)

    def fall(name: str) -> None:
        if name == point:
            monkeypatch.setattr(crash_points, "hook", None)
            raise RuntimeError("falls here")

    async with system(path) as running:
        store = running.named("store")
        monkeypatch.setattr(crash_points, "hook", fall)
        with pytest.raises(Down):
            await ask(store, Transact(note("a")))
        await ask(store, Transact(note("b")), retry=True, timeout=20)
    assert words(path) == (["a", "b"] if kept else ["b"])


@pytest.mark.real_time
async def test_an_unknown_message_is_refused(tmp_path: Path) -> None:
    async with system(prepared(tmp_path)) as running:
        with pytest.raises(InvalidArguments, match="does not understand str"):
            await ask(running.named("store"), "hello")  # type: ignore[arg-type]


def heard(path: Path) -> tuple[Any, Any]:
    db = connect(path)
    try:
        session = sessions.get(db, "s1")
        return session.updated_at, session.last_tool
    finally:
        db.close()


async def test_a_touch_is_written_within_a_second_and_only_the_latest(tmp_path: Path) -> None:
    path, statements = prepared(tmp_path), Statements()
    async with system(path, TaskWriter, on_opened=statements.watch) as running:
        store = running.named("store")
        for seconds, tool in ((1, "ping"), (3, "standby"), (2, "broadcast"), (4, None)):
            store.tell(Touch("s1", after(seconds), tool))
        await trio.testing.wait_all_tasks_blocked()
        assert heard(path) == (NOW, None)
        await trio.sleep(1.01)
        assert heard(path) == (after(4), "standby")
        assert statements.count("update session") == 1
        # and again: the reminder is set anew
        store.tell(Touch("s1", after(9), "ping"))
        await trio.sleep(1.01)
        assert heard(path) == (after(9), "ping")
        seen = len(statements.seen)
        await trio.sleep(60)
        assert len(statements.seen) == seen


async def test_a_touch_rides_on_the_next_commit(tmp_path: Path) -> None:
    path, statements = prepared(tmp_path), Statements()
    async with system(path, TaskWriter, on_opened=statements.watch) as running:
        store = running.named("store")
        store.tell(Touch("s1", after(1), "ping"))
        await ask(store, Transact(note("a")))
        assert heard(path) == (after(1), "ping")
        assert statements.count("commit") == 1


async def test_a_touch_is_written_before_the_work_that_follows_it(tmp_path: Path) -> None:
    async with system(prepared(tmp_path), TaskWriter) as running:
        store = running.named("store")
        store.tell(Touch("s1", after(1), "ping"))
        found = await ask(store, Transact(lambda db: sessions.get(db, "s1")))
        assert (found.updated_at, found.last_tool) == (after(1), "ping")


async def test_a_writer_that_is_stopped_writes_what_it_was_told(tmp_path: Path) -> None:
    path = prepared(tmp_path)
    async with system(path, TaskWriter) as running:
        running.named("store").tell(Touch("s1", after(1), "ping"))
        await trio.testing.wait_all_tasks_blocked()
    assert heard(path) == (after(1), "ping")


async def test_a_touch_of_a_session_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    path = prepared(tmp_path)
    async with system(path, TaskWriter) as running:
        store = running.named("store")
        store.tell(Touch("nobody", after(1), "ping"))
        store.tell(Touch("s1", NOW.replace(year=2000), "ping"))
        assert await ask(store, Transact(note("a")))
    assert heard(path) == (NOW, None)
