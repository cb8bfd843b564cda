"""agent-intercom rooms: its settings and its secrets, what it says, and one that runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from intercom.cli import rooms_server
from intercom.cli.main import parser
from intercom.cli.server_settings import ServerSettings
from intercom.local import lock, server_secrets
from intercom.local.places import ROOMS_IPC_NAME, Places
from intercom.local.server_secrets import RoomsSecrets, is_database_url, without_password
from intercom.model.config import Config, GatewaySettings, RoomsSettings, WebSettings
from intercom.model.errors import ConfigError

URL = "postgresql://intercom:hunter2@db.example.org:5433/rooms?sslmode=require&password=again"
SECRET = "0123456789abcdef"


def settled(*words: str, **environ: str) -> ServerSettings:
    return rooms_server.settle(parser().parse_args(["rooms", *words]), environ)


def configure(where: Places, text: str) -> None:
    file = Path(where.config_file)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o600)


# --- settings --------------------------------------------------------------------------------------------------------


def test_without_a_word_it_is_a_server_of_its_own_on_loopback(where: Places) -> None:
    found = settled()
    config = found.config
    assert (config.http_host, config.http_port) == ("127.0.0.1", 7423)
    assert found.places.ipc_name == config.ipc_name == ROOMS_IPC_NAME
    assert config.rooms.enabled
    assert found.only_rooms
    assert found.rooms_secrets == RoomsSecrets()
    assert found.database == Path(where.state_dir) / "data/rooms/server.db"
    assert found.database != Path(where.database)


def test_two_of_them_share_nothing(where: Places) -> None:
    one, other = settled(), settled("--ipc-name", "second")
    assert one.database != other.database
    assert one.places.ctl_socket != other.places.ctl_socket


def test_it_takes_the_users_settings_of_rooms_and_leaves_the_rest_to_the_other_server(where: Places) -> None:
    configure(
        where,
        'http_port = 3000\nipc_name = "mine"\n[slack]\nchannel_id = "C0123456789"\n[logging]\nfile = "/tmp/x.log"\n'
        "[rooms]\nloop_budget = 7\n[ctl]\ntrust_agent_processes = true\n[gateway]\nenabled = true\n"
        '[web]\nport = 4321\npublic_url = "https://intercom.example.org"\npush_contact = "mailto:alex@example.org"\n'
        'members = {"kim@example.org" = "admin"}\n',
    )
    config = settled("--port", "0").config
    assert config.rooms.loop_budget == 7
    assert config.ctl.trust_agent_processes
    assert config.gateway == GatewaySettings()
    assert config.web == WebSettings(push_contact="mailto:alex@example.org")
    assert settled("--web-port", "4322").config.web.port == 4322
    assert (config.http_port, config.ipc_name) == (0, ROOMS_IPC_NAME)
    assert config.slack.channel_id is None
    assert config.logging.file is None


def test_a_public_url_is_a_name_that_the_server_has(where: Places) -> None:
    config = settled("--public-url", "https://rooms.example.org").config
    assert config.rooms.public_url == "https://rooms.example.org"
    assert "rooms.example.org" in config.http_allowed_hosts


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--port", "99999"], "must be a port"),
        (["--web-port", "99999"], "must be a port"),
        (["--host", "example.org"], "must be an IP address of this machine"),
        (["--public-url", "rooms.example.org"], "must be an address like https://rooms.example.org"),
    ],
)
def test_a_wrong_word_is_refused_with_what_would_be_right(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        parser().parse_args(["rooms", *words])
    assert left.value.code == 2
    assert says in capsys.readouterr().err


# --- the database ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "environ", "text", "url", "file"),
    [
        ([], {}, "", None, None),
        ([], {"DATABASE_URL": URL}, "", URL, None),
        (["--database", URL], {"DATABASE_URL": "postgresql://other/db"}, "", URL, None),
        (["--database", "/data/rooms.db"], {"DATABASE_URL": URL}, "", None, Path("/data/rooms.db")),
        ([], {"MINE": URL}, 'database_url_env = "MINE"', URL, None),
        # A variable that some other program uses does not replace what the settings say.
        ([], {"DATABASE_URL": URL}, 'database = "/data/mine.db"', None, Path("/data/mine.db")),
        (["--database", URL], {}, 'database = "/data/mine.db"', URL, None),
    ],
)
def test_the_database_is_the_one_that_was_named_last(
    where: Places, words: list[str], environ: dict[str, str], text: str, url: str | None, file: Path | None
) -> None:
    configure(where, f"[rooms]\n{text}\n")
    found = settled(*words, **environ)
    assert found.rooms_secrets.database_url == url
    assert found.config.rooms.database == file


@pytest.mark.parametrize(
    ("environ", "text", "says"),
    [
        ({"DATABASE_URL": "mysql://h/d"}, "", "DATABASE_URL in the environment must be a PostgreSQL database"),
        ({}, 'database_url_env = "MINE"', "names MINE, which is not in the server's environment"),
        ({}, "secret_required = true", "there is no secret: set INTERCOM_ROOMS_SECRET"),
        ({"INTERCOM_ROOMS_SECRET": "short"}, "", "at least 16 letters"),
        ({}, 'secret_file = "/nowhere/at/all"', "cannot be read (no such file or directory)"),
    ],
)
def test_a_fault_of_the_environment_is_said_before_anything_starts(
    where: Places, environ: dict[str, str], text: str, says: str
) -> None:
    configure(where, f"[rooms]\n{text}\n")
    with pytest.raises(ConfigError) as refused:
        settled(**environ)
    assert says in refused.value.message
    assert not refused.value.message.endswith(".")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "postgresql://intercom@db.example.org:5433/rooms"),
        ("postgres://h/d", "postgres://h/d"),
        ("postgresql:///rooms?host=/run/postgresql", "postgresql:///rooms"),
        ("postgresql://u:p@h:port/d", "postgresql://..."),
        ("postgresql://u:p@[x/d", "postgresql://..."),
        # A password with a slash, of which the beginning reads like a port.
        ("postgresql://u:12/hunter2@h/d", "postgresql://..."),
        ("postgresql://u:12?hunter2@h/d", "postgresql://..."),
        ("postgresql://u:12#hunter2@h/d", "postgresql://..."),
        ("postgresql://u:1?2#hunter2@h/d", "postgresql://..."),
    ],
)
def test_a_database_is_shown_without_its_password(url: str, shown: str) -> None:
    assert is_database_url(url)
    assert without_password(url) == shown


def test_no_secret_shows_when_the_settings_are_printed() -> None:
    made = RoomsSecrets(SECRET, URL)
    assert SECRET not in repr(made)
    assert "hunter2" not in repr(made)
    assert made.database_password == "hunter2"


# --- the secret ------------------------------------------------------------------------------------------------------


def test_a_file_with_the_secret_has_precedence_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{'f' * 32}\n")
    environ = {"INTERCOM_ROOMS_SECRET": SECRET}
    assert server_secrets.read(RoomsSettings(enabled=True, secret_file=file), environ).secret == "f" * 32
    assert server_secrets.read(RoomsSettings(enabled=True), environ).secret == SECRET


def test_a_server_without_rooms_reads_no_secret() -> None:
    settings = RoomsSettings(secret_required=True, database_url_env="MINE")
    assert server_secrets.read(settings, {}) == RoomsSecrets()


# --- what it says ----------------------------------------------------------------------------------------------------


def greeting(host: str = "127.0.0.1", name: str = ROOMS_IPC_NAME, *, has_secret: bool = False) -> str:
    config = Config(http_host=host, ipc_name=name)
    base = "http://127.0.0.1:7423"
    return "\n".join(rooms_server.greeting(config, "https://rooms.example.org/", base, 7423, "rooms.db", has_secret))


def test_it_says_where_it_is_and_what_comes_next() -> None:
    said = greeting()
    assert "on 127.0.0.1, port 7423, and stored in rooms.db" in said
    assert "https://rooms.example.org/agents.md" in said
    assert "agent-intercom-ctl rooms list" in said
    assert "people watch    agent-intercom-ctl --ipc-name rooms web" in said
    assert "http://127.0.0.1:7423/api/sessions" in said
    assert "everybody" not in said


def test_off_loopback_it_says_who_can_join_unless_there_is_a_secret() -> None:
    assert "everybody who reaches port 7423 can create and join sessions" in greeting("0.0.0.0")
    with_secret = greeting("0.0.0.0", has_secret=True)
    assert "everybody" not in with_secret
    assert "Authorization: Bearer $INTERCOM_ROOMS_SECRET" in with_secret


def test_under_another_name_ctl_is_told_the_name() -> None:
    assert "agent-intercom-ctl --ipc-name second rooms list" in greeting(name="second")


# --- one that runs ---------------------------------------------------------------------------------------------------


@contextmanager
def running(where: Places, *words: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and what it prints first: the address of its instructions."""
    process = subprocess.Popen(
        [sys.executable, "-m", "intercom.cli.main", "rooms", "--port", "0", *words],
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=(Path(where.state_dir).parent / "rooms.log").open("ab"),
        text=True,
    )
    assert process.stdout is not None
    try:
        first = [process.stdout.readline() for _ in range(2)]
        assert first[0].startswith("rooms are open"), (Path(where.state_dir).parent / "rooms.log").read_text()
        yield process, first[1].split()[-1].removesuffix("/agents.md")
    finally:
        process.terminate()
        process.communicate(timeout=20)


def get(url: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, named), timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


NEW = {"title": "First room", "description": "", "creator_team_name": "Alex's Team"}


@pytest.mark.real_time
def test_a_room_is_made_seen_by_ctl_and_there_after_a_restart(where: Places) -> None:
    with running(where) as (process, base):
        assert "create_session" in get(f"{base}/agents.md")[1]
        status, made = get(f"{base}/api/sessions", NEW)
        assert status == 200
        assert get(f"{base}/mcp", {})[0] == 404
        ctl = [sys.executable, "-m", "intercom.cli.ctl", "rooms", "list", "--json"]
        listed = json.loads(subprocess.run(ctl, capture_output=True, text=True, check=True, timeout=30).stdout)
        assert [each["title"] for each in listed["rooms"]] == ["First room"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    with running(where) as (_, base):
        found = json.loads(made)
        assert get(f"{base}/api/sessions/{found['session_id']}", X_Team_ID=found["team_id"])[0] == 200


@pytest.mark.real_time
def test_a_secret_is_asked_for_and_written_nowhere(where: Places) -> None:
    with running(where, INTERCOM_ROOMS_SECRET=SECRET) as (_, base):
        assert get(f"{base}/agents.md")[0] == 200
        assert get(f"{base}/api/sessions", NEW)[0] == 401
        assert get(f"{base}/api/sessions", NEW, Authorization=f"Bearer {SECRET}")[0] == 200
    assert SECRET not in (Path(where.state_dir).parent / "rooms.log").read_text()


@pytest.mark.real_time
def test_a_port_that_is_taken_ends_it_with_a_sentence(where: Places) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "intercom.cli.main", "rooms", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 cannot be opened" in done.stderr
    assert done.stdout == ""


@pytest.mark.real_time
def test_two_servers_do_not_share_a_file(where: Places, tmp_path: Path) -> None:
    file = tmp_path / "rooms.db"
    with lock.acquire(file, version="1"):
        command = [sys.executable, "-m", "intercom.cli.main", "rooms", "--port", "0", "--database", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"uses {file}" in done.stderr


# --- rooms of the ordinary server ------------------------------------------------------------------------------------


@pytest.mark.real_time
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_ordinary_server_has_rooms_too_and_this_machine_reaches_all_of_it(where: Places, host: str) -> None:
    configure(where, f'http_port = 0\nhttp_host = "{host}"\n[rooms]\nenabled = true\n')
    hear, tell = os.pipe()
    command = [sys.executable, "-m", "intercom.cli.main", "serve", "--ready-fd", str(tell)]
    log = (Path(where.state_dir).parent / "server.log").open("ab")
    with subprocess.Popen(command, pass_fds=[tell], stderr=log) as process:
        os.close(tell)
        try:
            with os.fdopen(hear) as news:
                assert json.loads(news.readline()) == {"ready": True}
            until = time.monotonic() + 20
            while not os.path.exists(where.http_address_file) and time.monotonic() < until:
                time.sleep(0.05)
            base = Path(where.http_address_file).read_text().strip()
            assert get(f"{base}/api/sessions", NEW)[0] == 200
            assert get(f"{base}/healthz")[0] == 200
            assert get(f"{base}/mcp", {})[0] == 401
            assert Path(where.database).with_name("rooms.db").exists()
            ctl = [sys.executable, "-m", "intercom.cli.ctl", "rooms", "list"]
            listed = subprocess.run(ctl, capture_output=True, text=True, check=True, timeout=30)
            assert "First room" in listed.stdout
        finally:
            process.terminate()


# --- docs/how-to/rooms.md --------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[2] / "docs/how-to/rooms.md").read_text()


def typed(block: str, base: str) -> str:
    """What a reader types: the programs of this test, and the address at which its server listens."""
    for program, module in (("agent-intercom-ctl", "ctl"), ("agent-intercom", "main")):
        block = re.sub(rf"^{program} ", f"{sys.executable} -m intercom.cli.{module} ", block, flags=re.MULTILINE)
    return block.replace("http://127.0.0.1:7423", base)


@pytest.mark.real_time
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_who_types_what_the_page_says_reaches_a_concluded_room(where: Places) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert blocks.pop(0) == "agent-intercom rooms\n"
    # ctl recognises a person by the terminal, and this test has none.
    configure(where, "[ctl]\ntrust_agent_processes = true\n")
    said: list[str] = []
    with running(where) as (_, base):
        environ = {**os.environ, "ROOMS": base}
        for block in blocks:
            for name, what in re.findall(r"^(\w+)=\S+ +# the (\w+) of the answer$", block, re.MULTILINE):
                # Copied from the answer before.
                environ[name] = json.loads(said[-1])[what]
            if "of the answer" in block:
                continue
            done = subprocess.run(
                ["bash", "-e", "-c", typed(block, base)],
                env=environ,
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
            )
            assert done.returncode == 0, (block, done.stdout, done.stderr)
            said.append(done.stdout)
    assert '"error"' not in "".join(said[:-2])
    assert any('"text":"How about Heron?"' in each for each in said)
    document = next(each for each in said if "version" in each and "Conclusion" in each)
    assert "We ship as **Heron**." in document
    assert "## Decisions" in document
