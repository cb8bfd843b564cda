"""The examples that host rooms fit together and fit the program, and so does what the pages about rooms say to type."""

from __future__ import annotations

import ast
import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
import pytest
import yaml

from intercom.agents.http.listener import MOST_WITH_ROOMS, SHUTDOWN_SECONDS
from intercom.cli import ctl, main
from intercom.local.server_secrets import DATABASE_VARIABLE, SECRET_VARIABLE, is_database_url
from intercom.model.config import RoomsSettings
from intercom.rooms.tools.room_tool_table import OVER_HTTP
from intercom.rooms.tools.tool import RoomTool
from tests.docs.generated import DOCS, ROOT

HERE = ROOT / "examples/rooms-deployment"
UNIT = HERE / "agent-intercom-rooms.service"
CADDYFILE = (HERE / "Caddyfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
FLY = tomllib.loads((HERE / "fly.toml").read_text())
NODES = ("node1", "node2")
PAGES = {name: (DOCS / "how-to" / name).read_text() for name in ("rooms.md", "host-rooms.md")}
#: The page that says whether a server does its work, open to anybody.
HEALTH = "/healthz"
#: What the file `.env` has.
ENV = {"ROOMS_HOST": "rooms.example.org", "POSTGRES_PASSWORD": "0f" * 24, "INTERCOM_ROOMS_SECRET": "0f" * 32}


def filled(text: str) -> str:
    """What Compose makes of a text with variables, all of which are in `.env`."""
    return re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", lambda found: ENV[found[1]], text)


def options(*words: str) -> Namespace:
    return main.parser().parse_args(words)


def dockerfile() -> Iterator[tuple[str, str]]:
    """Its instructions."""
    text = re.sub(r"\\\n\s*", "", (HERE / "Dockerfile").read_text())
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest


def instruction(name: str) -> str:
    """The last one of this name, which is the one that counts."""
    return [rest for found, rest in dockerfile() if found == name][-1]


# --- examples/rooms-deployment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("example", "language"),
    [("agent-intercom-rooms.service", "ini"), ("compose.yaml", "yaml"), ("Caddyfile", ""), ("fly.toml", "toml")],
)
def test_the_page_shows_each_file_as_it_is(example: str, language: str) -> None:
    assert f"```{language}\n{(HERE / example).read_text()}```\n" in PAGES["host-rooms.md"]


def test_the_image_runs_the_command_as_nobody_special() -> None:
    found = options(*json.loads(instruction("ENTRYPOINT"))[1:], *json.loads(instruction("CMD")))
    assert json.loads(instruction("ENTRYPOINT"))[0] == main.PROGRAM
    assert (found.command, found.host, found.port) == ("rooms", "0.0.0.0", int(instruction("EXPOSE")))
    assert instruction("USER") not in ("root", "0")
    assert f"XDG_STATE_HOME={instruction('VOLUME')}" == instruction("ENV")
    assert instruction("STOPSIGNAL") == "SIGTERM"


def test_the_image_is_asked_for_its_health_at_a_page_that_is_open() -> None:
    program, flag, code = json.loads(instruction("HEALTHCHECK").partition(" CMD ")[2])
    assert (program, flag) == ("python", "-c")
    ast.parse(code)
    [url] = re.findall(r"'(http://[^']+)'", code)
    assert (urlsplit(url).hostname, urlsplit(url).port) == ("127.0.0.1", int(instruction("EXPOSE")))
    assert urlsplit(url).path == HEALTH


@pytest.mark.parametrize("node", NODES)
def test_each_node_is_a_server_that_shares_the_database(node: str) -> None:
    service = SERVICES[node]
    found = options(*(filled(word) for word in service["command"]))
    assert (found.command, found.host) == ("rooms", "0.0.0.0")
    assert found.public_url == f"https://{ENV['ROOMS_HOST']}"
    assert (HERE / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == HERE / "Dockerfile"
    environ = {name: filled(value) for name, value in service["environment"].items()}
    assert set(environ) == {DATABASE_VARIABLE, SECRET_VARIABLE}
    assert is_database_url(environ[DATABASE_VARIABLE])
    database, postgres = urlsplit(environ[DATABASE_VARIABLE]), SERVICES["postgres"]["environment"]
    assert (database.hostname, database.port) == ("postgres", 5432)
    assert (database.username, database.path) == (postgres["POSTGRES_USER"], f"/{postgres['POSTGRES_DB']}")
    assert database.password == filled(postgres["POSTGRES_PASSWORD"])
    assert service["depends_on"]["postgres"]["condition"] == "service_healthy"
    # Long enough for the answers of all waiting calls.
    assert int(service["stop_grace_period"].removesuffix("s")) > 2 * SHUTDOWN_SECONDS


def test_no_secret_stands_in_the_file_and_none_may_be_forgotten() -> None:
    text = (HERE / "compose.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+):\?", text)) == set(ENV)
    assert re.findall(r"\$\{\w+(?!:\?|\w)", text) == []
    for name in ENV:
        assert f"{name}=" in PAGES["host-rooms.md"]


def test_only_the_proxy_can_be_reached() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert {name for name, service in SERVICES.items() if service["restart"] == "unless-stopped"} == set(SERVICES)
    named = {mount.partition(":")[0] for service in SERVICES.values() for mount in service.get("volumes", ())}
    assert {name for name in named if not name.startswith(".")} == set(COMPOSE["volumes"])
    assert all((HERE / name).exists() for name in named if name.startswith("."))


def test_the_proxy_passes_on_calls_that_wait_and_streams_to_both_nodes() -> None:
    [upstreams] = re.findall(r"reverse_proxy (.+) \{", CADDYFILE)
    ports = {options(*(filled(word) for word in SERVICES[node]["command"])).port for node in NODES}
    assert ports == {int(instruction("EXPOSE"))}
    assert upstreams.split() == [f"{node}:{ports.copy().pop()}" for node in NODES]
    # By default Caddy passes events on at once, waits without a limit, and tells the node when a client is gone.
    for setting in ("flush_interval", "read_timeout", "response_header_timeout", "write_timeout"):
        assert setting not in CADDYFILE
    assert "lb_policy ip_hash" in CADDYFILE
    assert f"health_uri {HEALTH}" in CADDYFILE
    # A node knows no name but its own.
    assert "Host localhost" in CADDYFILE
    assert "{$ROOMS_HOST}" in CADDYFILE
    assert "ROOMS_HOST" in SERVICES["proxy"]["environment"]
    assert set(SERVICES["proxy"]["depends_on"]) == set(NODES)


def test_a_machine_at_fly_stays_up_and_is_asked_for_its_health() -> None:
    service = FLY["http_service"]
    assert (ROOT / FLY["build"]["dockerfile"]).is_file()
    assert service["internal_port"] == int(instruction("EXPOSE"))
    assert service["auto_stop_machines"] == "off"
    assert service["min_machines_running"] >= 1
    assert service["concurrency"]["type"] == "connections"
    assert service["concurrency"]["soft_limit"] < service["concurrency"]["hard_limit"] <= MOST_WITH_ROOMS
    assert [(each["method"], each["path"]) for each in service["checks"]] == [("GET", HEALTH)]


def test_the_unit_is_one_that_systemd_reads(tmp_path: Path) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    found = options(*shlex.split(service["ExecStart"])[1:])
    assert (found.command, found.host) == ("rooms", "127.0.0.1")
    environ = dict(each.split("=") for each in service["Environment"].split())
    # As systemd.exec(5) has them: below /var/lib and /run.
    assert environ["XDG_STATE_HOME"] == f"/var/lib/{service['StateDirectory']}"
    assert environ["XDG_RUNTIME_DIR"] == f"/run/{service['RuntimeDirectory']}"
    assert (service["UMask"], service["Restart"], service["RuntimeDirectoryMode"]) == ("0077", "always", "0700")
    assert int(service["LimitNOFILE"]) >= MOST_WITH_ROOMS
    assert f"XDG_RUNTIME_DIR={environ['XDG_RUNTIME_DIR']} " in PAGES["host-rooms.md"]
    assert service["EnvironmentFile"].removeprefix("-") in PAGES["host-rooms.md"]
    if shutil.which("systemd-analyze") is not None:
        here = tmp_path / UNIT.name
        # It looks for the program and for the user, which are not here.
        text = UNIT.read_text().replace(service["ExecStart"], "/bin/sh").replace("User=intercom", "User=nobody")
        here.write_text(text)
        command = ["systemd-analyze", "verify", str(here)]
        environ = os.environ | {"SYSTEMD_LOG_LEVEL": "warning"}
        said = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)
        assert said.returncode == 0, said.stderr
        assert UNIT.name not in said.stderr


# --- docs/how-to/rooms.md and host-rooms.md --------------------------------------------------------------------------


def lines(page: str) -> Iterator[list[str]]:
    """The commands of a page, as a shell splits them, without comments."""
    for block in re.findall(r"^```sh\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if words := shlex.split(line, comments=True):
                yield words


def commands(page: str, program: str) -> Iterator[list[str]]:
    """What stands after this program's name, also inside another command."""
    for words in lines(page):
        if words[:2] == ["sh", "-c"]:
            words = shlex.split(words[2])
        names = [Path(word).name for word in words]
        if program in names:
            yield words[names.index(program) + 1 :]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_to_type_is_a_command(page: str) -> None:
    started = [words for words in commands(page, "agent-intercom") if words]
    for words in started:
        assert options(*(word.replace("$PORT", "8080") for word in words)).command == "rooms"
    typed = list(commands(page, "agent-intercom-ctl"))
    for words in typed:
        command, _ = ctl.fields_of(ctl.parser().parse_args(ctl.hoist(words)))
        assert command.startswith("rooms-")
    assert started
    assert typed


def tool_of(method: str, path: str) -> RoomTool:
    for tool in OVER_HTTP:
        if tool.route.method == method and re.fullmatch(tool.route.path.replace("{session_id}", "[^/]+"), path):
            return tool
    raise AssertionError(f"nothing is at {method} {path}")


def curls(page: str) -> Iterator[tuple[RoomTool, set[str], bool]]:
    """The calls of a page: the tool, the names of its arguments, and whether a token is shown."""
    for words in commands(page, "curl"):
        [url] = [word for word in words if "/api/sessions" in word]
        body = json.loads(words[words.index("--json") + 1]) if "--json" in words else {}
        parts = urlsplit(url.replace("$SESSION", "4f0c"))
        path = parts.path if "://" in url else f"/{parts.path.partition('/')[2]}"
        given = {*body, *(name for name, _ in parse_qsl(parts.query))}
        yield tool_of("POST" if body else "GET", path), given, any("X-Team-ID: $" in word for word in words)


def test_each_call_of_the_page_is_one_that_the_server_takes() -> None:
    called = list(curls("rooms.md"))
    for tool, given, shows_token in called:
        fields = attrs.fields(tool.takes)
        needed = {each.name for each in fields if each.default is attrs.NOTHING} - {"session_id", "team_id"}
        assert needed <= given <= {each.name for each in fields}, tool.name
        assert shows_token is tool.needs_token, tool.name
    names = ["create_session", "join_session", "wait_for_messages", "post_message", "post_message"]
    names += ["append_to_session_doc", "conclude_session", "read_session_doc", "export_session", "read_evidence"]
    assert [tool.name for tool, *_ in called] == names


def test_the_pages_name_settings_that_there_are() -> None:
    names = {each.name for each in attrs.fields(RoomsSettings)}
    for setting in ("loop_budget", "max_wait_seconds", "secret_file", "secret_required"):
        assert setting in names
        assert any(f"`{setting}" in page for page in PAGES.values())
