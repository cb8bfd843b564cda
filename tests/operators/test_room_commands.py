"""The operator commands about rooms: what each asks of the service, and the form of its answer."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from intercom.embedding import EmbeddedOperator
from intercom.model.errors import IntercomError, InvalidArguments, InvalidState, NotFound
from intercom.model.json_types import JsonObject
from intercom.model.room import RoomRefused
from intercom.model.room_view import RoomOperations
from intercom.operators.commands.command import Access
from intercom.operators.commands.command_execution import carry_out
from intercom.operators.commands.command_table import COMMANDS
from intercom.operators.ctl.connection import CtlRequest, failure, success
from intercom.rooms.operations import RoomPeople
from intercom.store.store_and_reader import StoreUnavailable
from tests.operators.stand_in_rooms import StandInRooms, room
from tests.operators.stand_in_service import StandInService

ROOMS = [name for name in COMMANDS if name.startswith("rooms-")]


def with_rooms(rooms: StandInRooms | None = None) -> StandInService:
    service = StandInService()
    service.rooms = rooms or StandInRooms(room("abcd-1"), room("beef-2", "Write the docs"))
    return service


async def ask(service: StandInService, command: str, **fields: Any) -> Any:
    request = CtlRequest(command, fields, verdict_id="12345678")
    data = await carry_out(service, request, "kim", None)  # type: ignore[arg-type]
    # Whatever is answered crosses the socket.
    return json.loads(success(data))["data"]


@pytest.mark.parametrize("implementation", [StandInRooms, RoomPeople])
def test_what_people_do_is_called_as_the_protocol_says(implementation: type) -> None:
    for name, call in vars(RoomOperations).items():
        if inspect.isfunction(call) and not name.startswith("_"):
            its_own = getattr(implementation, name)
            assert list(inspect.signature(its_own).parameters) == list(inspect.signature(call).parameters), name
            assert inspect.iscoroutinefunction(its_own), name


def test_reading_is_open_to_all_and_whatever_writes_or_gives_a_token_is_a_persons() -> None:
    reading = {
        *("rooms-list", "rooms-show", "rooms-tail", "rooms-search", "rooms-export", "rooms-url-show"),
        *("rooms-doc", "rooms-versions", "rooms-instructions"),
    }
    assert {name for name in ROOMS if COMMANDS[name].access is Access.ANYONE} == reading
    assert {COMMANDS[name].access for name in ROOMS if name not in reading} == {Access.OPERATOR}


@pytest.mark.parametrize("command", ROOMS)
async def test_a_server_without_rooms_says_how_to_have_some(command: str) -> None:
    fields = {"id": "abcd", "text": "x", "url": "https://rooms.example.org", "message": 1}
    with pytest.raises(InvalidState, match="run agent-intercom rooms") as refused:
        await ask(StandInService(), command, **fields)
    assert refused.value.error_code == "no_rooms"


ACT = "ctl/12345678"


@pytest.mark.parametrize(
    ("command", "fields", "act", "answer"),
    [
        ("rooms-post", {"id": "abcd", "text": "go on"}, ("post", "abcd-1", "go on", "kim", ACT), {"cursor": 1}),
        (
            "rooms-pause",
            {"id": "abcd", "reason": " enough "},
            ("pause", "abcd-1", "enough", "kim", ACT),
            {"room_id": "abcd-1", "title": "Move the parser", "status": "paused"},
        ),
        ("rooms-pin", {"id": "abcd", "message": 7}, ("pin", "abcd-1", 7, "kim", ACT), {"room_id": "abcd-1"}),
        ("rooms-unpin", {"id": "abcd", "message": 7}, ("unpin", "abcd-1", 7, "kim", ACT), {"room_id": "abcd-1"}),
        (
            "rooms-create",
            {"text": " Port the parser ", "description": "in two parts"},
            ("create", "Port the parser", "in two parts", "kim", ACT),
            {"room_id": "cafe-3", "title": "Port the parser", "status": "opened"},
        ),
        ("rooms-pause", {"id": "abcd"}, ("pause", "abcd-1", None, "kim", ACT), {"status": "paused"}),
        (
            "rooms-conclude",
            {"id": "abcd", "text": "## Conclusion\ncosts $1"},
            ("conclude", "abcd-1", "## Conclusion\ncosts $1", "kim", ACT),
            {"status": "closed", "document_version": 7},
        ),
        (
            "rooms-reopen",
            {"id": "abcd", "reason": "one more"},
            ("reopen", "abcd-1", "one more", "kim", ACT),
            {"status": "reopened"},
        ),
        ("rooms-token", {"id": "abcd"}, ("token", "abcd-1", "kim", ACT), {"token": "t-9.secret", "room_id": "abcd-1"}),
        (
            "rooms-url",
            {"url": "https://rooms.example.org"},
            ("set_address", "https://rooms.example.org", "kim"),
            {"url": "https://rooms.example.org", "is_set": True},
        ),
        ("rooms-url", {"url": ""}, ("set_address", None, "kim"), {"url": "http://127.0.0.1:7423", "is_set": False}),
    ],
)
async def test_a_command_does_what_its_row_says(
    command: str, fields: dict[str, Any], act: tuple[Any, ...], answer: dict[str, Any]
) -> None:
    service = with_rooms()
    data = await ask(service, command, **fields)
    assert service.rooms.acts == [act]
    assert answer.items() <= data.items()


async def test_who_changed_the_address_is_recorded() -> None:
    service = with_rooms()
    await ask(service, "rooms-url", url="https://rooms.example.org")
    summary = "kim changed the address of the rooms to https://rooms.example.org"
    assert service.events == [(summary, {"url": "https://rooms.example.org", "user": "kim", "channel": "ctl"})]


async def test_an_address_that_cannot_be_recorded_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    service = with_rooms()

    async def fails(summary: str, data: JsonObject) -> None:
        raise StoreUnavailable("the database does not answer")

    monkeypatch.setattr(service, "security_event", fails)
    with pytest.raises(StoreUnavailable):
        await ask(service, "rooms-url", url="https://rooms.example.org")
    assert service.rooms.acts == []


async def test_a_paused_room_is_resumed_and_one_that_is_not_paused_is_refused() -> None:
    service = with_rooms()
    with pytest.raises(RoomRefused, match="not paused"):
        await ask(service, "rooms-resume", id="abcd")
    await ask(service, "rooms-pause", id="abcd")
    assert (await ask(service, "rooms-resume", id="abcd"))["status"] == "resumed"
    assert service.rooms.acts[-1] == ("resume", "abcd-1", "kim", ACT)


async def test_what_is_listed_and_shown_has_the_names_of_the_reference() -> None:
    service = with_rooms()
    await ask(service, "rooms-conclude", id="beef", text="done")
    [listed] = (await ask(service, "rooms-list"))["rooms"]
    assert listed["room_id"] == "abcd-1"
    names = {"title", "description", "status", "created_at", "messages", "document_version", "paused_by"}
    assert names <= listed.keys()
    assert len((await ask(service, "rooms-list", everything=True))["rooms"]) == 2
    shown = await ask(service, "rooms-show", id="abcd")
    assert shown["document"].startswith("# Goals")
    assert [each["status"] for each in shown["teams"]] == ["active", "disconnected"]
    assert "hash" not in json.dumps(shown)


async def test_a_feed_is_read_from_its_end_or_after_a_cursor() -> None:
    service = with_rooms()
    service.rooms.tells("abcd-1", "team_joined", team="Alex's Team")
    for number in range(4):
        service.rooms.says("abcd-1", "Alex's Team", f"line {number}")
    last = await ask(service, "rooms-tail", id="abcd", limit=2)
    assert [each["cursor"] for each in last["messages"]] == [4, 5]
    assert (last["room_id"], last["is_closed"]) == ("abcd-1", False)
    first = (await ask(service, "rooms-tail", id="abcd", start=0, limit=2))["messages"]
    assert [each["cursor"] for each in first] == [1, 2]
    assert first[0]["content"] == {"event": "team_joined", "team": "Alex's Team"}
    assert first[1].items() >= {"author": "Alex's Team", "role": "member", "type": "chat"}.items()


async def test_a_search_says_where_its_words_are() -> None:
    matches = (await ask(with_rooms(), "rooms-search", text="parser split", limit=3))["matches"]
    assert len(matches) == 3
    assert matches[0] == {
        "room_id": "abcd-1",
        "title": "Move the parser",
        "where": "feed",
        "cursor": 3,
        "excerpt": "... parser split ...",
    }
    assert matches[1]["cursor"] is None


async def test_a_room_is_exported_as_text_or_as_an_object() -> None:
    service = with_rooms()
    assert (await ask(service, "rooms-export", id="abcd"))["content"].startswith("# Move the parser")
    assert (await ask(service, "rooms-export", id="abcd", format="json"))["content"]["format"] == "intercom-room"
    with pytest.raises(InvalidArguments, match="format takes one of markdown, json"):
        await ask(service, "rooms-export", id="abcd", format="pdf")


@pytest.mark.parametrize(
    ("command", "fields", "error", "says"),
    [
        ("rooms-show", {}, InvalidArguments, "needs a room's id"),
        ("rooms-show", {"id": "zzz"}, NotFound, "see rooms list"),
        ("rooms-post", {"id": "abcd"}, InvalidArguments, "needs a text"),
        ("rooms-conclude", {"id": "abcd"}, InvalidArguments, "needs a summary"),
        ("rooms-url", {}, InvalidArguments, "needs an address"),
        ("rooms-url", {"url": "ftp://x"}, InvalidArguments, "is no address"),
        # What becomes part of commands and files that people copy.
        ("rooms-url", {"url": "https://e/$(id)"}, InvalidArguments, "is no address"),
        ("rooms-url", {"url": "https://e/\u202ex"}, InvalidArguments, "is no address"),
        ("rooms-url", {"url": "https://e/'x"}, InvalidArguments, "is no address"),
        # Ports and hosts that there cannot be.
        ("rooms-url", {"url": "https://e:99999"}, InvalidArguments, "is no address"),
        ("rooms-url", {"url": "https://e:0/"}, InvalidArguments, "is no address"),
        ("rooms-url", {"url": "https://[:::]"}, InvalidArguments, "is no address"),
    ],
)
async def test_what_is_wrong_is_said_and_nothing_is_recorded_of_it(
    command: str, fields: dict[str, Any], error: type[IntercomError], says: str
) -> None:
    service = with_rooms()
    with pytest.raises(error, match=says):
        await ask(service, command, **fields)
    assert service.events == []


async def test_a_refusal_of_a_room_keeps_its_code() -> None:
    service = with_rooms()
    await ask(service, "rooms-conclude", id="abcd", text="done")
    with pytest.raises(RoomRefused) as refused:
        await ask(service, "rooms-post", id="abcd", text="more")
    assert json.loads(failure(refused.value))["error_code"] == "session_closed"


async def test_a_program_that_embeds_the_server_has_the_same_commands() -> None:
    from types import SimpleNamespace

    from tests.operators.stand_in_service import START

    service = with_rooms()
    app: Any = SimpleNamespace(service=service, session_deps=SimpleNamespace(now=lambda: START))
    posted = await EmbeddedOperator(app, "lee").command("rooms-post", id="abcd", text="hello", act="first")
    assert posted.sequence == 1
    assert service.rooms.acts == [("post", "abcd-1", "hello", "lee", "embed/lee/first")]
