"""`gateway import` moves servers behind the gateway, all of them or none, and its undo puts everything back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from intercom.gateway import client_files
from intercom.gateway.client_entries import TABLES, Dialect
from intercom.gateway.client_files import ClientFile, Unmergeable
from intercom.gateway.client_import import LONGEST_OF_PROJECT, OWN_NAME, REFUSED, ImportPlan, carry_out, plan
from intercom.gateway.config_directory import read_settings
from intercom.gateway.downstream_config import DownstreamConfig
from intercom.gateway.import_receipt import IMPORTS, Outcome, Receipt, read_receipt, receipts, undo
from intercom.gateway.json_settings import parse_json
from intercom.gateway.roles import Effect, decide
from intercom.model.errors import ConfigError, FileError
from intercom.model.json_types import JsonObject

CLAUDE, CURSOR, VSCODE, CODEX = Dialect.CLAUDE_CODE, Dialect.CURSOR, Dialect.VSCODE, Dialect.CODEX
NOW = datetime(2026, 11, 25, 20, 0, tzinfo=UTC)
OWN: JsonObject = {"command": "agent-intercom", "args": []}
#: No rule for shapes knows it.
SECRET = "Violet-Harbour-77"
OPENCODE, GEMINI, QWEN = Dialect.OPENCODE, Dialect.GEMINI_CLI, Dialect.QWEN_CODE
FILES = {
    CLAUDE: ".mcp.json",
    CURSOR: ".cursor/mcp.json",
    VSCODE: ".vscode/mcp.json",
    CODEX: "config.toml",
    OPENCODE: "opencode.json",
    GEMINI: ".gemini/settings.json",
    QWEN: ".qwen/settings.json",
}


class Machine:
    """A home with a project, a gateway directory and a state directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home, self.project = root / "home", root / "home/web"
        self.gateway, self.state = root / "config/gateway", root / "state"
        self.project.mkdir(parents=True)
        self.files: list[ClientFile] = []

    def write(self, dialect: Dialect, content: Any, *, user: bool = False, name: str = "") -> Path:
        """Write a client's file, of the project or of the user."""
        path = (self.home if user else self.project) / (name or FILES[dialect])
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str):
            content = tomlkit.dumps(content) if dialect is CODEX else json.dumps(content, indent=2) + "\n"
        path.write_bytes(content.encode())
        workspace = None if user else self.project
        self.files = [each for each in self.files if each.path != path]
        self.files.append(ClientFile(dialect, path, workspace, OWN))
        return path

    def put(self, name: str, content: Any) -> None:
        """Write a file of the gateway, as its owner has it also with umask 002."""
        self.gateway.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self.gateway / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        file.chmod(0o600)

    def plan(self, **more: Any) -> ImportPlan:
        return plan(self.files, self.gateway, **{"take_from_project": lambda *_: True, **more})

    def carry_out(self, planned: ImportPlan | None = None, now: datetime = NOW) -> Receipt:
        return carry_out(planned or self.plan(), self.state, now)

    def snapshot(self) -> dict[str, tuple[int, bytes | None]]:
        found = {}
        for path in sorted(self.root.rglob("*")):
            if path != self.state:
                content = path.read_bytes() if path.is_file() else None
                found[str(path.relative_to(self.root))] = (path.stat().st_mode & 0o777, content)
        return found


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def servers(path: Path, dialect: Dialect = CLAUDE) -> Any:
    text = path.read_text()
    whole: Any = tomllib.loads(text) if dialect is CODEX else parse_json(text)
    return whole.get(TABLES[dialect])


def text_of(planned: ImportPlan) -> str:
    """All that a plan shows."""
    shown = [each.shown for each in planned.moves] + [each.diff for each in planned.rewrites]
    notes = [f"{note.key} {note.text}" for each in planned.moves for note in each.notes]
    return "\n".join([*shown, *notes, *(str(each) for each in planned.left), repr(planned)])


# --- plan ------------------------------------------------------------------------------------------------------------


def test_a_server_becomes_a_downstream_that_the_default_role_may_call(machine: Machine) -> None:
    path = machine.write(CLAUDE, {"mcpServers": {"git_hub": {"command": "npx", "env": {"T": "${T}"}}}, "x": 1})
    before = path.read_text()
    planned = machine.plan()
    assert path.read_text() == before
    assert not machine.gateway.exists()
    machine.carry_out(planned)
    assert json.loads((machine.gateway / "git-hub.json").read_text()) == {
        "name": "git-hub",
        "transport": "stdio",
        "capabilities": ["git-hub.*"],
        "schemaVersion": "1.0.0",
        "command": "npx",
        "env": {"T": "${T}"},
        "cwd": str(machine.project),
    }
    assert json.loads(path.read_text()) == {"mcpServers": {OWN_NAME: OWN}, "x": 1}
    found = read_settings(machine.gateway)
    assert found.faults == ()
    assert found.assignments.default_role == "default"
    assert decide(found.roles, "default", "git-hub", "delete").effect is Effect.ALLOW
    assert decide(found.roles, "default", "other", "x").effect is Effect.DENY


def test_what_was_moved_is_private_and_outside_of_the_project(machine: Machine) -> None:
    machine.write(CLAUDE, {"mcpServers": {"a": {"command": "x", "env": {"PIN_CODE": SECRET}}}}).chmod(0o644)
    receipt = machine.carry_out()
    after = machine.snapshot()
    assert {name for name in after if name.startswith("home/web/")} == {"home/web/.mcp.json"}
    assert after["home/web/.mcp.json"][0] == 0o644
    holders = {name for name, (_, content) in after.items() if SECRET.encode() in (content or b"")}
    assert holders == {"config/gateway/a.json", f"state/{IMPORTS}/{receipt.directory.name}/0-mcp.json"}
    assert {after[name][0] for name in holders} == {0o600}
    assert after[f"state/{IMPORTS}/{receipt.directory.name}"][0] == 0o700
    assert after["config/gateway"][0] == 0o700


@pytest.mark.parametrize("dialect", list(Dialect))
def test_no_secret_is_shown(machine: Machine, dialect: Dialect) -> None:
    secrets = [f"{SECRET}{at}" for at in range(6)]
    headers = "http_headers" if dialect is CODEX else "headers"
    entries: dict[str, Any] = {
        "a": {
            "command": "x",
            "env": {"PIN_CODE": secrets[0]},
            "args": ["--api-key", secrets[1], f"--pat={secrets[2]}"],
        },
        "b": {"url": f"https://h/{secrets[3]}/mcp", headers: {"X-Pin": secrets[4]}},
        "stays": {"command": 1, "env": {"P": secrets[5]}},
    }
    if dialect is OPENCODE:
        words = entries["a"].pop("args")
        entries["a"] = {"type": "local", "command": ["x", *words], "environment": entries["a"]["env"]}
    if dialect in (GEMINI, QWEN):
        entries["b"]["httpUrl"] = entries["b"].pop("url")
    machine.write(dialect, {TABLES[dialect]: entries})
    planned = machine.plan()
    assert [each.name for each in planned.moves] == ["a", "b"]
    shown = text_of(planned)
    assert [secret for secret in secrets if secret in shown] == []
    assert "[masked: secret]" in shown
    assert {note.key for note in planned.moves[0].notes} >= {"env", "args"}
    assert SECRET not in machine.carry_out().file.read_text()


def test_equal_servers_become_one_downstream_and_others_get_a_name_of_their_own(machine: Machine) -> None:
    machine.write(CURSOR, {"mcpServers": {"git": {"command": "one"}}}, user=True)
    machine.write(CODEX, {"mcp_servers": {"git": {"command": "one"}}}, user=True)
    machine.write(CLAUDE, {"mcpServers": {"git": {"command": "two"}, "Git": {"command": "three"}}})
    planned = machine.plan()
    assert [(each.config.name, each.config.command) for each in planned.moves] == [
        ("git", "one"),
        ("git", "one"),
        ("git-web", "two"),
        ("Git-2", "three"),
    ]
    assert [each.file is None for each in planned.moves] == [False, True, False, False]
    assert planned.moves[2].config.capabilities == ("git-web.*",)
    machine.carry_out(planned)
    assert sorted(each.name for each in machine.gateway.iterdir()) == [
        "Git-2.json",
        "git-web.json",
        "git.json",
        "roles.json",
    ]


def test_existing_downstreams_are_kept_also_with_faults(machine: Machine) -> None:
    existing = {"name": "a", "transport": "stdio", "capabilities": ["a.x"], "schemaVersion": "1.0.0", "command": "mine"}
    machine.put("a.json", existing)
    machine.put("b.json", "{")
    machine.write(CURSOR, {"mcpServers": {name: {"command": "x"} for name in ("a", "b", "roles")}}, user=True)
    planned = machine.plan()
    assert [each.config.name for each in planned.moves] == ["a-2", "b-2", "roles-2"]
    assert "there is another server a already" in text_of(planned)


def test_our_own_entries_and_unusable_ones_stay(machine: Machine) -> None:
    ours = {
        OWN_NAME: {"url": "http://127.0.0.1:3000/mcp"},
        "by-path": {"command": "/opt/bin/agent-intercom"},
        "by-module": {"command": "python", "args": ["-m", "intercom.cli.main"]},
    }
    bad = {"n": 7, "neither": {}, "both": {"command": "x", "type": "carrier-pigeon"}}
    path = machine.write(CLAUDE, {"mcpServers": {**ours, **bad, "good": {"command": "x"}}})
    planned = machine.plan()
    assert [each.name for each in planned.moves] == ["good"]
    assert {each.name for each in planned.left} == set(bad)
    machine.carry_out(planned)
    assert servers(path) == {**ours, **bad}


def test_our_entry_is_added_once_for_a_client_that_has_none(machine: Machine) -> None:
    projects = {str(machine.project): {"mcpServers": {"b": {"command": "y"}}}, "/none": {"mcpServers": {"c": {}}}}
    path = machine.write(
        CLAUDE, {"mcpServers": {"a": {"command": "x"}}, "projects": projects}, user=True, name=".claude.json"
    )
    shared = machine.write(CLAUDE, {"mcpServers": {"d": {"command": "z"}}})
    planned = machine.plan()
    assert [each.name for each in planned.left] == ["c"]
    assert planned.moves[1].config.cwd == str(machine.project)
    machine.carry_out(planned)
    found = json.loads(path.read_text())
    assert found["mcpServers"] == {OWN_NAME: OWN}
    assert found["projects"][str(machine.project)] == {"mcpServers": {}}
    assert servers(shared) == {}


def test_only_the_named_servers_are_moved(machine: Machine) -> None:
    path = machine.write(VSCODE, {"servers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    machine.carry_out(machine.plan(names={"b"}))
    assert list(servers(path, VSCODE)) == ["a", OWN_NAME]


def test_answers_that_vs_code_has_must_be_stored_once(machine: Machine) -> None:
    entry = {"command": "x", "env": {"T": "${input:tok}"}}
    inputs = [{"id": "tok", "description": "GitHub token", "password": True}]
    machine.write(VSCODE, {"servers": {"a": entry}, "inputs": inputs})
    planned = machine.plan()
    assert planned.secrets == {"a/tok": "GitHub token"}
    assert planned.moves[0].config.env == {"T": "${keychain:a/tok}"}


def test_two_servers_never_share_a_secret_also_if_one_gets_another_name(machine: Machine) -> None:
    inputs = [{"id": "tok", "description": "GitHub token"}]
    for user, url in ((True, "https://good"), (False, "https://evil")):
        entry = {"url": url, "headers": {"T": "${input:tok}"}}
        machine.write(VSCODE, {"servers": {"git": entry}, "inputs": inputs}, user=user)
    planned = machine.plan()
    tokens = {each.config.name: each.config.headers["T"] for each in planned.moves}
    assert tokens == {"git": "${keychain:git/tok}", "git-web": "${keychain:git-web/tok}"}
    assert sorted(planned.secrets) == ["git-web/tok", "git/tok"]
    machine.carry_out(planned)
    # The same again is still the same.
    for user in (True, False):
        entry = {"url": "https://good" if user else "https://evil", "headers": {"T": "${input:tok}"}}
        machine.write(VSCODE, {"servers": {"git": entry}, "inputs": inputs}, user=user)
    again = machine.plan()
    assert [(each.config.name, each.file) for each in again.moves] == [("git", None), ("git-web", None)]
    assert again.secrets == planned.secrets


# --- the files of a project ------------------------------------------------------------------------------------------


def test_servers_of_a_project_stay_unless_they_are_taken_and_are_listed(machine: Machine) -> None:
    path = machine.write(CLAUDE, {"mcpServers": {"a": {"command": "evil"}, "b": {"command": "y"}}})
    projects = {str(machine.project): {"mcpServers": {"mine": {"command": "z"}}}}
    machine.write(CLAUDE, {"projects": projects}, user=True, name=".claude.json")
    planned = machine.plan(take_from_project=None)
    # What the user has for the project, in the user's own file, is the user's.
    assert [each.name for each in planned.moves] == ["mine"]
    assert [(each.file, each.name) for each in planned.left] == [(path, "a"), (path, "b")]
    assert [each.client.path.name for each in planned.rewrites] == [".claude.json"]
    machine.carry_out(planned)
    assert sorted(each.name for each in machine.gateway.iterdir()) == ["mine.json", "roles.json"]
    assert list(servers(path)) == ["a", "b"]


def test_each_server_of_a_project_is_taken_by_itself_and_as_it_was_seen(machine: Machine) -> None:
    path = machine.write(CLAUDE, {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "c": {}}})
    seen = []

    def take(file: ClientFile, name: str, config: DownstreamConfig) -> bool:
        seen.append((file.path, name, config.command))
        # Somebody changes the file while the person reads.
        path.write_text(json.dumps({"mcpServers": {"a": {"command": "evil"}, "b": {"command": "y"}}}))
        return name == "a"

    planned = machine.plan(take_from_project=take)
    assert seen == [(path, "a", "x"), (path, "b", "y")]
    assert [(each.name, each.config.command) for each in planned.moves] == [("a", "x")]
    assert [(each.name, each.reasons) for each in planned.left][:1] == [("b", (REFUSED,))]
    with pytest.raises(FileError, match="has changed in the meantime"):
        machine.carry_out(planned)
    assert not machine.gateway.exists()


def test_only_the_named_servers_of_a_project_are_asked_for(machine: Machine) -> None:
    machine.write(CLAUDE, {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    seen = []
    planned = machine.plan(names={"b"}, take_from_project=lambda _file, name, _config: not seen.append(name))  # type: ignore[func-returns-value]
    assert (seen, [each.name for each in planned.moves], planned.left) == (["b"], ["b"], ())
    assert machine.plan(names={"z"}, take_from_project=None).left == ()


def test_a_server_of_a_project_that_nobody_could_read_is_left(machine: Machine) -> None:
    long = {"command": "x", "args": ["a" * LONGEST_OF_PROJECT, "-e", "evil"]}
    machine.write(CLAUDE, {"mcpServers": {"a": long}})
    machine.write(CURSOR, {"mcpServers": {"mine": long}}, user=True)
    planned = machine.plan()
    assert [each.name for each in planned.moves] == ["mine"]
    assert "which nobody reads" in planned.left[0].reasons[0]


def test_nothing_is_moved_to_a_directory_of_which_nothing_counts(machine: Machine) -> None:
    machine.write(CURSOR, {"mcpServers": {"a": {"command": "x"}}}, user=True)
    machine.gateway.mkdir(parents=True)
    machine.gateway.chmod(0o777)
    with pytest.raises(ConfigError, match=r"can be written by every user.*chmod go-w"):
        machine.plan()


def test_existing_roles_are_kept_and_what_to_add_is_said(machine: Machine) -> None:
    roles = {"defaultRole": "dev", "roles": [{"role": "dev", "capabilities": ["a.*"]}]}
    machine.put("roles.json", roles)
    machine.write(CURSOR, {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}, user=True)
    planned = machine.plan()
    assert (planned.roles, planned.to_add, planned.role) == (None, ("b.*",), "dev")
    machine.carry_out(planned)
    assert json.loads((machine.gateway / "roles.json").read_text()) == roles


def test_a_file_that_cannot_be_edited_is_left_with_the_reason(machine: Machine) -> None:
    machine.write(CODEX, 'mcp_servers = { a = { command = "x" } }', user=True)
    machine.write(CURSOR, "{ nonsense", user=True)
    deep = '{"a": ' * 500 + "1" + "}" * 500
    machine.write(CLAUDE, f'{{"mcpServers": {{"deep": {{"command": "x", "env": {deep}}}}}}}')
    os.mkfifo(machine.home / "pipe")
    machine.files.append(ClientFile(VSCODE, machine.home / "pipe"))
    machine.files.append(ClientFile(VSCODE, machine.home / "none"))
    planned = machine.plan()
    assert planned.moves == ()
    assert [each.reasons[0][:20] for each in planned.left] == [
        "is not JSON (expecti",
        "is nested too deeply",
        "is not a regular fil",
        "is laid out in a way",
    ]
    with pytest.raises(ConfigError, match="no server to move"):
        machine.carry_out(planned)


def test_a_link_to_a_file_elsewhere_stays_a_link(machine: Machine) -> None:
    real = machine.write(CURSOR, {"mcpServers": {"a": {"command": "x"}}}, user=True, name="dotfiles/mcp.json")
    link = machine.home / "link.json"
    link.symlink_to(real)
    machine.files.append(ClientFile(CURSOR, link, None, OWN))
    receipt = machine.carry_out()
    assert link.is_symlink()
    assert list(servers(real)) == [OWN_NAME]
    assert undo(receipt.file).complete


# --- all or nothing --------------------------------------------------------------------------------------------------


def three_clients(machine: Machine) -> None:
    machine.write(CLAUDE, {"mcpServers": {"a": {"command": "x"}}})
    machine.write(VSCODE, '{\n  // mine\n  "servers": {"b": {"command": "y"},},\n}\n')
    machine.write(CODEX, '# mine\n[mcp_servers.c]\ncommand = "z"\n', user=True)


def test_a_file_that_changed_since_the_plan_stops_all_of_it(machine: Machine) -> None:
    three_clients(machine)
    planned = machine.plan()
    machine.files[1].path.write_text('{"servers": {}}')
    before = machine.snapshot()
    with pytest.raises(FileError, match=r"mcp\.json has changed in the meantime.*nothing was changed"):
        machine.carry_out(planned)
    assert machine.snapshot() == before


def test_a_downstream_that_appeared_since_the_plan_is_not_written_over(machine: Machine) -> None:
    three_clients(machine)
    planned = machine.plan()
    machine.gateway.mkdir(parents=True)
    (machine.gateway / "b.json").write_text("mine")
    with pytest.raises(FileError, match="has changed in the meantime"):
        machine.carry_out(planned)
    assert (machine.gateway / "b.json").read_text() == "mine"


@pytest.mark.parametrize("call", ["replace", "fsync", "fchmod", "mkdir"])
@pytest.mark.parametrize("nth", [0, 1, 3, 5, 7])
@pytest.mark.parametrize("fails", [OSError(28, "No space left on device", "x"), KeyboardInterrupt()])
def test_a_step_that_fails_leaves_everything_as_it_was(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, call: str, nth: int, fails: BaseException
) -> None:
    three_clients(machine)
    before, done, calls = machine.snapshot(), getattr(os, call), iter(range(1000))
    planned = machine.plan()

    def once_failing(*args: Any, **more: Any) -> Any:
        if next(calls) == nth:
            raise fails
        return done(*args, **more)

    expected = FileError if isinstance(fails, OSError) else KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(os, call, once_failing)
        if call == "mkdir" and nth > 4:
            return  # fewer directories are made
        with pytest.raises(expected):
            machine.carry_out(planned)
    assert machine.snapshot() == before
    receipt = machine.carry_out(planned)
    assert undo(receipt.file).complete
    assert machine.snapshot() == before


KILLED = """
import os, sys
from datetime import UTC, datetime
from pathlib import Path
from tests.gateway.test_client_import import Machine, three_clients, NOW
from intercom.gateway.import_receipt import undo, receipts
replace, calls = os.replace, iter(range(99))
machine = Machine.__new__(Machine)
machine.__dict__.update({name: Path(path) for name, path in eval(sys.argv[1]).items()}, files=[])
three_clients(machine)
planned = machine.plan()
def kill(*given):
    if next(calls) == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
    replace(*given)
if sys.argv[3] == "undo":
    machine.carry_out(planned)
os.replace = kill
if sys.argv[3] == "undo":
    undo(receipts(machine.state)[0].file)
else:
    machine.carry_out(planned)
"""


@pytest.mark.parametrize(("what", "nth"), [*(("import", nth) for nth in (0, 1, 4, 7)), ("undo", 1)])
def test_killed_at_any_step_the_undo_restores_every_file(machine: Machine, what: str, nth: int) -> None:
    three_clients(machine)
    before = {each.path: each.path.read_bytes() for each in machine.files}
    where = {name: str(getattr(machine, name)) for name in ("root", "home", "project", "gateway", "state")}
    done = subprocess.run([sys.executable, "-c", KILLED, repr(where), str(nth), what], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr
    found = receipts(machine.state)
    assert len(found) == (0 if (what, nth) == ("import", 0) else 1)
    for each in found:
        assert undo(each.file).complete
    assert {each.path: each.path.read_bytes() for each in machine.files} == before
    assert not list(machine.gateway.glob("*.json"))
    assert len(machine.plan().moves) == 3


# --- undo ------------------------------------------------------------------------------------------------------------


def test_an_undo_leaves_no_trace_and_a_second_one_says_so(machine: Machine) -> None:
    three_clients(machine)
    before = machine.snapshot()
    receipt = machine.carry_out()
    assert receipts(machine.state) == (receipt,)
    report = undo(receipt.file)
    assert report.complete
    assert {each.outcome for each in report.files} == {Outcome.RESTORED, Outcome.DELETED}
    assert machine.snapshot() == before
    with pytest.raises(ConfigError, match="there is no receipt"):
        undo(receipt.file)


def test_a_clients_file_that_changed_keeps_its_changes_and_gets_its_servers_back(machine: Machine) -> None:
    path = machine.write(VSCODE, '{\n  "servers": {\n    "a": {"command": "x"},\n  }, // end\n}\n')
    receipt = machine.carry_out()
    path.write_text(path.read_text().replace("// end", "// my end").replace("{\n", '{\n  "new": 1,\n', 1))
    report = undo(receipt.file)
    assert [each.outcome for each in report.files] == [Outcome.PUT_BACK, Outcome.DELETED, Outcome.DELETED]
    assert not report.complete
    assert parse_json(path.read_text()) == {"new": 1, "servers": {"a": {"command": "x"}}}
    assert "// my end" in path.read_text()
    # The old texts stay, and a second undo changes nothing.
    assert (report.directory / "0-mcp.json").exists()
    after = machine.snapshot()
    undo(receipt.file)
    assert machine.snapshot() == after
    assert receipts(machine.state) == ()


CLAUDE_TEXT = """{
  "numStartups": 3,
  "mcpServers": {
    "a": {"command": "x", "args": ["one",   "two"]}
  },
  "projects": {}
}
"""
CODEX_TEXT = """# mine
model = "gpt-5"

# a clock, of which I am fond
[mcp_servers.clock]   # another comment
args = ["--utc"]
command = "clock"

[projects."/web"]
trust_level = "trusted"
"""


@pytest.mark.parametrize(
    ("dialect", "text", "old", "new"),
    [
        (CLAUDE, CLAUDE_TEXT, '"numStartups": 3', '"numStartups": 4'),
        (CODEX, CODEX_TEXT, 'model = "gpt-5"', 'model = "gpt-6"'),
    ],
)
def test_servers_are_put_back_as_they_were_written_if_only_other_lines_changed(
    machine: Machine, dialect: Dialect, text: str, old: str, new: str
) -> None:
    path = machine.write(dialect, text, user=True)
    receipt = machine.carry_out()
    path.write_text(path.read_text().replace(old, new))
    undo(receipt.file)
    assert path.read_text() == text.replace(old, new)


def test_what_a_person_changed_since_is_left_and_named(machine: Machine) -> None:
    path = machine.write(CLAUDE, {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}})
    receipt = machine.carry_out()
    found = {"mcpServers": {"a": {"command": "other"}, OWN_NAME: {**OWN, "timeout": 5}}}
    path.write_text(json.dumps(found))
    (machine.gateway / "b.json").write_text("mine")
    (machine.gateway / "roles.json").unlink()
    report = undo(receipt.file)
    assert servers(path) == {**found["mcpServers"], "b": {"command": "y"}}
    by_name = {each.path.name: each for each in report.files}
    notes = " ".join(by_name[".mcp.json"].notes)
    assert "a is there again, with another content" in notes
    assert f"{OWN_NAME} was changed, and stays" in notes
    assert by_name["b.json"].outcome is Outcome.LEFT
    assert (machine.gateway / "b.json").read_text() == "mine"
    assert by_name["a.json"].outcome is Outcome.DELETED
    assert by_name["roles.json"].outcome is Outcome.UNCHANGED
    assert receipts(machine.state) == (receipt,)


def test_a_clients_file_that_is_gone_or_broken_is_left(machine: Machine) -> None:
    three_clients(machine)
    receipt = machine.carry_out()
    machine.files[0].path.unlink()
    machine.files[1].path.write_text("{ broken")
    by_path = {each.path: each for each in undo(receipt.file).files}
    assert [by_path[each.path].outcome for each in machine.files] == [Outcome.LEFT, Outcome.LEFT, Outcome.RESTORED]
    assert str(receipt.directory) in by_path[machine.files[0].path].notes[0]
    assert machine.files[1].path.read_text() == "{ broken"


def test_two_imports_can_be_undone_in_either_order(machine: Machine) -> None:
    path = machine.write(CURSOR, {"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}, user=True)
    first = machine.carry_out(machine.plan(names={"a"}))
    machine.write(CODEX, {"mcp_servers": {"a": {"command": "x"}}}, user=True)
    second = machine.carry_out(now=NOW.replace(minute=1))
    assert [each.file for each in receipts(machine.state)] == [first.file, second.file]
    report = undo(first.file)
    # The second one moved b and uses the downstream a.
    assert servers(path) == {OWN_NAME: OWN, "a": {"command": "x"}}
    assert (machine.gateway / "a.json").exists()
    assert "needed by another import" in str(report.files)
    undo(second.file)
    assert servers(path)["b"] == {"command": "y"}
    assert not (machine.gateway / "b.json").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: "",
        lambda raw: raw[:-20],
        lambda raw: "[]",
        lambda raw: raw.replace('"client"', '"cleint"'),
        lambda raw: raw.replace('"1-mcp.json"', '"../../x"'),
        lambda raw: raw.replace('"version": 1', '"version": 2'),
        lambda raw: "[" * 100_000,
    ],
)
def test_a_damaged_receipt_changes_nothing(machine: Machine, damage: Any) -> None:
    three_clients(machine)
    receipt = machine.carry_out()
    receipt.file.write_text(damage(receipt.file.read_text()))
    before = machine.snapshot()
    with pytest.raises(ConfigError, match="is not a receipt"):
        undo(receipt.file)
    assert machine.snapshot() == before
    assert receipts(machine.state) == ()


def test_a_receipt_that_others_can_write_is_refused(machine: Machine) -> None:
    three_clients(machine)
    receipt = machine.carry_out()
    assert read_receipt(receipt.file) == receipt
    receipt.file.chmod(0o666)
    with pytest.raises(ConfigError, match="open to other users"):
        undo(receipt.file)


def test_an_old_text_that_was_tampered_with_is_not_put_back(machine: Machine) -> None:
    path = machine.write(CLAUDE, {"mcpServers": {"a": {"command": "x"}}})
    receipt = machine.carry_out()
    (receipt.directory / "0-mcp.json").write_text('{"mcpServers": {"a": {"command": "evil"}}}')
    by_name = {each.path.name: each.outcome for each in undo(receipt.file).files}
    assert by_name[".mcp.json"] is Outcome.LEFT
    assert servers(path) == {OWN_NAME: OWN}


# --- arbitrary files -------------------------------------------------------------------------------------------------

#: Each example writes and syncs a dozen files.
EXAMPLES = 40

NAMES = st.one_of(
    st.sampled_from(["a", "A", "b", "git_hub", "x.y", OWN_NAME, "roles", 'q"', "ü", "a b", "", "[z]", "#", "//"]),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
TEXTS = st.one_of(
    st.sampled_from(["x", "npx -y y", "${A}", "${B:-c}", "// no", "[t]", '"""', "'''", "=", "# no", "\\", "a\nb"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
)
ENTRIES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"command": TEXTS},
        optional={"args": st.lists(TEXTS, max_size=3), "env": st.dictionaries(NAMES, TEXTS, max_size=2)},
    ),
    st.fixed_dictionaries({"url": st.sampled_from(["https://h/mcp", "no"])}, optional={"disabled": st.booleans()}),
    st.just({}),
)
OTHER = st.recursive(
    st.one_of(st.booleans(), st.integers(-9, 9), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
SPACE = st.sampled_from(["", " ", "\n", "\n  ", "\t", "\r\n", " /* c, } */ ", " // c { \n", '\n    // " \n', "\n\n"])


@st.composite
def json_texts(draw: st.DrawFn, document: Any) -> str:
    """A text of this document, in any layout."""

    def space() -> str:
        return draw(SPACE)

    def written(value: Any) -> str:
        if isinstance(value, Mapping | list):
            items = (
                [written(each) for each in value]
                if isinstance(value, list)
                else [f"{json.dumps(key)}{space()}:{space()}{written(each)}" for key, each in value.items()]
            )
            inside = ",".join(f"{space()}{each}{space()}" for each in items)
            end = "," + space() if items and draw(st.booleans()) else ""
            left, right = ("[", "]") if isinstance(value, list) else ("{", "}")
            return f"{left}{inside or space()}{end}{right}"
        return json.dumps(value, ensure_ascii=draw(st.booleans()))

    return draw(st.sampled_from(["", "\ufeff"])) + space() + written(document) + space()


@st.composite
def toml_texts(draw: st.DrawFn, document: Any) -> str:
    """A text of this document, with either line end, and with comments around."""
    text = tomlkit.dumps(document)
    if draw(st.sampled_from(["\n", "\r\n"])) == "\r\n":
        text = text.replace("\n", "\r\n")
    comment = draw(st.sampled_from(["", "# [mcp_servers.a]\n", '# """\n', "\n\n"]))
    return comment + text + draw(st.sampled_from(["", "# end", "\n# end\n"]))


@st.composite
def client_texts(draw: st.DrawFn) -> tuple[Dialect, str]:
    dialect = draw(st.sampled_from(list(Dialect)))
    document = draw(st.dictionaries(NAMES, OTHER, max_size=2))
    table = draw(st.dictionaries(NAMES, ENTRIES, min_size=1, max_size=4))
    document[TABLES[dialect]] = table
    if dialect is CODEX:
        text = draw(toml_texts(document))
        try:
            assume(tomllib.loads(text.replace("\r\n", "\n")).keys() >= {TABLES[dialect]})
        except ValueError:
            assume(False)
        return dialect, text
    return dialect, draw(json_texts(document))


def machines() -> Iterator[Machine]:
    with tempfile.TemporaryDirectory() as root:
        yield Machine(Path(os.path.realpath(root)))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=EXAMPLES)
@given(st.lists(client_texts(), min_size=1, max_size=2, unique_by=lambda each: each[0]), st.booleans())
@example([(VSCODE, '{"servers": {,}}')], False)
def test_an_import_and_its_undo_give_the_same_bytes(texts: list[tuple[Dialect, str]], user: bool) -> None:
    for machine in machines():
        for dialect, text in texts:
            machine.write(dialect, text, user=user)
        before = machine.snapshot()
        planned = machine.plan()
        # Every layout can be edited that is not refused by the entries' own faults.
        assert [each for each in planned.left if each.name is None] == []
        if planned.moves:
            receipt = machine.carry_out(planned)
            assert read_settings(machine.gateway).faults == ()
            for each in machine.files:
                moved = {move.name for move in planned.moves if move.client is each}
                check_rewritten(before, machine, each, moved)
            assert undo(receipt.file).complete
        assert machine.snapshot() == before


def check_rewritten(before: Any, machine: Machine, file: ClientFile, moved: set[str]) -> None:
    """The document is the one before without what was moved, and all comments around are there."""
    old = before[str(file.path.relative_to(machine.root))][1].decode()
    expected = client_files.parse(file.dialect, old)
    table = expected[TABLES[file.dialect]]
    assert isinstance(table, dict)
    expected[TABLES[file.dialect]] = {name: each for name, each in table.items() if name not in moved}
    found = client_files.parse(file.dialect, file.path.read_bytes().decode())
    now: Any = found.setdefault(TABLES[file.dialect], {})
    if OWN_NAME not in table and moved:
        assert now.pop(OWN_NAME, OWN) == OWN
    assert found == expected


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None, max_examples=EXAMPLES
)
@given(client_texts())
def test_an_undo_after_a_change_puts_the_servers_back_and_keeps_the_change(given_text: tuple[Dialect, str]) -> None:
    dialect, text = given_text
    for machine in machines():
        path = machine.write(dialect, text)
        planned = machine.plan()
        assume(planned.moves)
        receipt = machine.carry_out(planned)
        try:
            changed = client_files.put(dialect, path.read_bytes().decode(), {("drift",): {"a": 1}})
        except Unmergeable:
            assume(False)
        path.write_bytes(changed.encode())
        undo(receipt.file)
        found = client_files.parse(dialect, path.read_bytes().decode())
        assert found == client_files.parse(dialect, text) | {"drift": {"a": 1}}


def test_a_short_secret_is_masked_by_its_name_and_noted(machine: Machine) -> None:
    machine.write(
        CLAUDE, {"mcpServers": {"clock": {"command": "clock", "env": {"CLOCK_API_KEY": "s3cr3t"}}}}, user=True
    )
    planned = machine.plan()
    assert "s3cr3t" not in text_of(planned)
    assert any("CLOCK_API_KEY" in str(note) for move in planned.moves for note in move.notes)
