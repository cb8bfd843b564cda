"""Reads beside the writer."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from intercom.model.errors import DatabaseError
from intercom.store import audit, sessions
from intercom.store.database import Database, open_database
from intercom.store.store_and_reader import Reader

from . import cases

pytestmark = pytest.mark.real_time


def prepared(tmp_path: Path) -> tuple[Path, Database]:
    path = tmp_path / "intercom.db"
    db = open_database(path).db
    sessions.insert(db, cases.session("s1"))
    return path, db


async def test_a_read_sees_what_is_committed_and_no_more(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path)
    assert await reader.read(lambda mine: sessions.get(mine, "s1")) == cases.session("s1")
    db.execute("begin immediate")
    sessions.insert(db, cases.session("s2"))
    assert await reader.read(lambda mine: len(sessions.live(mine))) == 1
    db.commit()
    assert await reader.read(lambda mine: len(sessions.live(mine))) == 2
    reader.close()
    db.close()


async def test_a_read_sees_one_state_throughout(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path)
    half, go_on = threading.Event(), threading.Event()

    def count_twice(mine: Database) -> tuple[int, int]:
        first = len(sessions.live(mine))
        half.set()
        go_on.wait(30)
        return first, len(sessions.live(mine))

    async with trio.open_nursery() as nursery:
        found: list[tuple[int, int]] = []

        async def read() -> None:
            found.append(await reader.read(count_twice))

        nursery.start_soon(read)
        await trio.to_thread.run_sync(half.wait)
        sessions.insert(db, cases.session("s2"))
        go_on.set()
    assert found == [(1, 1)]
    reader.close()
    db.close()


async def test_searches_leave_room_for_reads(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path, connections=2)
    begun, go_on = threading.Event(), threading.Event()

    def look_through(_: Database) -> None:
        begun.set()
        go_on.wait(30)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(reader.search, look_through)
        await trio.to_thread.run_sync(begun.wait)
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(20) as late:
            assert await reader.read(lambda mine: sessions.get(mine, "s1")) == cases.session("s1")
        go_on.set()
    assert not late.cancelled_caught
    reader.close()
    db.close()


async def test_a_read_can_not_write(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path)
    with pytest.raises(DatabaseError, match="no permission to write"):
        await reader.read(lambda mine: audit.record(mine, cases.NOW, "noted", None, "test", "no"))
    assert audit.recent(db, 9) == ()
    reader.close()
    db.close()


async def test_a_read_that_fails_harms_no_other(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path, connections=1)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await reader.read(lambda mine: mine.execute("select * from nowhere"))
    nothing: dict[str, str] = {}
    with pytest.raises(KeyError):
        await reader.read(lambda mine: nothing["typo"])
    assert await reader.read(lambda mine: len(sessions.live(mine))) == 1
    reader.close()
    db.close()


async def test_no_more_connections_than_allowed(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path, connections=2)
    running = most = 0
    lock = threading.Lock()
    seen: set[int] = set()

    def work(mine: Database) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            seen.add(id(mine))
        sessions.live(mine)
        with lock:
            running -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(40):
            nursery.start_soon(reader.read, work)
    assert most <= 2
    assert len(seen) <= 2
    reader.close()
    db.close()


@pytest.mark.parametrize(("idle_seconds", "left"), [(3600.0, 3), (0.0, 1)])
def test_a_connection_that_nobody_uses_is_closed(tmp_path: Path, idle_seconds: float, left: int) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path, idle_seconds=idle_seconds)
    opened: list[Database] = []

    def work(mine: Database) -> None:
        opened.append(mine)
        if len(opened) < 3:
            reader.read_sync(work)

    reader.read_sync(work)
    assert reader.read_sync(lambda mine: mine) is opened[0], "the one that was used last is used next"
    assert sum(works(each) for each in opened) == left
    reader.close()
    assert sum(works(each) for each in opened) == 0
    db.close()


def works(db: Database) -> bool:
    try:
        db.execute("select 1")
    except sqlite3.ProgrammingError:
        return False
    return True


async def test_a_closed_reader_refuses(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path)
    await reader.read(lambda mine: None)
    # also one that is closed while a read is under way
    await reader.read(lambda mine: reader.close())
    with pytest.raises(DatabaseError, match="the server is stopping"):
        await reader.read(lambda mine: None)
    db.close()


async def test_a_file_moved_aside_is_read_no_more(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path)
    assert await reader.read(lambda mine: len(sessions.live(mine))) == 1
    # else the log, which the reader keeps open, would mend the file
    db.execute("pragma wal_checkpoint(truncate)").fetchall()
    db.close()
    path.write_bytes(b"rubbish" * 1000)
    opened = open_database(path)
    assert opened.moved_aside is not None
    sessions.insert(opened.db, cases.session("s2"))
    assert await reader.read(lambda mine: [session.id for session in sessions.live(mine)]) == ["s2"]
    # the reader's connection to the old file, closed last, took nothing of the new one's with it
    sessions.insert(opened.db, cases.session("s3"))
    assert await reader.read(lambda mine: [session.id for session in sessions.live(mine)]) == ["s2", "s3"]
    reader.close()
    opened.db.close()
    again = open_database(path)
    assert (len(sessions.live(again.db)), again.moved_aside) == (2, None)
    again.db.close()


async def test_a_database_that_is_not_there_is_said(tmp_path: Path) -> None:
    reader = Reader(tmp_path / "intercom.db")
    with pytest.raises(DatabaseError, match="cannot be read \\(no such file or directory\\)"):
        await reader.read(lambda mine: None)
    assert os.listdir(tmp_path) == []


def test_reading_works_without_an_event_loop(tmp_path: Path) -> None:
    path, db = prepared(tmp_path)
    reader = Reader(path)
    assert reader.read_sync(lambda mine: sessions.get(mine, "s1")) == cases.session("s1")
    reader.close()
    db.close()
