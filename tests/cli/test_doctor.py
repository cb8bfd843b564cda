"""Doctor finds each fault, says what to do, and changes nothing."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from intercom._version import __version__
from intercom.agents.shim import launch
from intercom.cli import doctor, doctor_checks, main
from intercom.cli.doctor_checks import Finding, State
from intercom.local import lock, own_files
from intercom.local.config_file import database_path, load
from intercom.local.places import Places
from intercom.model.config import Config, SpawnSettings
from intercom.store.database import open_database
from tests.cli.test_ctl_audit import put_unsigned_approval


def look(where: Places, workspace: str | None = None) -> dict[str, Finding]:
    project = Path(where.state_dir).parents[1] / "project"
    return {each.subject: each for each in doctor.examine(None, None, workspace, str(project))}


def database(where: Places) -> Path:
    return database_path(load(None), where)


def written(path: str | Path, text: str, mode: int = 0o600) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_it_waits_for_a_server_that_is_being_started(
    where: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim = launch.claim(where)
    assert claim is not None
    checked = doctor._database
    judged_claimed: list[bool] = []
    monkeypatch.setattr(
        doctor, "_database", lambda path: judged_claimed.append(launch.is_claimed(where)) or checked(path)
    )
    # The first moment that it sleeps is when the server is ready.
    monkeypatch.setattr(time, "sleep", lambda _seconds: os.close(claim))
    look(where)
    assert judged_claimed == [False]
    assert capsys.readouterr().err == "a server is starting: waiting for it, at most 10 s\n"
    look(where)
    assert not capsys.readouterr().err
    claim = launch.claim(where)
    assert claim is not None
    monkeypatch.setattr(doctor, "START_SECONDS", 0.0)
    look(where)
    assert judged_claimed == [False, False, True], "it does not wait for ever"
    os.close(claim)


def test_a_machine_that_never_ran_it_has_no_fault_and_is_told_to_connect_a_client(where: Places) -> None:
    before = sorted(Path(where.state_dir).parents[1].rglob("*"))
    found = look(where)
    # Where these tests run, there may be no terminal.
    found.pop("this terminal")
    assert {each.subject for each in found.values() if each.state is not State.OK} == {"clients", "operator key"}
    assert found["clients"].state is State.WARN
    assert "agent-intercom init" in found["clients"].advice
    assert found["operator key"].state is State.WARN
    assert "can decide in your place" in found["operator key"].text
    assert found["operator key"].advice == "agent-intercom-ctl key create"
    assert sorted(Path(where.state_dir).parents[1].rglob("*")) == before, "it only looks"


def test_an_approval_without_the_signature_that_it_needs_is_a_fault_of_the_log(where: Places) -> None:
    path = database(where)
    path.parent.mkdir(parents=True, mode=0o700)
    put_unsigned_approval(path)
    found = look(where)["audit log"]
    assert found.state is State.FAULT
    assert "operator key k was enrolled, and it was removed from the database; and 1 more" in found.text


def test_every_fault_of_the_configuration_is_told_with_its_line(where: Places) -> None:
    written(where.config_file, "colour = 1\n[timeouts]\napproval_seconds = -1\n")
    found = look(where)["configuration"]
    assert found.state is State.FAULT
    assert "line 1: colour" in found.text
    assert "line 3: timeouts.approval_seconds" in found.text


def test_a_configuration_that_names_no_usable_socket_ends_the_look(
    where: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(where.config_file, f'ipc_name = "{"n" * 64}"\n')
    deep = Path(os.environ["XDG_RUNTIME_DIR"]) / ("d" * 60)
    deep.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    found = look(where)
    assert "set XDG_RUNTIME_DIR" in " ".join(each.text for each in found.values() if each.state is State.FAULT)


@pytest.mark.parametrize("subject", ["state files", "runtime files"])
def test_a_directory_open_to_others_is_a_fault(where: Places, subject: str) -> None:
    path = Path(where.state_dir if subject == "state files" else where.runtime_dir)
    path.mkdir(mode=0o700)
    assert look(where)[subject].state is State.OK
    path.chmod(0o755)
    found = look(where)[subject]
    assert (found.state, found.advice) == (State.FAULT, f"chmod 700 {path}")


def test_a_link_in_place_of_a_directory_is_a_fault(where: Places) -> None:
    Path(where.runtime_dir).symlink_to(where.state_dir)
    assert "is a link or a file" in look(where)["runtime files"].text


def test_a_full_disk_is_a_warning(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(where.state_dir).mkdir(mode=0o700)
    monkeypatch.setattr(doctor, "_ROOM", 1 << 62)
    assert "MiB left" in look(where)["state files"].text


def test_a_sound_database_is_told_with_its_schema_and_what_waits(where: Places) -> None:
    open_database(database(where)).db.close()
    found = look(where)["database"]
    assert found.state is State.OK
    assert "0 waiting in 0 sessions" in found.text
    database(where).chmod(0o644)
    assert look(where)["database"].advice == f"chmod 600 {database(where)}"


def test_a_damaged_database_and_one_of_another_program_are_faults(where: Places) -> None:
    written(database(where), "no database\n" * 1000)
    assert "is damaged" in look(where)["database"].text
    database(where).unlink()
    with sqlite3.connect(database(where)) as theirs:
        theirs.execute("create table theirs (id)")
    theirs.close()
    found = look(where)["database"]
    assert found.state is State.FAULT
    assert "belongs to another program" in found.text


def test_who_has_the_database_and_does_not_answer_is_named(where: Places) -> None:
    database(where).parent.mkdir(parents=True, mode=0o700)
    with lock.acquire(database(where), version="9.9"):
        found = look(where)["server"]
    assert found.state is State.FAULT
    assert f"process {os.getpid()} (version 9.9)" in found.text
    assert f"kill {os.getpid()}" in found.advice


def test_one_that_only_takes_the_database_has_no_process_to_kill_yet(where: Places) -> None:
    database(where).parent.mkdir(parents=True, mode=0o700)
    with lock.acquire(database(where), version="9.9"):
        Path(lock.lock_path(database(where))).write_text("")
        found = look(where)["server"]
    assert found.state is State.WARN
    assert found.text == "one is starting at this moment"
    assert "kill" not in found.advice


def test_a_running_server_is_told_and_what_is_wrong_with_it(where: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(where) as pid:
        found = look(where)
        assert found["server"].state is State.OK
        assert f"process {pid}, version {__version__}" in found["server"].text
        assert found["token"] == Finding("token", State.OK, where.token_file)

        with monkeypatch.context() as patch:
            patch.setattr(doctor, "__version__", "99.0")
            other = look(where)["server"]
        assert other.state is State.WARN
        assert other.text.endswith("this program is version 99.0")
        assert "agent-intercom stop" in other.advice

        config = written(where.config_file, '[database]\npath = "other.db"\n')
        assert "uses another database" in look(where)["server"].text
        config.unlink()

        # The server puts its token right within a second, which may be before doctor looks.
        for _ in range(50):
            Path(where.token_file).chmod(0o644)
            token = look(where)["token"]
            if token.state is State.FAULT:
                break
        assert (token.state, "not a file of yours alone" in token.text) == (State.FAULT, True)
        for _ in range(50):
            written(where.token_file, "0" * 64 + "\n")
            found = look(where)
            if found["server"].state is State.FAULT:
                break
        assert (found["server"].state, found["token"].state) == (State.FAULT, State.OK)
        assert f"process {pid} answers" in found["server"].text
        assert "same ipc_name" in found["server"].advice


def test_a_fault_of_the_policy_is_told_with_its_place(where: Places) -> None:
    project = Path(where.state_dir).parents[1] / "project"
    assert "has none" in look(where, str(project))["policy"].text
    written(project / ".intercom/settings.json", '{"enabled": true}')
    assert "grants nothing" in look(where, str(project))["policy"].text
    written(project / ".intercom/settings.json", '{"enabled": true, "tools": ["transmit"]}')
    assert "as far as a person has accepted it" in look(where, str(project))["policy"].text
    written(project / ".intercom/settings.json", '{\n"enabeld": true}')
    found = look(where, str(project))["policy"]
    assert found.state is State.FAULT
    assert "line 2" in found.text


def test_every_fault_of_the_policy_is_told(where: Places) -> None:
    project = Path(where.state_dir).parents[1] / "project"
    written(project / ".intercom/settings.json", '{\n"enabeld": true,\n"tools": 1,\n"comands": []\n}')
    found = look(where, str(project))["policy"]
    lines = found.text.splitlines()
    assert [re.sub(r".*settings.json, (line \d).*?(\".*?\").*", r"\1 \2", line) for line in lines] == [
        'line 2 "enabeld"',
        'line 3 "tools"',
        'line 4 "comands"',
    ]
    assert found.advice.startswith("correct them")


@pytest.mark.parametrize("trap", ["file", "dangling link", "no permission"])
def test_nothing_is_promised_that_cannot_be_created(where: Places, monkeypatch: pytest.MonkeyPatch, trap: str) -> None:
    blocked = Path(where.config_file).parent / "here"
    written(where.config_file, f'[database]\npath = "{blocked}/deep/x.db"\n')
    match trap:
        case "file":
            blocked.write_text("")
        case "dangling link":
            blocked.symlink_to("nowhere")
        case _:
            blocked.mkdir()
            # Root may write everywhere, so the real thing would not do here.
            monkeypatch.setattr(
                os, "access", lambda path, _mode: Path(path) not in (blocked, Path(where.state_dir).parent)
            )
            assert "let this user write to" in look(where)["state files"].advice
    found = look(where)["database"]
    assert found.state is State.FAULT
    assert "will be created" not in found.text


def test_a_workspace_that_is_none_is_a_fault_only_where_it_was_named(where: Places) -> None:
    assert look(where)["policy"].state is State.OK
    assert look(where, "/nowhere/at/all")["policy"].state is State.FAULT


def test_a_client_that_knows_intercom_is_named(where: Places) -> None:
    project = Path(where.state_dir).parents[1] / "project"
    written(project / ".mcp.json", '{"mcpServers": {"agent-intercom": {}}}')
    assert look(where)["clients"] == Finding("clients", State.OK, "Claude Code knows Intercom")


def test_what_is_missing_or_too_old_in_the_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _name: ["no-such-thing>=1", "trio>=999", 'x>1; extra == "test"'])
    found = doctor._installation()
    assert found.state is State.FAULT
    assert "no-such-thing is missing, trio is " in found.text
    assert "999 or newer is needed" in found.text


@pytest.mark.parametrize("as_json", [True, False])
def test_the_exit_code_says_whether_there_is_a_fault(
    where: Places, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    words = ["doctor", *(["--json"] if as_json else [])]
    assert main.main(words) == 0
    capsys.readouterr()
    written(where.config_file, "colour = 1\n")
    assert main.main(words) == 1
    said = capsys.readouterr().out
    if as_json:
        told: dict[str, Any] = json.loads(said)
        assert told["ok"] is False
        assert {"subject", "state", "text", "advice"} == set(told["findings"][0])
    else:
        assert said.splitlines()[-1].startswith("1 fault")
        assert [line for line in said.splitlines() if line.startswith("fault  configuration")] != []


@contextmanager
def serving(where: Places) -> Iterator[int]:
    """A real server, in a process of its own."""
    hear, tell = os.pipe()
    command = [sys.executable, "-P", "-m", "intercom.cli.main", "serve", "--ready-fd", str(tell)]
    server = subprocess.Popen(command, pass_fds=[tell], stderr=subprocess.DEVNULL)
    os.close(tell)
    try:
        with open(hear, "rb") as words:
            assert json.loads(words.readline()) == {"ready": True}
        yield server.pid
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.parametrize(
    ("config", "state", "says"),
    [
        (Config(), State.OK, "no host_cli is set: agents are started by hand only"),
        (Config(host_cli="sh", host_cli_args=("-x",)), State.OK, "/sh -x"),
        (Config(host_cli="no-such-agent"), State.FAULT, "not found in the server's PATH"),
        (Config(host_cli="sh", spawn=SpawnSettings(environment=("NO_SUCH_KEY",))), State.WARN, "NO_SUCH_KEY"),
    ],
)
def test_what_is_found_of_the_program(tmp_path: Path, config: Config, state: State, says: str) -> None:
    found = doctor_checks.examine_agents(config, tmp_path)
    assert (found.state, says in found.text) == (state, True), found


@pytest.mark.parametrize(
    ("connected", "suggested"), [((), None), (("opencode",), None), (("opencode", "codex"), "codex")]
)
def test_the_program_that_is_suggested_is_that_of_a_connected_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: tuple[str, ...], suggested: str | None
) -> None:
    monkeypatch.setattr(doctor_checks, "names_us", lambda client, _project: client.name in connected)
    found = doctor_checks.examine_agents(Config(), tmp_path)
    assert found.state is State.OK
    assert found.advice.endswith(f'(host_cli = "{suggested}")' if suggested else "")
    assert bool(found.advice) is bool(suggested)


# --- the gateway -----------------------------------------------------------------------------------------------------

GITHUB = (
    '{"name": "github", "transport": "stdio", "command": "%s", "capabilities": ["github.*"], "schemaVersion": "1.0.0"}'
)
ROLES = '{"defaultRole": "dev", "roles": [{"role": "dev", "capabilities": ["github.*"]}]}'


@pytest.fixture
def recorded(where: Places) -> None:
    """The directories of these places are the user's own."""
    own_files.record_directories(os.path.dirname(where.config_file), where.state_dir)


def gateway(where: Places) -> list[tuple[State, str]]:
    project = Path(where.state_dir).parents[1] / "project"
    found = doctor.examine(None, None, None, str(project))
    return [(each.state, each.text) for each in found if each.subject == "gateway"]


def test_a_gateway_that_is_off_is_looked_at_only_if_it_has_files(where: Places) -> None:
    assert gateway(where) == []
    written(Path(where.gateway_directory) / "github.json", GITHUB % sys.executable)
    [(state, text)] = gateway(where)
    assert state is State.WARN
    assert "the gateway is off" in text


@pytest.mark.usefixtures("recorded")
def test_a_gateway_without_files_and_one_that_is_well_are_told_apart(where: Places) -> None:
    written(where.config_file, "[gateway]\nenabled = true\n")
    assert look(where)["gateway"].advice.startswith("agent-intercom gateway import")
    written(Path(where.gateway_directory) / "github.json", GITHUB % sys.executable)
    written(Path(where.gateway_directory) / "roles.json", ROLES)
    [(state, text)] = gateway(where)
    assert state is State.OK
    assert "1 MCP server, 1 role in" in text


@pytest.mark.usefixtures("recorded")
def test_each_fault_and_warning_of_the_gateways_files_is_a_finding(where: Places) -> None:
    written(where.config_file, "[gateway]\nenabled = true\n")
    written(Path(where.gateway_directory) / "github.json", GITHUB % "nosuchprogram")
    written(Path(where.gateway_directory) / "broken.json", "{")
    states = {text.rpartition("/")[2][:30]: state for state, text in gateway(where)}
    assert sorted(states.values()) == [State.FAULT, State.FAULT, State.WARN]
    texts = " ".join(text for _, text in gateway(where))
    for part in ("broken.json", "nosuchprogram is in no directory of PATH", "no defaultRole is set"):
        assert part in texts


FAR = (
    '{"name": "far", "transport": "http", "baseURL": "https://mcp.example.org/mcp", "oauth": {"clientId": "c"},'
    ' "capabilities": ["far.*"], "schemaVersion": "1.0.0"}'
)


@pytest.mark.usefixtures("recorded")
def test_a_downstream_that_nobody_has_signed_in_to_names_the_command(where: Places) -> None:
    written(where.config_file, "[gateway]\nenabled = true\n")
    written(Path(where.gateway_directory) / "far.json", FAR)
    written(Path(where.gateway_directory) / "roles.json", ROLES)
    needed = (State.WARN, "far: needs sign-in: run agent-intercom gateway sign-in far")
    assert needed in gateway(where)
    damaged = Path(where.gateway_credentials) / "far.json"
    damaged.parent.mkdir(mode=0o700, parents=True)
    written(damaged, "{")
    damaged.chmod(0o600)
    assert any(state is State.FAULT and "far.json is damaged" in text for state, text in gateway(where))


def test_a_gateway_that_agents_servers_would_not_have_is_a_fault(where: Places) -> None:
    written(where.config_file, "[gateway]\nenabled = true\n")
    written(Path(where.gateway_directory) / "github.json", GITHUB % sys.executable)
    written(Path(where.gateway_directory) / "roles.json", ROLES)
    found = look(where)["gateway"]
    assert found.state is State.FAULT
    assert f"{where.state_dir} are not recorded as yours" in found.text
    assert "init --write" in found.advice


def test_an_entry_that_an_import_wrote_for_the_user_is_seen(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    file = own_home / ".claude.json"
    project = str(own_home / "project")
    file.write_text('{"projects": {"/home/me/agent-intercom": {}}, "history": ["about agent-intercom"]}')
    assert "no client's file names Intercom" in doctor._clients(Path(project)).text
    file.write_text('{"mcpServers": {"agent-intercom" : {"command": "agent-intercom"}}}')
    assert doctor._clients(Path(project)).text == "Claude Code knows Intercom"
