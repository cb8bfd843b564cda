"""Other programs at the database's files while it is open: nothing is lost that can be kept, nothing is said to be
saved that is not, and it is told.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from attrs import frozen

from actors import ChildSpec, Down, System, ask
from intercom.model.errors import DatabaseError
from intercom.store import audit, database, writer
from intercom.store.database import Fault, connect, open_database
from intercom.store.store_and_reader import Reader
from intercom.store.writer import Writer
from intercom.store.writer_messages import Inspect, Transact
from tests.store.test_writer import note, words

pytestmark = pytest.mark.real_time

Act = Callable[[Path], object]


@frozen
class Store:
    """A running writer, and what it told."""

    system: System
    path: Path
    faults: list[Fault]

    async def write(self, word: str) -> None:
        await ask(self.system.named("store"), Transact(note(word)), timeout=20)

    async def inspect(self) -> None:
        """Have the files looked at, and wait until that is over."""
        self.system.named("store").tell(Inspect())
        await ask(self.system.named("store"), Transact(lambda _db: None), timeout=20)

    async def look(self) -> None:
        """The same, where the store may refuse to be asked."""
        try:
            await self.inspect()
        except DatabaseError:
            pass

    def told(self, level: str) -> list[str]:
        return [fault.text for fault in self.faults if fault.level == level]


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Store]:
    path = tmp_path / "state" / "intercom.db"
    faults: list[Fault] = []
    async with System([ChildSpec("store", lambda: Writer(path, on_fault=faults.append))]) as system:
        yield Store(system, path, faults)


def foreign(path: Path) -> bytes:
    """Another sound database of ours, as a file."""
    db = open_database(path).db
    for number in range(3):
        audit.record(db, writer.datetime.now(writer.UTC), "noted", None, "test", f"foreign {number}")
    db.execute("pragma journal_mode = delete")
    db.close()
    return path.read_bytes()


def remove(path: Path) -> None:
    path.unlink()


def remove_all(path: Path) -> None:
    for each in path.parent.iterdir():
        each.unlink()


def remove_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


def remove_log(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def remove_index(path: Path) -> None:
    path.with_name(f"{path.name}-shm").unlink()


def replace_by_another(path: Path) -> None:
    other = path.with_name("other.db")
    foreign(other)
    os.replace(other, path)


def replace_by_rubbish(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("rubbish")
    os.replace(other, path)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


TAKEN_AWAY = [
    remove,
    remove_all,
    remove_directory,
    remove_log,
    remove_index,
    replace_by_another,
    replace_by_rubbish,
    replace_by_directory,
]


@pytest.mark.parametrize("act", TAKEN_AWAY)
@pytest.mark.parametrize("noticed_by", ["a commit", "a look"])
async def test_what_was_taken_away_is_put_back_whole(tmp_path: Path, act: Act, noticed_by: str) -> None:
    async with running(tmp_path) as store:
        for word in ("one", "two"):
            await store.write(word)
        act(store.path)
        if noticed_by == "a look":
            await store.inspect()
        await store.write("three")
        # Whoever opens it now, or after the server's end, finds what was said to be saved.
        assert sorted(words(store.path)) == ["one", "three", "two"]
        [text] = store.told("error")
        assert "was restored completely" in text
        reader = Reader(store.path)
        found = await reader.read(lambda db: [entry.summary for entry in audit.recent(db, 9)])
        assert sorted(found) == ["one", "three", "two"]
        reader.close()
    assert sorted(words(store.path)) == ["one", "three", "two"]


@pytest.mark.parametrize("act", [replace_by_another, replace_by_rubbish])
async def test_what_stood_in_its_place_is_kept_too(tmp_path: Path, act: Act) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        act(store.path)
        left = store.path.read_bytes()
        await store.inspect()
        [kept] = database.damaged_copies(store.path)
        assert kept.read_bytes() == left
        assert str(kept) in store.told("error")[0]


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def cut_in_half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwrite_with_rubbish(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"rubbish " * (size // 8))


def overwrite_with_another(path: Path) -> None:
    content = foreign(path.with_name("other.db"))
    with path.open("r+b") as file:
        file.write(content.ljust(path.stat().st_size, b"\0"))


def checkpoint(path: Path) -> None:
    """Have all that was written in the file itself, as after some time."""
    db = connect(path)
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()


@pytest.mark.parametrize("act", [cut_to_nothing, cut_in_half, overwrite_with_rubbish, overwrite_with_another])
async def test_what_was_spoilt_is_moved_aside_and_nothing_more_is_said_to_be_saved(tmp_path: Path, act: Act) -> None:
    async with running(tmp_path) as store:
        for number in range(20):
            await store.write(f"word {number}")
        checkpoint(store.path)
        await store.look()
        act(store.path)
        left = store.path.read_bytes()
        await store.look()
        [fatal] = [fault for fault in store.faults if fault.fatal]
        assert "the server ends" in fatal.text
        for _ in range(2):
            with pytest.raises(DatabaseError, match="the server ends"):
                await store.write("lost")
        [kept] = database.damaged_copies(store.path)
        assert kept.read_bytes() == left
        assert not store.path.exists()
    # The next server begins anew, and has something to tell.
    word = database.take_incident(store.path)
    assert word is not None
    assert str(kept) in word
    assert database.take_incident(store.path) is None


async def test_a_commit_notices_a_cut_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        checkpoint(store.path)
        await store.look()
        cut_to_nothing(store.path)
        with pytest.raises((DatabaseError, Down)):
            await store.write("two")
        await store.look()
        assert [fault.fatal for fault in store.faults if fault.level == "error"] == [True]
        assert not store.path.exists()


async def test_while_it_cannot_be_put_back_nothing_is_saved_and_everything_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        rescue = database.rescue

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(database, "rescue", full)
        remove_all(store.path)
        for _ in range(3):
            with pytest.raises(DatabaseError, match="nothing is saved until then"):
                await store.write("two")
        await store.look()
        # Told once.
        assert len(store.told("error")) == 1
        monkeypatch.setattr(database, "rescue", rescue)
        await store.inspect()
        await store.write("three")
    found = words(store.path)
    # What was refused may have been committed all the same, once; what was answered is there.
    assert {"one", "three"} <= set(found) <= {"one", "two", "three"}


async def test_a_writer_that_stops_puts_it_back_first(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        remove_all(store.path)
    assert words(store.path) == ["one"]


async def test_a_database_that_is_taken_away_again_and_again_ends_the_server(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        for _ in range(writer.MOST_RESCUES):
            remove(store.path)
            await store.inspect()
        assert not [fault for fault in store.faults if fault.fatal]
        remove(store.path)
        await store.look()
        assert [fault for fault in store.faults if fault.fatal]


async def test_another_programs_change_is_told_and_its_checkpoint_is_not(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        for _ in range(3):
            other = sqlite3.connect(store.path)
            other.execute("pragma wal_checkpoint(passive)")
            other.close()
            await store.inspect()
        assert store.faults == []
        other = sqlite3.connect(store.path)
        other.execute("update audit set summary = 'other'")
        other.commit()
        other.close()
        await store.inspect()
        await store.inspect()
        # Once.
        [text] = store.told("warning")
        assert "another program writes to the database" in text


async def test_a_full_disk_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        await ask(store.system.named("store"), Transact(lambda db: db.execute("pragma max_page_count = 1")), timeout=20)
        for _ in range(3):
            with pytest.raises(DatabaseError, match="is full"):
                await store.write("x" * 100_000)
        await store.look()
        [text] = store.told("error")
        assert "nothing was written" in text
        await ask(
            store.system.named("store"), Transact(lambda db: db.execute("pragma max_page_count = 100000")), timeout=20
        )
        await store.write("x" * 100_000)
        [text] = store.told("info")
        assert "can be written again" in text


async def test_a_disk_without_space_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as store:
        await store.write("one")
        statvfs = os.statvfs

        def full(path: Path) -> os.statvfs_result:
            found = list(statvfs(path))
            found[4] = 0  # f_bavail
            return os.statvfs_result(found)

        monkeypatch.setattr(os, "statvfs", full)
        await store.inspect()
        assert "is full" in store.told("error")[0]
        monkeypatch.setattr(os, "statvfs", statvfs)
        await store.inspect()
        assert "can be written again" in store.told("info")[0]


async def test_where_nothing_is_done_to_it_nothing_is_told(tmp_path: Path) -> None:
    async with running(tmp_path) as store:
        for number in range(50):
            await store.write(f"{number} " + "x" * 20_000)
            await store.inspect()
        await trio.lowlevel.checkpoint()
        assert store.faults == []


def test_copies_are_listed_by_the_time_they_were_moved_aside(tmp_path: Path) -> None:
    names = [
        "intercom.db.replaced-20260101T000000Z",
        "intercom.db.damaged-20260102T000000Z",
        "intercom.db.damaged-20260102T000000Z-2",
        "intercom.db.damaged-20260102T000000Z-10",
        "intercom.db.replaced-20260103T000000Z",
    ]
    for name in (*names, f"{names[0]}-wal"):
        (tmp_path / name).touch()
    assert [copy.name for copy in database.damaged_copies(tmp_path / "intercom.db")] == names
