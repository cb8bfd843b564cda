"""`agent-intercom init`, on a home directory of its own."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest

from intercom.agents.clients import CLIENTS, hooks_of
from intercom.agents.clients.client import SERVER_NAME
from intercom.cli import init_clients, init_files, main
from intercom.cli.init import render
from intercom.local import processes
from intercom.local.config_file import load
from intercom.local.processes import Recognised, Who
from intercom.model.config import Config
from intercom.model.config_tables import tables
from intercom.model.process import Origin
from tests.docs.generated import DOCS, PROGRAM


def init_with(*argv: object) -> int:
    return main.main(["init", *(str(each) for each in argv)])


def files(project: Path) -> list[Path]:
    """Every file of every client, with its entry or its hooks."""
    found = [client.entry.file for client in CLIENTS.values()]
    found += [client.hooks.file for client in CLIENTS.values() if client.hooks is not None]
    return [each.file(project) for each in found]


def entry_file(name: str, project: Path) -> Path:
    return CLIENTS[name].entry.file.file(project)


def hooks_file(name: str, project: Path) -> Path:
    return hooks_of(name).file.file(project)


def own_config(own_home: Path) -> Path:
    return own_home / ".config/agent-intercom/config.toml"


def backups(file: Path) -> list[Path]:
    assert not list(file.parent.glob(f"{file.name}.*.bak"))
    return sorted(init_clients.backup_directory().glob(f"{file.name}.*.bak"))


def snapshot(root: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything below a directory: kinds, modes, contents."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for each in sorted(root.rglob("*")):
        mode = each.lstat().st_mode
        content = str(each.readlink()) if each.is_symlink() else "" if each.is_dir() else each.read_bytes()
        found[str(each.relative_to(root))] = (mode, content)
    return found


def test_it_writes_a_configuration_that_changes_nothing(own_home: Path) -> None:
    assert init_with("--write") == 0
    assert stat.S_IMODE(own_config(own_home).stat().st_mode) == 0o600
    assert load(own_config(own_home)) == attrs.evolve(Config(), database=load().database)


def test_every_line_of_the_file_it_writes_can_be_uncommented(own_home: Path) -> None:
    lines = render().splitlines()
    file = own_home / "all.toml"
    file.write_text("\n".join(line.removeprefix("# ") for line in lines if not line.startswith("##")))
    file.chmod(0o600)
    config = load(file)
    assert config.http_port == 3000
    assert config.clients["codex"].call_wait_seconds == 240
    assert config.commands == {"status": "git status"}
    named = {setting.name for table in tables() for setting in table.settings}
    assert named <= {line[2:].split(" = ")[0] for line in lines if line.startswith("# ")}


def test_a_default_that_is_shown_is_the_default(own_home: Path) -> None:
    shown = {
        (table.name, setting.name): tomllib.loads(f"x = {setting.default}")["x"]
        for table in tables()
        for setting in table.settings
        if setting.default is not None and not setting.kind.startswith("table")
    }
    config = Config()
    for (table, name), value in shown.items():
        real = getattr(getattr(config, table) if table else config, name)
        assert (list(real) if isinstance(real, tuple) else real) == value, (table, name)
    assert len(shown) > 20


def test_a_configuration_that_is_there_is_kept_unless_forced(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_config(own_home).parent.mkdir(parents=True)
    own_config(own_home).write_text("retention_days = 9\n")
    assert init_with("--write") == 0
    assert own_config(own_home).read_text() == "retention_days = 9\n"
    assert "--force writes it again" in capsys.readouterr().out
    assert init_with("--write", "--force") == 0
    assert load(own_config(own_home)).retention_days == 30
    assert [each.read_text() for each in backups(own_config(own_home))] == ["retention_days = 9\n"]


def test_a_named_workspace_becomes_the_default_one(own_home: Path) -> None:
    assert init_with("--write", "--workspace", own_home / "project") == 0
    assert load(own_config(own_home)).default_workspace_root == own_home / "project"


@pytest.mark.parametrize("place", ["/", "~"])
def test_a_workspace_that_holds_everything_is_refused(
    own_home: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    assert init_with("--workspace", place) == 1
    assert "cannot be a workspace" in capsys.readouterr().err
    assert not own_config(own_home).exists()


def test_a_workspace_that_is_not_there_is_refused(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--workspace", own_home / "none") == 2
    assert "is not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [("--client", "codex"), ("--http", "--client", "all"), ("--hooks", "--client", "all")])
def test_without_write_it_shows_and_changes_nothing_on_disk(
    own_home: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    """The preview wrote a configuration, and made a token."""
    before = snapshot(own_home)
    assert init_with(*argv) == 0
    assert snapshot(own_home) == before
    shown = capsys.readouterr().out
    for client in [CLIENTS["codex"]] if "codex" in argv else CLIENTS.values():
        assert client.title in shown
        assert str(client.entry.file.file(own_home / "project")) in shown
    assert f"would write {own_config(own_home)}" in shown
    assert "nothing was changed: add --write" in shown


def test_without_a_client_it_shows_those_that_are_here(
    own_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    before = snapshot(own_home)
    assert init_with() == init_with("--http", "--force") == 0
    shown = capsys.readouterr().out
    assert shown.count(f"add one of these after --client:\n  {'  '.join(CLIENTS)}\n") == 2
    assert "mcpServers" not in shown
    assert snapshot(own_home) == before
    CLIENTS["codex"].entry.file.file(own_home / "project").parent.mkdir()
    assert init_with() == 0
    shown = capsys.readouterr().out
    assert [client for client in CLIENTS if f"\n{CLIENTS[client].title}: in " in shown] == ["codex"]
    assert "no client was found" not in shown


def test_a_preview_beside_a_configuration_changes_nothing_either(own_home: Path) -> None:
    assert init_with("--write", "--client", "all") == 0
    before = snapshot(own_home)
    assert init_with("--http", "4100") == 0
    assert init_with("--force") == 0
    assert snapshot(own_home) == before


def test_write_without_a_client_writes_the_configuration_alone(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init_with("--write") == 0
    assert "no client was connected: add --client codex" in capsys.readouterr().out
    assert own_config(own_home).exists()
    assert not any(file.exists() for file in files(own_home / "project"))


def test_a_client_nobody_knows_is_a_usage_error_that_names_those_there_are(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init_with("--client", "emacs") == 2
    named = "claude-code, codex, cursor, vscode, copilot-cli, opencode, gemini-cli, qwen-code, or all"
    assert f"choose from {named}" in capsys.readouterr().err
    assert not own_config(own_home).exists()


def test_write_merges_into_every_client_and_a_second_time_changes_nothing(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init_with("--write", "--client", "all", "--hooks") == 0
    every = files(own_home / "project")
    first = [file.read_bytes() for file in every]
    assert init_with("--write", "--client", "all") == 0
    assert [file.read_bytes() for file in every] == first
    assert not any(backups(file) for file in every)
    assert capsys.readouterr().out.count("has it ") == len(every)


def test_a_client_that_lives_elsewhere_is_found_there(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEX_HOME", str(own_home / "c"))
    monkeypatch.setenv("COPILOT_HOME", str(own_home / "g"))
    assert init_with("--write", "--client", "codex", "--client", "copilot-cli") == 0
    assert (own_home / "c/config.toml").exists()
    assert (own_home / "g/mcp-config.json").exists()


def test_a_configuration_elsewhere_is_passed_on_to_the_client(own_home: Path) -> None:
    assert init_with("--config", own_home / "other.toml", "--write", "--client", "codex") == 0
    entry = tomllib.loads((own_home / ".codex/config.toml").read_text())["mcp_servers"]["agent-intercom"]
    assert entry["args"][-2:] == ["--config", str(own_home / "other.toml")]


def test_a_merge_keeps_a_backup_the_mode_and_the_link(own_home: Path) -> None:
    dotfiles = own_home / "dotfiles.toml"
    dotfiles.write_text("# mine\nmodel = 'x'\n")
    dotfiles.chmod(0o640)
    (own_home / ".codex").mkdir()
    (own_home / ".codex/config.toml").symlink_to(dotfiles)
    assert init_with("--write", "--client", "codex") == 0
    assert (own_home / ".codex/config.toml").is_symlink()
    assert dotfiles.read_text().startswith("# mine\nmodel = 'x'\n")
    assert stat.S_IMODE(dotfiles.stat().st_mode) == 0o640
    assert [each.read_text() for each in backups(dotfiles)] == ["# mine\nmodel = 'x'\n"]


def test_a_file_that_can_not_be_merged_is_left_alone_and_the_entry_shown(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = own_home / "project/.vscode/mcp.json"
    file.parent.mkdir()
    file.write_text('{ // mine\n "servers": {} }')
    (own_home / ".cursor").mkdir()
    (own_home / ".cursor/mcp.json").write_bytes(b"\xff")
    assert init_with("--write", "--client", "vscode", "--client", "cursor", "--client", "codex") == 1
    assert not (own_home / ".cursor/hooks.json").exists()
    assert file.read_text() == '{ // mine\n "servers": {} }'
    assert not backups(file)
    said = capsys.readouterr().err
    assert "comments and trailing commas cannot be kept" in said
    assert "is not UTF-8 text" in said
    assert '"agent-intercom": {' in said
    assert (own_home / ".codex/config.toml").exists()


def test_a_file_that_can_not_be_written_is_told_and_nothing_is_left_behind(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_home / ".codex").write_text("a file where a directory should be")
    assert init_with("--write", "--client", "codex") == 1
    assert f"not a directory: {own_home}/.codex; nothing of it was changed" in capsys.readouterr().err
    assert not list(own_home.glob(".*.toml.*"))


def test_a_directory_in_place_of_the_configuration_is_told(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--write", "--config", own_home, "--force") == 1
    assert "is a directory: give --config a file in it" in capsys.readouterr().err


@pytest.mark.parametrize("call", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("nth", range(3))
@pytest.mark.parametrize("fails", [OSError(28, "No space left on device", "x"), KeyboardInterrupt()])
def test_a_write_that_fails_at_any_step_leaves_the_client_as_it_was(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, call: str, nth: int, fails: BaseException
) -> None:
    """A client's files were written one after the other: the entry without its hooks."""
    assert init_with("--write") == 0
    (own_home / ".cursor").mkdir()
    (own_home / ".cursor/mcp.json").write_text('{"mine": 1}')
    before = snapshot(own_home)
    done = getattr(os, call)
    calls = iter(range(100))

    def once_failing(*given: Any) -> Any:
        if next(calls) == nth:
            raise fails
        return done(*given)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, once_failing)
        assert init_with("--write", "--client", "cursor", "--hooks") == (1 if isinstance(fails, OSError) else 130)
    assert snapshot(own_home) == before
    assert init_with("--write", "--client", "cursor", "--hooks") == 0


@pytest.mark.parametrize("nth", range(3))
def test_killed_at_any_step_every_file_is_whole_and_the_old_text_is_kept(own_home: Path, nth: int) -> None:
    assert init_with("--write") == 0
    file = entry_file("cursor", own_home / "project")
    file.parent.mkdir()
    file.write_text('{"mine": 1}')
    words = ["init", "--write", "--client", "cursor", "--hooks"]
    killed = (
        "import os; from intercom.cli import main; replace, calls = os.replace, iter(range(9))\n"
        f"os.replace = lambda *given: os.kill(os.getpid(), 9) if next(calls) == {nth} else replace(*given)\n"
        f"main.main({words})"
    )
    done = subprocess.run([sys.executable, "-c", killed], capture_output=True, cwd=own_home / "project", check=False)
    assert done.returncode == -9
    assert json.loads(file.read_text())["mine"] == 1
    assert [each.read_text() for each in backups(file)] == ['{"mine": 1}']
    assert hooks_file("cursor", own_home / "project").exists() is (nth == 2)
    # What is missing is written the next time, and taken out with the rest.
    assert main.main(words) == 0
    assert hooks_file("cursor", own_home / "project").exists()
    assert init_with("--remove") == 0
    assert json.loads(file.read_text()) == {"mine": 1}


def test_output_that_cannot_be_written_is_told_and_what_was_done_is_done(own_home: Path) -> None:
    words = [sys.executable, "-m", "intercom.cli.main", "init", "--write", "--client", "cursor"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, cwd=own_home / "project", check=False
        )
    assert done.returncode == 1
    assert done.stderr == "what was done could not be printed: No space left on device\n"
    assert (own_home / ".cursor/mcp.json").exists()


@pytest.mark.parametrize("lines", [0, 1, 3])
def test_a_reader_that_closes_the_pipe_leaves_nothing_half_done(own_home: Path, lines: int) -> None:
    """`init --write | head -3` left clients half done, and said to add the rest by hand."""
    words = [sys.executable, "-m", "intercom.cli.main", "init", "--write", "--client", "all", "--hooks"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        env=os.environ,
        cwd=own_home / "project",
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0
    assert all(file.exists() for file in files(own_home / "project"))


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an installation's commands, which the PATH does not have."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("python", "agent-intercom", "agent-intercom-ctl"):
        (bin_ / name).write_text("#!/bin/sh\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setattr(init_clients.sys, "executable", str(bin_ / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    return bin_


def test_a_users_own_file_gets_an_absolute_path_and_a_shared_one_the_bare_name(
    installation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/nowhere", str(installation)):
        monkeypatch.setenv("PATH", path)
        assert init_clients.command(None, shared=True) == ["agent-intercom"]
        assert init_clients.command(None, shared=False) == [str(installation / "agent-intercom")]
    # An installer of commands links them into one directory, which stays when the rest moves.
    (tmp_path / "links").mkdir()
    (tmp_path / "links/agent-intercom").symlink_to(installation / "agent-intercom")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert init_clients.command(None, shared=False) == [str(tmp_path / "links/agent-intercom")]
    (tmp_path / "links/agent-intercom").unlink()
    (installation / "agent-intercom").unlink()
    python = str(installation / "python")
    assert init_clients.command(None, shared=False) == [python, "-m", "intercom.cli.main"]


@pytest.mark.usefixtures("installation")
def test_shared_files_name_no_path_of_this_machine(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init_with("--write", "--client", "all", "--hooks", "--config", own_home / "c/other.toml") == 0
    for name in ("claude-code", "vscode"):
        text = entry_file(name, own_home / "project").read_text()
        assert '"~/c/other.toml"' in text
        assert str(own_home) not in text
        assert "/bin/" not in text
    assert "your PATH does not find it: add " in capsys.readouterr().out
    words = main.parser().parse_args(["--config", "~/c/other.toml"])
    assert words.config == str(own_home / "c/other.toml")


def test_a_configuration_outside_the_home_directory_cannot_be_named_in_a_shared_file(
    own_home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--write", "--no-hooks", "--config", tmp_path / "c.toml")
    assert init_with(*words, "--client", "vscode", "--client", "codex") == 1
    assert "cannot name" in capsys.readouterr().err
    assert not (tmp_path / "c.toml").exists()
    assert not any(file.exists() for file in files(own_home / "project"))
    assert init_with(*words, "--client", "codex") == 0


def test_a_project_under_no_version_control_is_named_since_some_clients_do_not_say_where_they_are(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = own_home / "project"
    monkeypatch.chdir(project)
    assert init_with("--write", "--client", "codex") == 0
    assert "under no version control" in capsys.readouterr().out
    (project / ".git").mkdir()
    assert init_with("--write", "--client", "codex") == 0
    assert "version control" not in capsys.readouterr().out


def test_in_a_directory_below_the_project_it_writes_at_the_root_and_says_so(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = own_home / "project"
    (project / ".git").mkdir()
    (project / "src/deep").mkdir(parents=True)
    monkeypatch.chdir(project / "src/deep")
    assert init_with("--write", "--client", "claude-code") == 0
    assert entry_file("claude-code", project).exists()
    assert not list((project / "src/deep").iterdir())
    assert f"project  {project}  (the root of this repository; else give --workspace)\n" in capsys.readouterr().out
    assert init_with("--write", "--client", "claude-code", "--workspace", ".") == 0
    assert entry_file("claude-code", project / "src/deep").exists()
    assert f"project  {project}/src/deep\n" in capsys.readouterr().out
    assert init_with("--remove") == 0
    assert not entry_file("claude-code", project).exists()


def test_the_home_directory_is_no_project_even_under_version_control(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_home / ".git").mkdir()
    assert init_with("--write", "--client", "claude-code") == 0
    assert entry_file("claude-code", own_home / "project").exists()
    monkeypatch.chdir(own_home)
    assert init_with("--write", "--client", "claude-code", "--client", "codex") == 1
    assert "name the project's own directory" in capsys.readouterr().err
    assert not entry_file("codex", own_home).exists()
    # Codex has no file in the project.
    assert init_with("--write", "--client", "codex") == 0


def test_it_ends_with_what_to_restart_and_what_to_run(
    own_home: Path, installation: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def last() -> list[str]:
        return [line for line in capsys.readouterr().out.splitlines() if line][-4:]

    assert init_with("--write", "--client", "codex", "--client", "cursor") == 0
    steps = ["Restart Codex and Cursor. Then answer what it asks, in a terminal of your own:"]
    assert last() == [
        *steps,
        f"  {installation}/agent-intercom-ctl",
        f"in the browser: {installation}/agent-intercom-ctl web",
        f"check the setup: {installation}/agent-intercom doctor",
    ]
    monkeypatch.setenv("PATH", str(installation))
    assert init_with("--write", "--client", "codex", "--config", own_home / "c.toml") == 0
    assert last()[1:] == [
        f"  agent-intercom-ctl --config {own_home}/c.toml",
        f"in the browser: agent-intercom-ctl --config {own_home}/c.toml web",
        f"check the setup: agent-intercom --config {own_home}/c.toml doctor",
    ]
    assert init_with("--write", "--client", "codex", "--http") == 0
    assert "\n  agent-intercom serve\n" in capsys.readouterr().out
    assert init_with("--client", "codex") == 0
    assert "Restart" not in capsys.readouterr().out.splitlines()[-1]


def test_backups_are_private_and_outside_of_the_project(own_home: Path) -> None:
    file = entry_file("claude-code", own_home / "project")
    file.write_text('{"mine": 1}')
    file.chmod(0o644)
    assert init_with("--write", "--client", "claude-code") == 0
    assert {each.name for each in (own_home / "project").iterdir()} == {".mcp.json", ".claude"}
    (backup,) = backups(file)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    assert stat.S_IMODE(backup.parent.stat().st_mode) == 0o700
    assert init_with("--remove") == 0
    assert file.read_text() == '{"mine": 1}'
    assert not backup.parent.exists()


@pytest.mark.parametrize("name", CLIENTS)
def test_the_entries_of_a_page_are_what_init_prints(
    own_home: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(init_clients, "command", lambda _config, shared: [SERVER_NAME if shared else PROGRAM])
    page = (DOCS / "how-to/clients" / f"{name}.md").read_text()
    made = page[page.index("<!-- made") : page.index("<!-- end -->")]
    stdio, http = re.findall(r"```(?:json|toml)\n(.*?)```", made, re.DOTALL)
    assert init_with("--client", name, "--no-hooks") == 0
    assert init_files.indented(stdio) in capsys.readouterr().out
    assert init_with("--client", name, "--no-hooks", "--http", "3000") == 0
    printed = re.sub(r"(?<=-)[0-9a-f]{16}", "0123456789abcdef", capsys.readouterr().out)
    assert init_files.indented(http) in printed


def test_every_client_has_a_page() -> None:
    assert {file.stem for file in (DOCS / "how-to/clients").glob("*.md")} == set(CLIENTS)


@pytest.mark.parametrize("words", [(), ("--write",)])
def test_on_a_terminal_its_sentences_end_between_words_and_what_goes_into_files_stays(
    own_home: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--client", "opencode", "--client", "codex", "--workspace", own_home / "project"]
    assert init_with(*words, *at, "--no-hooks") == 0
    sentence = "opencode's own tools write and run without asking, and Intercom has no hooks for it. To restrict them,"
    piped = capsys.readouterr().out
    assert sentence in piped
    assert init_with("--remove") == 0
    own_config(own_home).unlink(missing_ok=True)
    capsys.readouterr()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    assert init_with(*words, *at, "--no-hooks") == 0
    shown = capsys.readouterr().out
    assert sentence not in shown
    assert shown.split() == piped.split()
    said = [line for line in shown.splitlines() if "without asking" in line or "Optional:" in line]
    assert len(said) >= 2
    assert max(map(len, said)) <= 50
    assert '      "edit": "deny",\n      "bash": "ask"\n' in shown
    if words:
        assert "\nhooks    none: opencode's own tools" in shown


def test_it_says_that_it_recorded_directories_that_are_not_the_default_ones(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Recognised(Who.OPERATOR, "", Origin("ctl"))
    monkeypatch.setattr(processes, "recognise", lambda *_: operator)
    assert init_with("--write") == 0
    assert "as your own directories" not in capsys.readouterr().out
    for part in ("config", "state"):
        monkeypatch.setenv(f"XDG_{part.upper()}_HOME", str(own_home / part))
    added = f"{own_home}/config/agent-intercom and {own_home}/state/agent-intercom"
    file = f"{own_home}/.local/state/agent-intercom/own-directories"
    said = f"recorded {added} as your own directories, in {file}: a server that an agent starts takes your settings and"
    for is_told in (True, False):
        assert init_with("--write") == 0
        out = " ".join(capsys.readouterr().out.split())
        assert (said in out) is is_told
        assert ("To take one back, remove its line there and run agent-intercom stop" in out) is is_told
