"""Doctor starts what clients' entries name, compares it with the hooks, and knows whether answers count here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from intercom._version import __version__
from intercom.agents.clients import CLIENTS, hooks_of
from intercom.cli import doctor_clients, init_clients, main
from intercom.cli.doctor_checks import Finding, State
from intercom.local import processes
from intercom.model.config import Config, CtlSettings
from intercom.model.process import Role
from intercom.store import processes as known_processes
from intercom.store.database import open_database
from tests.support.terminal import on_terminal


def look(own_home: Path, config: Config | None = None) -> dict[str, Finding]:
    found = doctor_clients.examine_entries(own_home / "project", config or Config())
    return {each.subject: each for each in found}


def entry(own_home: Path, client: str, command: Sequence[object], **more: object) -> Path:
    """Write a client's file in JSON with this command."""
    file = CLIENTS[client].entry.file.file(own_home / "project")
    file.parent.mkdir(parents=True, exist_ok=True)
    words = [str(each) for each in command]
    server = {"command": words[0], "args": words[1:], **more}
    file.write_text(json.dumps({CLIENTS[client].entry.table: {"agent-intercom": server}}))
    return file


def script(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def init_with(*words: object) -> None:
    assert main.main(["init", "--write", *map(str, words)]) == 0


def test_what_init_writes_starts_and_agrees(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A project's file names the program without its directory.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    init_with("--client", "all", "--hooks")
    found = look(own_home)
    assert {name: each.state for name, each in found.items()} == dict.fromkeys(
        [*CLIENTS, "claude-code settings"], State.OK
    ), found
    assert "settings.local.json" in found.pop("claude-code settings").text
    assert all(each.text.endswith(f"version {__version__}") for each in found.values())


def test_without_a_client_there_is_nothing_to_say(own_home: Path) -> None:
    assert look(own_home) == {}


def test_a_command_that_is_not_there_is_a_fault_with_the_way_out(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(own_home, "cursor", ["/gone/agent-intercom"])
    entry(own_home, "vscode", ["agent-intercom"])
    monkeypatch.setenv("PATH", "/nowhere")
    found = look(own_home)
    assert (found["cursor"].state, found["vscode"].state) == (State.FAULT, State.FAULT)
    assert "/gone/agent-intercom, which is not found" in found["cursor"].text
    assert found["cursor"].advice.startswith("agent-intercom init --write --client cursor")
    assert f"add {Path(sys.executable).parent} to the PATH" in found["vscode"].advice


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo no such module >&2; exit 3", "it ends with code 3 and says: no such module"),
        ("exit 0", "it ends with code 0 and says: nothing"),
        ("sleep 60", "it printed no version within"),
    ],
)
def test_a_command_that_does_not_start_is_a_fault(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.setattr(doctor_clients, "START_SECONDS", 2.0 if "sleep" not in text else 0.1)
    entry(own_home, "cursor", [script(own_home / "x", f"exec {text}" if "sleep" in text else text)])
    found = look(own_home)["cursor"]
    assert found.state is State.FAULT
    assert says in found.text


def test_another_version_is_a_warning(own_home: Path) -> None:
    entry(own_home, "cursor", [script(own_home / "x", "echo agent-intercom 0.0.1")])
    assert look(own_home)["cursor"].state is State.WARN


def test_a_program_that_a_project_brings_along_is_not_started(own_home: Path) -> None:
    """Anybody can write the file of a project that was cloned."""
    trap = script(own_home / "project/agent-intercom", f"touch {own_home}/started; echo agent-intercom {__version__}")
    for command in (["./agent-intercom"], [trap], ["sh", "-c", f"touch {own_home}/started"], [sys.executable, trap]):
        entry(own_home, "claude-code", command)
        found = look(own_home)["claude-code"]
        assert found.state is State.WARN
        assert "was not tried" in found.text
    assert not (own_home / "started").exists()


def test_a_package_that_a_project_brings_along_is_not_imported(own_home: Path) -> None:
    package = own_home / "project/intercom/cli"
    package.mkdir(parents=True)
    for name in ("__init__.py", "main.py"):
        (package / name).write_text(f"open({str(own_home / 'started')!r}, 'w')")
    (package.parent / "__init__.py").touch()
    entry(own_home, "claude-code", [sys.executable, "-m", "intercom.cli.main"])
    assert look(own_home)["claude-code"].state is State.OK
    assert not (own_home / "started").exists()


def test_the_python_of_another_environment_is_not_this_program(own_home: Path) -> None:
    other = own_home / "project/python"
    other.symlink_to(sys.executable)
    entry(own_home, "claude-code", [other, "-m", "intercom.cli.main"])
    assert "was not tried" in look(own_home)["claude-code"].text


def test_arguments_of_a_projects_file_are_not_used(own_home: Path) -> None:
    module = [sys.executable, "-m", "intercom.cli.main"]
    entry(own_home, "claude-code", [*module, "stop"])
    assert look(own_home)["claude-code"].state is State.OK


def test_a_configuration_that_is_gone_is_a_fault(own_home: Path) -> None:
    entry(own_home, "cursor", [sys.executable, "-m", "intercom.cli.main", "--config", own_home / "gone.toml"])
    found = look(own_home)["cursor"]
    assert (found.state, "gone.toml, which does not exist" in found.text) == (State.FAULT, True)


def test_hooks_that_ask_another_server_are_a_fault(own_home: Path) -> None:
    init_with("--client", "cursor", "--hooks", "--config", own_home / "one.toml")
    assert set(look(own_home)) == {"cursor"}
    file = init_clients.hooks_file(CLIENTS["cursor"], own_home / "project")
    assert file is not None
    hooks = init_clients.path_of(file)
    hooks.write_text(hooks.read_text().replace("one.toml", "two.toml"))
    found = look(own_home)["cursor hooks"]
    assert found.state is State.FAULT
    assert f"the server of --config {own_home}/two.toml" in found.text
    assert f"that of --config {own_home}/one.toml" in found.text
    assert "--hooks --client cursor" in found.advice


def test_hooks_whose_program_is_gone_deny_everything(own_home: Path) -> None:
    init_with("--client", "cursor", "--hooks")
    file = hooks_of("cursor").file.file(own_home / "project")
    (before,) = set(doctor_clients.hook_commands(init_clients.HooksFile(CLIENTS["cursor"], hooks_of("cursor"), Path())))
    file.write_text(file.read_text().replace(before[0], "/gone/agent-intercom"))
    found = look(own_home)["cursor hooks"]
    assert (found.state, "denied everything" in found.text) == (State.FAULT, True)


def test_the_default_configuration_named_or_not_is_the_same_server(own_home: Path) -> None:
    init_with("--client", "cursor", "--hooks")
    config = own_home / ".config/agent-intercom/config.toml"
    entry(own_home, "cursor", [sys.executable, "-m", "intercom.cli.main", f"--config={config}"])
    assert {name: each.state for name, each in look(own_home).items() if each.state is State.FAULT} == {}


@pytest.mark.parametrize(
    ("url", "port", "state"),
    [
        ("http://127.0.0.1:3000/mcp?agent=x", 3000, State.OK),
        ("http://127.0.0.1:3000/mcp?agent=x", 4000, State.FAULT),
        ("http://[::1]:3000/mcp", None, State.FAULT),
        ("http://127.0.0.1:99999999/mcp", 3000, State.FAULT),
        ("https://intercom.example.com/mcp", None, State.OK),
    ],
)
def test_an_address_is_compared_with_the_port(own_home: Path, url: str, port: int | None, state: State) -> None:
    file = entry(own_home, "cursor", ["x"])
    file.write_text(json.dumps({"mcpServers": {"agent-intercom": {"url": url}}}))
    assert look(own_home, Config(http_port=port))["cursor"].state is state


def test_hostile_files_are_no_crash(own_home: Path) -> None:
    file = entry(own_home, "cursor", ["x"])
    for entries in ({"command": 1}, {"command": ""}, {"command": "x", "args": 3}, {"command": "\0"}, {"url": 7}, []):
        file.write_text(json.dumps({"mcpServers": {"agent-intercom": entries}}))
        assert all(each.state is State.FAULT for each in look(own_home).values())
    hooks = hooks_of("cursor").file.file(own_home / "project")
    for document in ("[]", '{"hooks": 1}', '{"hooks": {"x": ["agent-intercom \'hook cursor", "hook cursor"]}}', "{"):
        hooks.write_text(document)
        assert "cursor hooks" not in look(own_home)


# --- this terminal ---------------------------------------------------------------------------------------------------


def at(pid: int, database: Path, config: Config | None = None, *, has_key: bool = False) -> Finding:
    return doctor_clients.examine_terminal(config or Config(), database, has_key=has_key, pid=pid)


@pytest.mark.real_time
async def test_a_terminal_of_a_persons_own_is_accepted_and_an_agents_is_not(tmp_path: Path) -> None:
    database = tmp_path / "agent-rc.db"
    async with on_terminal(["sh", "-c", "echo ready; exec sleep 60"], os.environ) as screen:
        await screen.until("ready")
        found = at(screen.process.pid, database)
        assert (found.state, "answers are accepted here (/dev/pts/" in found.text) == (State.OK, True)
        opened = open_database(database)
        entries = processes.lineage(screen.process.pid, Role.CLIENT, frozenset())
        known_processes.record(opened.db, entries, datetime.now(UTC))
        opened.db.commit()
        opened.db.close()
        found = at(screen.process.pid, database)
        assert (found.state, "which is an agent's" in found.text) == (State.WARN, True)
        assert "in which no agent was started" in found.advice
        assert "PIN" in at(screen.process.pid, database, has_key=True).advice
        trusting = Config(ctl=CtlSettings(trust_agent_processes=True))
        assert at(screen.process.pid, database, trusting).state is State.OK


def test_without_a_terminal_answers_are_refused(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        found = at(process.pid, tmp_path / "none.db")
        process.kill()
    assert (found.state, "has no terminal" in found.text) == (State.WARN, True)


def test_a_database_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database\n" * 1000)
    found = at(os.getpid(), tmp_path / "x.db")
    assert (found.state, "not checked" in found.text) == (State.WARN, True)
