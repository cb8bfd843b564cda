"""ctl in rooms: it reads them, writes into them, and finds the server that has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.cli.ctl import fields_of, hoist, parser
from intercom.cli.ctl_rooms import event_line
from intercom.local.places import ROOMS_IPC_NAME
from intercom.model.room import RoomEvent, TeamRole
from tests.cli.test_ctl import run
from tests.operators.ctl_server import CtlServer, ctl_server, environ
from tests.operators.stand_in_rooms import StandInRooms, room
from tests.operators.stand_in_service import StandInService

pytestmark = pytest.mark.real_time


def service(*, has_rooms: bool = True) -> StandInService:
    made = StandInService()
    if has_rooms:
        made.rooms = StandInRooms(room("abcd-1"), room("beef-2", "Write\x1b[2J the docs"))
    return made


def talk(server: CtlServer) -> StandInRooms:
    """Fill a feed, with a message that wants to control the terminal and to look like two."""
    rooms: StandInRooms = server.service.rooms
    rooms.tells("abcd-1", "team_joined", team="Alex's Team")
    rooms.says("abcd-1", "Alex's Team", "hello")
    rooms.says("abcd-1", "Kim's\x1b[2J Team", "one\n#9 12:00:09 Alex's Team: two")
    rooms.says("abcd-1", "lee", "go on", TeamRole.OPERATOR)
    return rooms


@pytest.mark.parametrize(
    ("line", "verb", "fields"),
    [
        ("rooms list", "rooms-list", {}),
        ("rooms list --all --limit 3", "rooms-list", {"everything": True, "limit": 3}),
        ("rooms show abcd", "rooms-show", {"id": "abcd"}),
        ("rooms tail abcd -f --lines 9", "rooms-tail", {"id": "abcd", "limit": 9}),
        ("rooms post abcd go on", "rooms-post", {"id": "abcd", "text": "go on"}),
        ("rooms post abcd use the --config file now", None, {}),
        ("rooms post abcd -- use --json", "rooms-post", {"id": "abcd", "text": "use --json"}),
        ("rooms conclude abcd we are done", "rooms-conclude", {"id": "abcd", "text": "we are done"}),
        ("rooms pause abcd --reason enough", "rooms-pause", {"id": "abcd", "reason": "enough"}),
        ("rooms resume abcd", "rooms-resume", {"id": "abcd"}),
        ("rooms search two words --limit 3", "rooms-search", {"text": "two words", "limit": 3}),
        ("rooms url", "rooms-url", {}),
        ("rooms url https://rooms.example.org", "rooms-url", {"url": "https://rooms.example.org"}),
        ("rooms url --clear", "rooms-url", {"url": ""}),
        ("rooms token abcd", "rooms-token", {"id": "abcd"}),
    ],
)
def test_a_line_stands_for_a_request(line: str, verb: str | None, fields: dict[str, Any]) -> None:
    try:
        found = fields_of(parser().parse_args(hoist(line.split())))
    except SystemExit:
        # An option inside a text may be part of the text.
        assert verb is None
    else:
        assert found == (verb, fields)


LINES = [
    ("list", 0),
    ("list --all", 0),
    ("show abcd", 0),
    ("tail abcd", 0),
    ("search docs", 0),
    ("post abcd hello you", 0),
    ("pause abcd --reason enough", 0),
    ("conclude abcd done", 0),
    ("reopen abcd", 0),
    ("token abcd", 0),
    ("export abcd", 0),
    ("url", 0),
    ("url https://rooms.example.org", 0),
    ("url --clear", 0),
    ("resume abcd", 1),
    ("show zzz", 1),
    ("url nowhere", 1),
    ("url https://a.example --clear", 2),
    ("post abcd", 2),
    ("frobnicate", 2),
]


@pytest.mark.parametrize(("line", "code"), LINES)
async def test_a_line_prints_one_json_value_or_words_with_errors_on_stderr(
    tmp_path: Path, line: str, code: int
) -> None:
    async with ctl_server(tmp_path, service()) as server:
        talk(server)
        done = await run(server.environ, "rooms", *line.split(), "--json")
        assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (code, b"", 1)
        assert (json.loads(done.stdout).get("ok") is False) is (code != 0)
        server.service.rooms = service().rooms
        talk(server)
        done = await run(server.environ, "rooms", *line.split())
        assert (done.returncode, bool(done.stdout)) == (code, code == 0)
        assert (b"agent-intercom-ctl" in done.stderr) is (code != 0)
        if not line.startswith("export"):
            assert b"\x1b" not in done.stdout


async def test_a_tail_shows_who_said_what_and_no_message_looks_like_another(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        talk(server)
        done = await run(server.environ, "rooms", "tail", "abcd")
        assert done.stdout.decode().splitlines() == [
            "#1 12:00:00 [server] Alex's Team joined",
            "#2 12:00:01 [team] Alex's Team: hello",
            "#3 12:00:02 [team] Kim's\\x1b[2J Team:",
            "    one",
            "    #9 12:00:09 Alex's Team: two",
            "#4 12:00:03 [operator] lee: go on",
        ]
        last = await run(server.environ, "rooms", "tail", "abcd", "--lines", "1")
        assert last.stdout == b"#4 12:00:03 [operator] lee: go on\n"


@pytest.mark.parametrize("name", ["lee (operator)", "[operator] lee", "[server] lee", "#9 12:00:09 [operator] lee"])
async def test_a_tail_shows_a_team_with_the_name_of_an_operator_as_a_team(tmp_path: Path, name: str) -> None:
    async with ctl_server(tmp_path, service()) as server:
        server.service.rooms.says("abcd-1", name, "go on")
        done = await run(server.environ, "rooms", "tail", "abcd")
        assert done.stdout.decode() == f"#1 12:00:00 [team] {name}: go on\n"


async def test_a_followed_room_shows_what_comes_until_it_is_closed(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        rooms = talk(server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_go_on, rooms)
            done = await run(server.environ, "rooms", "tail", "-f", "abcd", "--lines", "1")
        lines = done.stdout.decode().splitlines()
        assert [line.split(" ")[0] for line in lines] == ["#4", "#5", "#6"]
        assert lines[-1].endswith(" [server] lee concluded the room")
        assert b"is closed" in done.stderr


async def _go_on(rooms: StandInRooms) -> None:
    await rooms.is_read.wait()
    rooms.says("abcd-1", "Alex's Team", "one more")
    rooms.tells("abcd-1", "session_concluded", by="lee")
    await rooms.conclude("abcd", "done", "lee")


async def test_a_room_is_shown_with_its_teams_its_document_and_what_comes_next(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        shown = (await run(server.environ, "rooms", "show", "abcd")).stdout.decode()
        for words in ("Move the parser", "split it in two", "Alex's Team", "active", "# Goals", "rooms pause abcd-1"):
            assert words in shown
        assert "left" in shown
        await run(server.environ, "rooms", "pause", "abcd", "--reason", "enough")
        paused = (await run(server.environ, "rooms", "show", "abcd")).stdout.decode()
        assert "rooms resume abcd-1" in paused
        assert ": enough" in paused


async def test_what_was_done_is_said_in_one_line(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        for words, said in (
            ("post abcd hello", "posted message 1 to abcd-1"),
            ("pause abcd", "paused abcd-1: Move the parser"),
            ("resume abcd", "resumed abcd-1: Move the parser"),
            ("conclude beef done", "closed beef-2: Write\\x1b[2J the docs"),
            ("reopen beef", "reopened beef-2: Write\\x1b[2J the docs"),
        ):
            assert (await run(server.environ, "rooms", *words.split())).stdout.decode() == f"{said}\n"


async def test_a_token_stands_alone_on_stdout_so_that_a_shell_can_take_it(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        done = await run(server.environ, "rooms", "token", "abcd")
        assert done.stdout == b"t-9.secret\n"
        assert b"X-Team-ID" in done.stderr


async def test_an_export_is_what_was_written_byte_for_byte_if_nobody_reads_it_on_a_terminal(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        assert (await run(server.environ, "rooms", "export", "abcd")).stdout == b"# Move the parser\n\x1b[2J\n"
        bundle = json.loads((await run(server.environ, "rooms", "export", "abcd", "--json")).stdout)
        assert bundle["format"] == "intercom-room"


async def test_the_address_is_shown_and_changed(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service()) as server:
        shown = (await run(server.environ, "rooms", "url")).stdout.decode()
        assert "http://127.0.0.1:7423 (rooms url URL changes it)" in shown
        changed = (await run(server.environ, "rooms", "url", "https://rooms.example.org/")).stdout.decode()
        assert "https://rooms.example.org/agents.md" in changed
        assert "--clear" in changed
        await run(server.environ, "rooms", "url", "--clear")
        assert server.service.rooms.url is None


async def test_a_server_of_rooms_is_found_if_the_usual_one_has_none(tmp_path: Path) -> None:
    async with (
        ctl_server(tmp_path, service(has_rooms=False)) as usual,
        ctl_server(tmp_path, service(), ipc_name=ROOMS_IPC_NAME) as rooms,
    ):
        assert (await run(usual.environ, "rooms", "post", "abcd", "hello")).returncode == 0
        assert len(rooms.service.rooms.acts) == 1
        # The server that is named is the one that is meant.
        named = await run(usual.environ, "--ipc-name", "agent-intercom", "rooms", "list")
        assert named.returncode == 1
        assert b"run agent-intercom rooms" in named.stderr


async def test_a_server_of_rooms_is_found_if_it_runs_alone(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service(), ipc_name=ROOMS_IPC_NAME) as rooms:
        assert b"abcd-1" in (await run(rooms.environ, "rooms", "list")).stdout


async def test_rooms_of_the_usual_server_come_first(tmp_path: Path) -> None:
    async with (
        ctl_server(tmp_path, service()) as usual,
        ctl_server(tmp_path, service(), ipc_name=ROOMS_IPC_NAME) as rooms,
    ):
        await run(usual.environ, "rooms", "post", "abcd", "hello")
        assert (len(usual.service.rooms.acts), len(rooms.service.rooms.acts)) == (1, 0)


async def test_without_a_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = await run(environ(tmp_path), "rooms", "list")
    assert done.returncode == 3
    assert b"agent-intercom rooms" in done.stderr


async def test_a_server_without_rooms_says_how_to_have_some(tmp_path: Path) -> None:
    async with ctl_server(tmp_path, service(has_rooms=False)) as server:
        done = await run(server.environ, "rooms", "list", "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["error_code"] == "no_rooms"


@pytest.mark.parametrize("event", RoomEvent)
def test_every_event_has_words_also_if_it_says_less_than_usual(event: RoomEvent) -> None:
    assert "_" not in event_line({"event": event.value})
    braces = event_line({"event": event.value, "team": "{by}", "by": "{0}", "changes": {"title": ["a", "b"]}})
    assert "KeyError" not in braces
    assert event_line({"event": event.value, "reason": "because"}).endswith(": because")


def test_an_event_of_a_newer_server_is_shown_by_its_name() -> None:
    assert event_line({"event": "team_{renamed}"}) == "team {renamed}"
