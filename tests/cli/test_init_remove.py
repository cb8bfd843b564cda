"""`init --remove`: what init put in goes, what the person put there stays."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from intercom.cli import init_clients
from tests.cli.test_init import backups, entry_file, files, hooks_file, init_with, snapshot

MINE = {
    "claude-code": '{"mcpServers": {"other": {"command": "x"}}}',
    "codex": "# mine\nmodel = 'x'\n\n[mcp_servers.other]\ncommand = 'x' # keep\n",
    "cursor": '{"mine":   1}',
    "vscode": '{"inputs": [{"id": "mine"}], "servers": {}}',
    "copilot-cli": "{}",
}
MY_HOOKS = '{"hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "audit.sh"}]}]}, "model":   "x"}'


def clients_of(own_home: Path) -> dict[str, tuple[int, bytes | str]]:
    """The home without what is Intercom's own."""
    return {
        name: each
        for name, each in snapshot(own_home).items()
        if not name.startswith((".config", ".local")) and name not in (".config", ".local")
    }


@pytest.mark.parametrize("http", [(), ("--http",)])
@pytest.mark.parametrize("again", [False, True])
def test_removing_leaves_every_file_as_it_was(own_home: Path, http: tuple[str, ...], again: bool) -> None:
    for name, text in MINE.items():
        file = entry_file(name, own_home / "project")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    hooks = hooks_file("codex", own_home / "project")
    hooks.write_text(MY_HOOKS)
    before = clients_of(own_home)
    if again:
        assert init_with("--write", "--client", "all", "--hooks", "--config", own_home / ".config/old.toml") == 0
    assert init_with("--write", "--client", "all", "--hooks", *http) == 0
    assert clients_of(own_home) != before
    assert init_with("--remove") == 0
    assert clients_of(own_home) == before
    assert init_clients.recorded() == {}


def test_in_an_empty_home_nothing_is_left(own_home: Path) -> None:
    before = clients_of(own_home)
    assert init_with("--write", "--client", "all", "--hooks") == 0
    assert init_with("--remove") == 0
    assert clients_of(own_home) == before


def test_one_client_alone_may_go(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--write", "--client", "all", "--hooks") == 0
    capsys.readouterr()
    assert init_with("--remove", "--client", "cursor") == 0
    said = capsys.readouterr().out
    assert f"deleted  {own_home}/.cursor/hooks.json, which init had made  (Cursor's hooks)" in said
    assert "codex" not in said
    assert not (own_home / ".cursor").exists()
    assert (own_home / ".codex/hooks.json").exists()


def test_what_the_person_has_changed_since_stays(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--write", "--client", "codex", "--client", "claude-code", "--hooks") == 0
    config = own_home / ".codex/config.toml"
    config.write_text(f"# mine\n{config.read_text()}extra = 1\n\n[mcp_servers.other]\ncommand = 'y'\n")
    hooks = hooks_file("codex", own_home / "project")
    document = json.loads(hooks.read_text())
    mine = {"type": "command", "command": "audit.sh"}
    document["hooks"]["PreToolUse"][0]["hooks"].append(mine)
    document["hooks"]["PreToolUse"][0]["hooks"][0]["timeout"] = 9
    hooks.write_text(json.dumps(document))
    before = config.read_text()
    capsys.readouterr()
    assert init_with("--remove") == 0
    assert tomllib.loads(config.read_text()) == {"mcp_servers": {"other": {"command": "y"}}}
    assert config.read_text().startswith("# mine\n")
    assert [each.read_text() for each in backups(config)] == [before]
    assert json.loads(hooks.read_text()) == {"hooks": {"PreToolUse": [{"hooks": [mine]}]}}
    said = capsys.readouterr().out
    assert f"removed  from {config}" in said
    assert "you had set in its entry: extra" in said


def test_an_entry_that_stood_there_before_comes_back(own_home: Path) -> None:
    file = entry_file("cursor", own_home / "project")
    file.parent.mkdir()
    mine = {"command": "/my/agent-intercom", "env": {"A": "b"}}
    file.write_text(json.dumps({"mcpServers": {"agent-intercom": mine}}))
    assert init_with("--write", "--client", "cursor") == 0
    document = json.loads(file.read_text())
    document["mcpServers"]["other"] = {}
    file.write_text(json.dumps(document))
    assert init_with("--remove", "--client", "cursor") == 0
    assert json.loads(file.read_text())["mcpServers"] == {"other": {}, "agent-intercom": mine}


def test_without_a_record_hooks_and_entries_go_all_the_same(own_home: Path) -> None:
    assert init_with("--write", "--client", "all", "--hooks") == 0
    init_clients.record_file().unlink()
    assert init_with("--remove") == 0
    for file in files(own_home / "project"):
        assert "agent-intercom" not in file.read_text()


def test_a_client_whose_file_can_not_be_read_is_left_whole_and_told(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init_with("--write", "--client", "cursor", "--client", "codex", "--hooks") == 0
    hooks = hooks_file("cursor", own_home / "project")
    hooks.write_text(f"// mine\n{hooks.read_text()}")
    before = snapshot(own_home / ".cursor")
    assert init_with("--remove") == 1
    assert snapshot(own_home / ".cursor") == before
    assert f"Cursor: {hooks} is not plain JSON" in capsys.readouterr().err
    assert not (own_home / ".codex").exists()


def test_other_projects_are_named(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = own_home / "other"
    other.mkdir()
    assert init_with("--write", "--client", "claude-code", "--hooks", "--workspace", other) == 0
    capsys.readouterr()
    assert init_with("--remove") == 0
    assert (
        f"still in {other}/.claude/settings.local.json: run init --remove --client claude-code"
        in capsys.readouterr().out
    )
    assert init_with("--remove", "--workspace", other) == 0
    assert list(other.iterdir()) == []


def test_nothing_to_remove_changes_nothing(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(own_home)
    assert init_with("--remove") == 0
    assert snapshot(own_home) == before
    assert "nothing  " in capsys.readouterr().out
