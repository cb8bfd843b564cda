"""The stream of one room: nothing is lost, nothing comes twice, and a slow reader is cut off and comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import NotFound
from intercom.model.room import Presence, RoomErrorCode, RoomRefused, RoomStatus
from intercom.model.web_role import WebRole
from intercom.operators.web.events import COMMENT_SECONDS
from intercom.operators.web.room_events import MOST_BEHIND, NEWEST, beginning, stream
from tests.operators.stand_in_rooms import StandInRooms, room
from tests.operators.stand_in_service import StandInService
from tests.operators.web.page_server import API, page_server

ID = "abcd-1"


@define
class Reader:
    """A page: keeps the messages by number, and remembers the last id."""

    names: list[str] = field(factory=list)
    messages: dict[int, str] = field(factory=dict)
    rooms: list[dict[str, Any]] = field(factory=list)
    twice: list[int] = field(factory=list)
    last: str = ""
    comments: int = 0
    is_ready: trio.Event = field(factory=trio.Event)

    async def take(self, part: bytes) -> None:
        for event in filter(None, part.decode("ascii").split("\n\n")):
            if event.startswith(":"):
                self.comments += 1
                continue
            fields: dict[str, str] = dict(line.split(": ", 1) for line in event.split("\n"))
            self._apply(fields["event"], json.loads(fields["data"]))
            self.last = fields.get("id", self.last)
        await trio.lowlevel.checkpoint()

    def _apply(self, name: str, data: dict[str, Any]) -> None:
        self.names.append(name)
        match name:
            case "reset":
                self.messages.clear()
            case "message":
                if data["cursor"] in self.messages:
                    self.twice.append(data["cursor"])
                self.messages[data["cursor"]] = data["content"]["text"]
            case "room":
                self.rooms.append(data)
            case "ready":
                self.is_ready.set()


async def follow(rooms: StandInRooms, reader: Reader, seconds: float = 3) -> None:
    """Read for a while, from where the reader was."""
    with trio.move_on_after(seconds):
        await stream(rooms, await beginning(rooms, ID, reader.last), reader.take, lambda: True)


def talk(rooms: StandInRooms, count: int) -> None:
    for _ in range(count):
        rooms.says(ID, "Alex's Team", f"text {rooms.rooms[room(ID).id].last_sequence + 1}")


async def test_a_reader_begins_with_the_newest_messages_and_goes_on_with_what_comes() -> None:
    rooms, reader = StandInRooms(), Reader()
    talk(rooms, NEWEST + 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, rooms, reader)
        await reader.is_ready.wait()
        assert reader.names == ["reset", *["message"] * NEWEST, "room", "ready"]
        assert min(reader.messages) == 11
        talk(rooms, 2)
    assert [*reader.messages.values()][-2:] == [f"text {NEWEST + 11}", f"text {NEWEST + 12}"]
    assert reader.last == str(NEWEST + 12)


async def test_a_reader_resumes_where_it_was_after_any_restart() -> None:
    rooms, reader = StandInRooms(), Reader()
    talk(rooms, 3)
    await follow(rooms, reader)
    talk(rooms, MOST_BEHIND)
    await follow(rooms, reader)
    assert reader.names.count("reset") == 1
    assert sorted(reader.messages) == [*range(1, MOST_BEHIND + 4)]
    assert reader.twice == []


@pytest.mark.parametrize("last", ["", "x", "-1", "9", "1-1", "9" * 40])
async def test_a_place_that_the_feed_does_not_have_begins_again(last: str) -> None:
    rooms, reader = StandInRooms(), Reader(last=last)
    talk(rooms, 2)
    await follow(rooms, reader)
    assert reader.names == ["reset", "message", "message", "room", "ready"]


async def test_a_reader_that_is_far_behind_begins_near_the_end() -> None:
    rooms, reader = StandInRooms(), Reader(last="1")
    talk(rooms, MOST_BEHIND + 2)
    await follow(rooms, reader)
    assert reader.names[0] == "reset"
    assert min(reader.messages) == MOST_BEHIND + 3 - NEWEST


async def test_a_reader_that_falls_behind_is_cut_off() -> None:
    rooms, reader = StandInRooms(), Reader()
    talk(rooms, 1)
    proceed = trio.Event()

    async def slow(part: bytes) -> None:
        await reader.take(part)
        if 2 in reader.messages:
            await proceed.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream, rooms, await beginning(rooms, ID, ""), slow, lambda: True)
        await reader.is_ready.wait()
        talk(rooms, 1)
        await trio.testing.wait_all_tasks_blocked()
        talk(rooms, MOST_BEHIND + 200)
        # The stream returns by itself.
        proceed.set()
    assert len(reader.messages) < MOST_BEHIND
    await follow(rooms, reader)
    assert [reader.names.count("reset"), max(reader.messages)] == [2, MOST_BEHIND + 202]


async def test_what_changes_is_told_at_once_and_a_team_that_falls_silent_within_a_second() -> None:
    rooms, reader = StandInRooms(), Reader()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, rooms, reader, 30)
        await reader.is_ready.wait()
        begin = trio.current_time()
        rooms.set(ID, title="Port the lexer")
        await trio.testing.wait_all_tasks_blocked()
        assert [reader.rooms[-1]["title"], trio.current_time()] == ["Port the lexer", begin]
        rooms.presence = Presence.IDLE
        await trio.sleep(1.1)
        assert reader.rooms[-1]["teams"][0]["status"] == "idle"
        rooms.set(ID, status=RoomStatus.CLOSED, session_doc_version=4)
        await trio.testing.wait_all_tasks_blocked()
        assert [reader.rooms[-1][each] for each in ("status", "document_version")] == ["closed", 4]
        nursery.cancel_scope.cancel()
    assert len(reader.rooms) == 4


async def test_a_quiet_stream_sends_comments_and_no_rooms() -> None:
    rooms, reader = StandInRooms(), Reader()
    await follow(rooms, reader, 3.5 * COMMENT_SECONDS)
    assert reader.comments == 3
    assert reader.names == ["reset", "room", "ready"]


async def test_a_reader_who_signs_out_gets_nothing_more() -> None:
    rooms, reader, lasts = StandInRooms(), Reader(), True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream, rooms, await beginning(rooms, ID, ""), reader.take, lambda: lasts)
        await reader.is_ready.wait()
        lasts = False
    assert reader.messages == {}


@given(data=st.data())
def test_however_often_it_is_cut_off_a_reader_has_each_message_once(data: st.DataObject) -> None:
    async def run() -> None:
        rooms, reader = StandInRooms(), Reader()
        for _ in range(data.draw(st.integers(1, 6))):
            talk(rooms, data.draw(st.integers(0, 130)))
            most = data.draw(st.integers(1, 400))

            async def take(part: bytes, most: int = most) -> None:
                for event in part.split(b"\n\n")[:most]:
                    await reader.take(event + b"\n\n")
                if part.count(b"\n\n") > most:
                    # The connection broke in the middle of a part.
                    raise trio.BrokenResourceError

            with trio.move_on_after(2):
                try:
                    await stream(rooms, await beginning(rooms, ID, reader.last), take, lambda: True)
                except trio.BrokenResourceError:
                    continue
        await follow(rooms, reader)
        total = rooms.rooms[room(ID).id].last_sequence
        first = min(reader.messages, default=total + 1)
        assert [*reader.messages] == [*range(first, total + 1)]
        assert reader.twice == []

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def test_a_room_that_does_not_exist_has_no_stream() -> None:
    with pytest.raises(NotFound):
        await beginning(StandInRooms(), "beef", "")


# --- over the page's port --------------------------------------------------------------------------------------------


def with_rooms(*more: str) -> StandInService:
    service = StandInService()
    service.rooms = StandInRooms(room("abcd-1"), *[room(each) for each in more])
    return service


@pytest.mark.real_time
async def test_whoever_is_signed_in_sees_a_room_and_a_viewer_does_nothing_in_it(tmp_path: Path) -> None:
    service = with_rooms()
    rooms = service.rooms
    assert isinstance(rooms, StandInRooms)
    async with page_server(tmp_path, service) as server:
        browser = await server.browser(WebRole.VIEWER)
        async with browser.events(path="/rooms/abcd-1/events") as events:
            assert [(await events.next())[0] for _ in range(3)] == ["reset", "room", "ready"]
            rooms.says("abcd-1", "Alex's Team", "hello")
            name, message, id = await events.next()
            assert (name, message["content"], id) == ("message", {"text": "hello"}, "1")
        for command in ("rooms-post", "rooms-pin", "rooms-pause", "rooms-conclude", "rooms-create"):
            assert (await browser.command(command, id="abcd-1", text="x", message=1)).status == 403
        assert (await browser.command("rooms-doc", id="abcd-1")).status == 200
        operator = await server.browser(WebRole.OPERATOR)
        assert (await operator.command("rooms-post", id="abcd-1", text="x", verdict_id="12345678")).status == 200
        assert rooms.acts == [("post", "abcd-1", "x", "kim", "web/12345678")]
        assert (await browser.get(f"{API}/rooms/ffff/events")).status == 404
        assert (await browser.get(f"{API}/rooms/../events")).status == 404
        assert (await evolve(browser, cookie="").get(f"{API}/rooms/abcd-1/events")).status == 401
        assert (await browser.get(f"{API}/rooms/abcd-1/events", Sec_Fetch_Site="cross-site")).status == 403
        assert (await browser.post("/rooms/abcd-1/events", {})).status == 405


@pytest.mark.real_time
async def test_a_server_without_rooms_says_so_and_one_whose_rooms_fail_is_come_back_to(tmp_path: Path) -> None:
    service = StandInService()
    async with page_server(tmp_path, service) as server:
        browser = await server.browser()
        answer = await browser.get(f"{API}/rooms/abcd-1/events")
        assert (answer.status, answer.json()["error"]["code"]) == (404, "no_rooms")
        rooms = service.rooms = StandInRooms()

        async def fails(*_: object) -> Any:
            raise RoomRefused(RoomErrorCode.UNAVAILABLE, "the database is away")

        async with browser.events(path="/rooms/abcd-1/events") as events:
            while (await events.next())[0] != "ready":
                pass
            rooms.news = fails  # type: ignore[method-assign]
            rooms.says("abcd-1", "Alex's Team", "hello")
            await events.until_end()
