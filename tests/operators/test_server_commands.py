"""The operator commands about the server itself, and the entries with which clients find it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.agents.clients import CLIENTS, NAMES
from intercom.agents.clients.client import TOKEN_VARIABLE
from intercom.app import App
from intercom.cli.init_clients import entry_file, new_entries, snippet
from intercom.local.places import places
from intercom.local.server_secrets import RoomsSecrets
from intercom.model.config import Config, RoomsSettings, WebSettings
from intercom.model.errors import IntercomError, InvalidState, IpcError, NotFound
from intercom.model.server_view import HttpPort
from intercom.model.web import ApiToken, PushSubscription, SignedIn
from intercom.model.web_role import WebRole
from intercom.operators.commands.command_execution import carry_out, refusals
from intercom.operators.ctl.connection import CtlRequest, success
from intercom.sessions.server_information import ServerInformation
from tests.operators.stand_in_rooms import StandInRooms, room
from tests.operators.stand_in_service import StandInService
from tests.support.virtual_server import VirtualServer

START = datetime(2026, 11, 26, 9, 0, tzinfo=UTC)
OWN = "http://127.0.0.1:3000"
OPEN = HttpPort(OWN, None, token_required=True)


def information(config: Config | None = None, http: HttpPort | None = OPEN, **more: Any) -> ServerInformation:
    more.setdefault("make_entries", partial(new_entries, None, token=True))
    return ServerInformation(config or Config(), START, Path("/state/agent-rc.db"), http=lambda: http, **more)


async def ask(server: ServerInformation | None, command: str, **fields: Any) -> Any:
    service = StandInService()
    service.server = server
    request = CtlRequest(command, fields, verdict_id="12345678")
    data = await carry_out(service, request, "kim", None)  # type: ignore[arg-type]
    # Whatever is answered crosses the socket.
    return json.loads(success(data))["data"]


class Ends:
    """Ends each thing once, as the page's operations do; then there is none."""

    def __init__(self) -> None:
        self.left = {"nightly"}
        self.push = self

    async def revoke_token(self, name: str, by: str) -> ApiToken:
        self._end(name)
        return ApiToken("t-1", name, WebRole.VIEWER, "ab" * 32, START, by, START)

    async def sign_out(self, prefix: str, by: str) -> SignedIn:
        self._end(prefix)
        return SignedIn(prefix, "kim", WebRole.VIEWER, START, START)

    async def unsubscribe(self, prefix: str, by: str, channel: str) -> PushSubscription:
        self._end(prefix)
        return PushSubscription(prefix, "https://push.example.com/secret", "p", "a", by, channel, "Firefox", START)

    def _end(self, name: str) -> None:
        if name not in self.left:
            raise NotFound(f"there is no {name}")
        self.left.remove(name)


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("token-revoke", {"name": "nightly"}),
        ("people-sign-out", {"id": "nightly"}),
        ("push-remove", {"id": "nightly"}),
    ],
)
async def test_what_a_person_ended_is_answered_as_ended_if_the_answer_was_lost(
    server: VirtualServer, command: str, fields: dict[str, str]
) -> None:
    service = server.app.service
    service.web = Ends()  # type: ignore[assignment]
    request = CtlRequest(command, fields, "act-0001")
    first = await carry_out(service, request, "kim", None)
    assert await carry_out(service, request, "kim", None) == first
    assert "secret" not in str(first)
    with pytest.raises(IntercomError) as refused:
        await carry_out(service, CtlRequest(command, fields, "act-0002"), "kim", None)
    assert refused.value.error_code == "not_found"


@pytest.mark.parametrize(
    ("command", "then"),
    [
        ("restore", ", and may still be done: check before you try again"),
        ("pending", "; try again"),
        ("amend", "; try again"),
        ("events", "; try again"),
    ],
)
def test_only_of_what_changes_something_it_is_said_that_it_may_be_done(command: str, then: str) -> None:
    with pytest.raises(IpcError) as refused, refusals(command):
        raise trio.TooSlowError
    assert str(refused.value) == f"this takes longer than the time limit{then}"


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in {each.entry.file.variable for each in CLIENTS.values()} - {""}:
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def without_key(text: str) -> str:
    """An entry without the random part of the agent's name."""
    return re.sub(r"(agent=[a-z-]+-)[0-9a-f]{16}", r"\1KEY", text)


@pytest.mark.parametrize("name", NAMES)
async def test_an_entry_is_what_init_writes_into_a_new_file(name: str, own_home: Path) -> None:
    found = await ask(information(), "clients", id=name)
    (entry,) = found["clients"]
    client, project = CLIENTS[name], own_home / "project"
    over_http = entry_file(client, project, None, Config(http_port=3000))
    assert entry["stdio"] == snippet(entry_file(client, project, None, None))
    assert without_key(entry["http"]) == without_key(snippet(over_http))
    assert f"{OWN}/mcp?agent={name}-" in entry["http"]
    assert (entry["name"], entry["title"], entry["http_note"]) == (name, client.title, over_http.note)
    where = client.entry.file
    assert entry["file"] == (where.path if where.is_in_project else f"~/{where.file(project).relative_to(own_home)}")
    assert (found["url"], found["remark"], entry["fault"]) == (OWN, "", "")


async def test_no_entry_has_a_secret_or_a_name_that_another_agent_has(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "a-secret-token")
    server = information()
    first, second = [(await ask(server, "clients"))["clients"] for _ in range(2)]
    assert [each["name"] for each in first] == list(NAMES)
    assert "a-secret-token" not in json.dumps(first)
    assert all(one["http"] != other["http"] for one, other in zip(first, second, strict=True))
    assert [each["stdio"] for each in first] == [each["stdio"] for each in second]


async def test_a_file_that_a_project_shares_cannot_name_a_configuration_of_this_machine(own_home: Path) -> None:
    elsewhere = partial(new_entries, Path("/etc/intercom.toml"), token=False)
    found = await ask(information(make_entries=elsewhere), "clients")
    shared = [each for each in found["clients"] if each["is_in_project"]]
    assert shared
    assert all(not each["stdio"] and "/etc/intercom.toml" in each["fault"] for each in shared)
    assert all("/etc/intercom.toml" in each["stdio"] for each in found["clients"] if each not in shared)
    assert all(each["http"] and TOKEN_VARIABLE not in each["http"] for each in found["clients"])


PUBLIC = "https://intercom.example.org"


@pytest.mark.parametrize(
    ("config", "http", "url", "remark"),
    [
        (Config(), None, OWN, "init --http --write"),
        (Config(http_port=8123), HttpPort(None, "port 8123 is taken", True), "http://127.0.0.1:8123", "8123 is taken"),
        (Config(http_port=3000), OPEN, OWN, ""),
        (Config(http_port=3000, rooms=RoomsSettings(public_url=OWN)), OPEN, OWN, ""),
        (Config(http_port=3000, rooms=RoomsSettings(public_url=PUBLIC)), OPEN, OWN, "add intercom.example.org to"),
        (
            Config(
                http_port=3000,
                http_allowed_hosts=("Intercom.example.org",),
                rooms=RoomsSettings(public_url=PUBLIC),
            ),
            OPEN,
            PUBLIC,
            "",
        ),
    ],
)
async def test_entries_over_http_lead_to_where_the_server_answers(
    config: Config, http: HttpPort | None, url: str, remark: str, own_home: Path
) -> None:
    found = await ask(information(config, http), "clients")
    assert found["url"] == url
    assert remark in found["remark"] if remark else found["remark"] == ""
    assert all(f"{url}/mcp?agent=" in each["http"] for each in found["clients"])


async def test_the_address_that_a_person_sets_counts_at_once(own_home: Path) -> None:
    rooms = StandInRooms(room("abcd-1"))
    server = information(Config(http_port=3000, http_allowed_hosts=("new.example.org",)), rooms=rooms)
    assert (await ask(server, "clients"))["url"] == OWN
    await rooms.set_address("https://new.example.org", "kim")
    assert (await ask(server, "clients"))["url"] == "https://new.example.org"


async def test_who_cannot_be_served_is_told_so(own_home: Path) -> None:
    with pytest.raises(NotFound, match="no client is called 'emacs'; known: claude-code, codex"):
        await ask(information(), "clients", id="emacs")
    with pytest.raises(InvalidState, match="rooms instructions says how"):
        await ask(information(only_rooms=True), "clients")
    with pytest.raises(InvalidState, match="inside another program"):
        await ask(information(make_entries=None), "clients")
    with pytest.raises(InvalidState, match="does not tell"):
        await ask(None, "server")


async def test_the_status_has_the_files_and_the_ports() -> None:
    config = Config(rooms=RoomsSettings(enabled=True))
    server = information(config, configuration=Path("/etc/i.toml"), rooms_database="/state/rooms.db", has_page=True)
    assert await ask(server, "server") == {
        "version": server.status().version,
        "started_at": "2026-11-26T09:00:00.000000+00:00",
        "configuration": "/etc/i.toml",
        "database": "/state/agent-rc.db",
        "rooms_database": "/state/rooms.db",
        "http": {"base": OWN, "fault": None, "token_required": True},
        "has_gateway": False,
        "has_page": True,
    }


async def test_a_server_knows_its_files_and_no_password_of_its_database(tmp_path: Path) -> None:
    config = Config(http_port=3000, rooms=RoomsSettings(enabled=True), web=WebSettings(enabled=False))
    secrets = RoomsSecrets(database_url="postgresql://kim:a-password@db.example.org/rooms")
    where = places(environ={"HOME": str(tmp_path)})
    app = App(config, where, tmp_path / "i.db", config_path=tmp_path / "c.toml", secrets=secrets, now=lambda: START)
    assert app.service.server is not None
    status = app.service.server.status()
    assert (status.database, status.configuration) == (str(tmp_path / "i.db"), str(tmp_path / "c.toml"))
    assert status.rooms_database == "postgresql://kim@db.example.org/rooms"
    assert (status.http, status.started_at) == (HttpPort(None, None, token_required=True), START)
    assert (status.has_page, status.has_gateway) == (False, False)
    alone = App(Config(), where, tmp_path / "i.db")
    assert alone.service.server is not None
    assert (alone.service.server.status().rooms_database, alone.service.server.status().http) == (None, None)
