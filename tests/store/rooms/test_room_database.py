"""The stores of rooms: transactions, reads, and what they do when something fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.model import crash_points
from intercom.model.errors import DatabaseError
from intercom.model.room import Message, RoomErrorCode, RoomId, RoomRefused
from intercom.store import room_schema, rooms
from intercom.store.database import Fault, connect, open_database
from intercom.store.room_database import RoomsDatabase, RoomStore, SqliteDatabase, SqliteRooms
from tests.support.room_databases import store_at

from . import cases
from .cases import id_of, new_room, say

pytestmark = pytest.mark.real_time

ROOM = cases.room().id


async def write(store: RoomStore, *texts: str) -> tuple[Message, ...]:
    return await store.transact(ROOM, lambda db: say(db, *texts))


async def feed(store: RoomStore) -> list[object]:
    found = await store.read(partial(rooms.after, room_id=ROOM, sequence=0, limit=10_000))
    assert [each.sequence for each in found] == list(range(1, len(found) + 1))
    return [each.content["text"] for each in found]


async def test_what_was_written_is_read(room_store: RoomStore) -> None:
    await room_store.transact(ROOM, new_room)
    [added] = await write(room_store, "hello")
    assert added.sequence == 1
    assert await feed(room_store) == ["hello"]


async def test_a_refused_work_changes_nothing(room_store: RoomStore) -> None:
    def refuse(db: RoomsDatabase) -> None:
        say(db, "refused")
        raise RoomRefused(RoomErrorCode.CONFLICT, "no", current_version=3)

    await room_store.transact(ROOM, new_room)
    with pytest.raises(RoomRefused) as refused:
        await room_store.transact(ROOM, refuse)
    assert (refused.value.status, refused.value.details) == (409, {"current_version": 3})
    await write(room_store, "after")
    assert await feed(room_store) == ["after"]
    with pytest.raises(RoomRefused):
        await room_store.read(partial(rooms.lock, id="nonsense"))


async def test_writers_at_once_leave_no_gap_and_are_never_seen_out_of_order(room_store: RoomStore) -> None:
    """Twenty writers in two rooms, and a reader that has seen everything before what it sees next."""
    names = ["room", "other"]
    for name in names:
        await room_store.transact(id_of(f"room {name}"), partial(new_room, name=name))
    done = 0

    async def write_one(name: str, text: str) -> None:
        await room_store.transact(id_of(f"room {name}"), lambda db: say(db, text, room=name))

    async def writer(number: int) -> None:
        nonlocal done
        for place in range(20):
            await write_one(names[number % 2], f"{number} {place}")
        done += 1

    async def reader(name: str) -> None:
        room, cursor = id_of(f"room {name}"), 0
        while done < 20 or cursor < 200:
            page = await room_store.read(partial(rooms.after, room_id=room, sequence=cursor, limit=50))
            assert [each.sequence for each in page] == list(range(cursor + 1, cursor + 1 + len(page)))
            cursor += len(page)
            await trio.sleep(0.001)
        assert cursor == 200

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(reader, name)
        for number in range(20):
            nursery.start_soon(writer, number)


async def test_a_read_sees_one_state(room_store: RoomStore) -> None:
    await room_store.transact(ROOM, new_room)
    token = trio.lowlevel.current_trio_token()

    def read(db: RoomsDatabase) -> tuple[Any, Any]:
        before = rooms.get(db, ROOM)
        # This runs in a thread: another transaction ends before the second query.
        trio.from_thread.run(write, room_store, "meanwhile", trio_token=token)
        return before, rooms.get(db, ROOM)

    before, after = await room_store.read(read)
    assert before == after == cases.room()
    assert await feed(room_store) == ["meanwhile"]


# --- SQLite ----------------------------------------------------------------------------------------------------------


def once(db: RoomsDatabase) -> Message:
    """A work that is safe to repeat."""
    message = cases.message("once")
    room = rooms.lock(db, ROOM)
    return rooms.message_by_id(db, ROOM, message.id) or rooms.add_messages(db, room, [message])[1][0]


@pytest.mark.parametrize("point", ["store.before_commit", "store.after_commit"])
async def test_a_work_is_run_again_if_the_writer_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def crash(name: str) -> None:
        if name == point:
            monkeypatch.setattr(crash_points, "hook", None)
            raise RuntimeError("crashes here")

    async with store_at(tmp_path / "rooms.db") as store:
        await store.transact(ROOM, new_room)
        monkeypatch.setattr(crash_points, "hook", crash)
        assert (await store.transact(ROOM, once)).sequence == 1
        assert await feed(store) == ["once"]


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "rooms.db"
    async with store_at(path) as store:
        await store.transact(ROOM, new_room)
        await write(store, "hello")
    assert path.stat().st_mode & 0o777 == 0o600
    async with store_at(path) as store:
        assert await feed(store) == ["hello"]
        assert [hit.sequence for hit in await store.read(partial(rooms.search, words="hello", limit=5))] == [1]
    with pytest.raises(DatabaseError, match="stopping"):
        await feed(store)


async def test_a_file_that_is_removed_is_put_back(tmp_path: Path) -> None:
    path, faults = tmp_path / "rooms.db", list[Fault]()
    async with store_at(path, on_fault=faults.append) as store:
        assert isinstance(store, SqliteRooms)
        await store.transact(ROOM, new_room)
        path.unlink()
        store.inspect()
        await write(store, "hello")
        assert path.exists()
        assert await feed(store) == ["hello"]
    assert [fault.level for fault in faults] == ["error"]
    assert "was restored completely" in faults[0].text


async def test_a_file_that_is_overwritten_by_an_older_one_is_not_trusted(tmp_path: Path) -> None:
    """The number of its newest message has fallen."""
    path, faults = tmp_path / "rooms.db", list[Fault]()
    older = open_database(tmp_path / "older.db", migrations=room_schema.SQLITE).db
    new_room(SqliteDatabase(older))
    older.execute("pragma journal_mode = delete")
    older.close()
    async with store_at(path, on_fault=faults.append) as store:
        assert isinstance(store, SqliteRooms)
        await store.transact(ROOM, new_room)
        await write(store, "hello")
        # As after some time: everything is in the file itself.
        other = connect(path)
        other.execute("pragma wal_checkpoint(truncate)")
        other.close()
        store.inspect()
        await store.transact(ROOM, lambda _db: None)
        assert [fault for fault in faults if fault.fatal] == []
        with path.open("r+b") as file:
            file.write((tmp_path / "older.db").read_bytes().ljust(path.stat().st_size, b"\0"))
        store.inspect()
        with pytest.raises(DatabaseError):
            await write(store, "again")
    assert len([fault for fault in faults if fault.fatal]) == 1


async def test_nobody_is_woken(tmp_path: Path) -> None:
    woken: list[str] = []
    async with store_at(tmp_path / "rooms.db") as store:
        store.on_wake(woken.append)
        store.wake([RoomId(ROOM)])
        await store.transact(ROOM, new_room)
    assert woken == []
