"""`agent-intercom init --http`: a port, a key for each client, and a token that stands in one file only."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from intercom.agents.clients import CLIENTS
from intercom.cli.init import with_port
from intercom.cli.init_clients import address
from intercom.local.config_file import load
from intercom.local.places import places
from intercom.model.server_view import local_base
from tests.cli.test_init import backups, entry_file, init_with, own_config


def entry(own_home: Path, name: str) -> dict[str, Any]:
    client = CLIENTS[name].entry
    text = entry_file(name, own_home / "project").read_text()
    document = tomllib.loads(text) if client.file.is_toml else json.loads(text)
    found: dict[str, Any] = document[client.table]["agent-intercom"]
    return found


def url(entry: dict[str, Any]) -> str:
    """The address in an entry: to Qwen Code, `url` is an address of the older transport."""
    found: str = entry.get("httpUrl") or entry["url"]
    return found


def key(entry: dict[str, Any]) -> str:
    (found,) = parse_qs(urlsplit(url(entry)).query)["agent"]
    return found


def token() -> str:
    return Path(places().http_token_file).read_text().strip()


def test_every_client_is_given_its_address_its_key_and_its_way_to_name_the_token(own_home: Path) -> None:
    assert init_with("--http", "--write", "--client", "all") == 0
    entries = {name: entry(own_home, name) for name in CLIENTS}
    for name, found in entries.items():
        assert url(found).startswith("http://127.0.0.1:3000/mcp?agent=")
        assert re.fullmatch(rf"{name}-[0-9a-f]{{16}}", key(found))
        assert not {"command", "args"} & found.keys()
    asked = json.loads((own_home / "project/.vscode/mcp.json").read_text())["inputs"]
    assert [(each["id"], each["password"]) for each in asked] == [("intercom-http-token", True)]


def test_the_token_is_made_and_told_of_and_stands_in_no_other_file(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init_with("--http", "--write", "--client", "all") == 0
    said = capsys.readouterr().out
    file = places().http_token_file
    assert f'export INTERCOM_HTTP_TOKEN="$(cat {file})"' in said
    assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    assert len(token()) >= 32
    holding = [each for each in own_home.rglob("*") if each.is_file() and token() in each.read_text(errors="replace")]
    assert holding == [Path(file)]
    assert token() not in said


def test_a_second_time_everything_stays_the_keys_too(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--http", "--write", "--client", "all", "--no-hooks") == 0
    files = [entry_file(name, own_home / "project") for name in CLIENTS]
    first, held = [file.read_bytes() for file in files], token()
    assert init_with("--http", "--write", "--client", "all", "--no-hooks") == 0
    assert [file.read_bytes() for file in files] == first
    assert token() == held
    assert not any(backups(file) for file in [*files, own_config(own_home)])
    # Claude Code has a file of settings, too.
    assert capsys.readouterr().out.count("has it ") == len(files) + 1


def test_a_key_that_is_there_is_kept_when_the_port_changes(own_home: Path) -> None:
    assert init_with("--http", "--write", "--client", "cursor") == 0
    before = entry(own_home, "cursor")
    assert init_with("--http", 4100, "--write", "--client", "cursor") == 0
    after = entry(own_home, "cursor")
    assert after["url"].startswith("http://127.0.0.1:4100/")
    assert key(after) == key(before)
    assert load(own_config(own_home)).http_port == 4100
    assert len(backups(own_config(own_home))) == 1


@pytest.mark.parametrize("name", CLIENTS)
def test_from_one_way_in_to_the_other_and_back_leaves_nothing_of_the_first(own_home: Path, name: str) -> None:
    assert init_with("--write", "--client", name) == 0
    stdio = entry(own_home, name)
    assert init_with("--http", "--write", "--client", name) == 0
    assert not {"command", "args", "env"} & entry(own_home, name).keys()
    assert entry(own_home, name).get("type") != stdio.get("type", "none")
    assert init_with("--write", "--client", name) == 0
    assert entry(own_home, name) == stdio


def test_a_configuration_that_is_there_gets_the_port_and_keeps_all_else(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_config(own_home).parent.mkdir(parents=True)
    own_config(own_home).write_text("# mine\nretention_days = 9\n\n[stall]\nenabled = false\n")
    assert init_with("--write", "--http") == 0
    assert (
        own_config(own_home).read_text() == "http_port = 3000\n# mine\nretention_days = 9\n\n[stall]\nenabled = false\n"
    )
    assert [each.read_text() for each in backups(own_config(own_home))] == [
        "# mine\nretention_days = 9\n\n[stall]\nenabled = false\n"
    ]
    assert "agent-intercom stop" in capsys.readouterr().out


def test_the_port_that_is_configured_is_used(own_home: Path) -> None:
    own_config(own_home).parent.mkdir(parents=True)
    own_config(own_home).write_text("http_port = 5555\n")
    assert init_with("--http", "--write", "--client", "codex") == 0
    assert "127.0.0.1:5555" in entry(own_home, "codex")["url"]
    assert not backups(own_config(own_home))


def test_where_no_token_is_asked_for_none_is_named_or_made(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_config(own_home).parent.mkdir(parents=True)
    own_config(own_home).write_text("http_token_required = false\n")
    assert init_with("--http", "--write", "--client", "all") == 0
    for name in CLIENTS:
        assert "bearer_token_env_var" not in entry(own_home, name)
        assert "Authorization" not in entry(own_home, name).get("headers", {})
    assert "inputs" not in json.loads((own_home / "project/.vscode/mcp.json").read_text())
    assert "INTERCOM_HTTP_TOKEN" not in capsys.readouterr().out
    assert not Path(places().http_token_file).exists()


def test_a_configuration_that_can_not_be_read_stops_it_before_any_client(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_config(own_home).parent.mkdir(parents=True)
    own_config(own_home).write_text("http_prot = 1\n")
    assert init_with("--http", "--write", "--client", "codex") == 1
    assert "http_port" in capsys.readouterr().err
    assert not (own_home / ".codex/config.toml").exists()


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "1e3"])
def test_what_is_no_port_is_a_usage_error(own_home: Path, port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        init_with(f"--http={port}")
    assert ended.value.code == 2
    assert "must be a port from 1 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("127.0.0.1", "127.0.0.1:9"),
        ("0.0.0.0", "127.0.0.1:9"),
        ("::", "[::1]:9"),
        ("::1", "[::1]:9"),
        ("192.168.1.5", "192.168.1.5:9"),
    ],
)
def test_the_address_is_one_that_the_server_answers_at(host: str, named: str) -> None:
    before = "http://somewhere:1/mcp?agent=a%2Fb&x=1"
    assert address(local_base(host, 9), "codex", before) == f"http://{named}/mcp?agent=a%2Fb"


@pytest.mark.parametrize("url", ["", "http://[/mcp", "no url", "http://h/mcp?agent="])
def test_an_address_without_a_key_gets_a_fresh_one(url: str) -> None:
    made = {address("http://127.0.0.1:9", "codex", url) for _ in range(2)}
    assert len(made) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "http_port = 7\n"),
        ("a = 1\n", "http_port = 7\na = 1\n"),
        ("[t]\nhttp_port = 1\n", "http_port = 7\n[t]\nhttp_port = 1\n"),
        ("a = 1\n[t]\n# http_port = 3000\n", "http_port = 7\na = 1\n[t]\n# http_port = 3000\n"),
        ("## words\n# http_port = 3000\n\n[t]\n", "## words\nhttp_port = 7\n\n[t]\n"),
        ("http_port = 1 # mine\n# http_port = 3000\n", "http_port = 7\n# http_port = 3000\n"),
    ],
)
def test_the_line_that_is_there_for_it_is_used(before: str, after: str) -> None:
    assert with_port(before, 7) == after
