"""Permission hooks in clients' files: ours are there once, and nobody else's are touched."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.clients import CLIENTS, HOOKED, hooks_of
from intercom.cli import doctor_checks, init
from intercom.cli.doctor_checks import State
from intercom.cli.init_clients import HooksFile, path_of, put_into, snippet
from intercom.cli.init_files import Unmergeable
from tests.cli.test_init import backups, entry_file, hooks_file, init_with
from tests.support.server_process import COMMAND
from tests.support.terminal import on_terminal

START = ("/opt/bin/agent-intercom",)


@pytest.fixture(params=HOOKED)
def hooks(request: pytest.FixtureRequest) -> HooksFile:
    return of(request.param)


def of(name: str, project: Path = Path(), start: tuple[str, ...] = START) -> HooksFile:
    return HooksFile(CLIENTS[name], hooks_of(name), project, start)


def table(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["hooks"]
    return found


def commands(text: str, event: str) -> list[str]:
    entries = table(text).get(event, [])
    handlers = [handler for entry in entries for handler in entry.get("hooks", [entry])]
    return [handler.get("command") or handler["bash"] for handler in handlers]


def test_a_new_file_asks_at_every_event_and_stays_as_it_is(hooks: HooksFile, own_home: Path, tmp_path: Path) -> None:
    text = snippet(hooks)
    assert set(table(text)) == set(hooks.hooks.events)
    for event in hooks.hooks.events:
        (command,) = commands(text, event)
        assert command.startswith(f"/opt/bin/agent-intercom hook {hooks.client.name} --event {event}")
        assert ("exit 2" in command) is (event in hooks.hooks.asks)
    assert put_into(hooks, text) == text
    path_of(on_disk := evolve(hooks, project=tmp_path)).parent.mkdir(parents=True, exist_ok=True)
    path_of(on_disk).write_text(text)
    assert on_disk.installed() == tuple(hooks.hooks.events)


def test_an_older_entry_of_ours_is_replaced_and_those_of_others_are_kept(hooks: HooksFile) -> None:
    event = hooks.hooks.asks[0]
    text = snippet(evolve(hooks, start=("/old/place/agent-intercom", "--config", "/x.toml")))
    document = json.loads(text)
    theirs = {"command": "audit.sh", "bash": "audit.sh"}
    nested = "hooks" in document["hooks"][event][0]
    document["hooks"][event].insert(0, {"hooks": [theirs]} if nested else theirs)
    document["hooks"]["somethingElse"] = [theirs]
    document["model"] = "x"
    after = put_into(hooks, json.dumps(document))
    first, second = commands(after, event)
    assert first == "audit.sh"
    assert second.startswith("/opt/bin/agent-intercom hook")
    assert "/old/place" not in after
    assert table(after)["somethingElse"] == [theirs]
    assert json.loads(after)["model"] == "x"


def test_our_command_leaves_the_group_of_another_and_not_the_other() -> None:
    hooks = of("claude-code")
    ours = {"type": "command", "command": "agent-intercom hook claude-code"}
    theirs = {"type": "command", "command": "audit.sh"}
    text = json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [ours, theirs]}]}})
    groups = table(put_into(hooks, text))["PreToolUse"]
    assert groups[0] == {"matcher": "Bash", "hooks": [theirs]}
    assert len(groups) == 2


@pytest.mark.parametrize("text", ["[]", "{,}", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', '{"a": 1, "a": 2}'])
def test_what_can_not_be_merged_is_refused(text: str) -> None:
    with pytest.raises(Unmergeable):
        put_into(of("claude-code"), text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)

_TABLES = st.dictionaries(st.text(max_size=5), st.lists(_JSON, max_size=3), max_size=3)


@given(st.sampled_from(HOOKED), _TABLES)
def test_whatever_else_stands_there_stays(name: str, others: dict[str, Any]) -> None:
    hooks = of(name)
    text = json.dumps({"hooks": others, "other": others})
    after = put_into(hooks, text)
    assert json.loads(after)["other"] == others
    for event, entries in others.items():
        assert table(after)[event][: len(entries)] == entries
    assert put_into(hooks, after) == after


def test_a_command_that_can_not_be_started_denies(hooks: HooksFile, tmp_path: Path) -> None:
    event = hooks.hooks.asks[0]
    (command,) = commands(snippet(evolve(hooks, start=(str(tmp_path / "gone/agent-intercom"),))), event)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, input="{}", timeout=60, check=False)
    assert done.returncode == 2
    assert "this is denied" in done.stderr


def test_init_writes_no_hooks_unless_told_to(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hooks that hold in every project, and deny when the program is gone, were installed unasked."""
    assert init_with("--write", "--client", "all") == 0
    assert not any(of(name, own_home / "project").installed() for name in HOOKED)
    assert "Codex may use its own tools without asking (--hooks installs them)" in capsys.readouterr().out


def test_init_writes_hooks_with_a_backup_and_keeps_those_that_are_installed_up_to_date(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = hooks_file("claude-code", own_home / "project")
    file.parent.mkdir()
    file.write_text('{"model": "x"}')
    assert init_with("--write", "--client", "claude-code", "--hooks") == 0
    assert of("claude-code", own_home / "project").installed() == ("PreToolUse", "Stop")
    assert [each.read_text() for each in backups(file)] == ['{"model": "x"}']
    assert "Claude Code's hooks and Claude Code's permission to call these tools, in this project only" in (
        capsys.readouterr().out
    )
    now = file.read_text()
    file.write_text(
        now.replace("agent-intercom hook", "--config /gone hook").replace(
            'command": "', 'command": "/old/agent-intercom '
        )
    )
    assert "/old" in file.read_text()
    assert init_with("--write", "--client", "claude-code") == 0
    assert json.loads(file.read_text()) == json.loads(now)


@pytest.mark.parametrize(("typed", "are_installed"), [("y\n", True), ("\n", False), ("n\n", False), ("\x04", False)])
@pytest.mark.real_time
async def test_on_a_terminal_it_asks_about_hooks_and_instructions_and_installs_none_by_default(
    own_home: Path, typed: str, are_installed: bool
) -> None:
    project = own_home / "project"
    words = ["init", "--write", "--client", "codex", "--client", "claude-code", "--workspace", str(project)]
    words.append("--no-key")
    async with on_terminal([*COMMAND, *words], os.environ) as screen:
        said = await screen.until("Install these hooks? [y/N] ")
        assert "Codex: in all your projects" in said
        assert "Claude Code: in this project only" in said
        assert "hook denies every such use: before you remove the program, run" in said
        assert "'agent-intercom init --remove'" in said
        screen.type(typed)
        said = await screen.until("Write these instructions? [y/N] ")
        assert f"Codex: in all your projects\r\n    {own_home}/.codex/AGENTS.md" in said
        assert not (own_home / ".codex").exists()
        screen.type(typed)
        assert await screen.ended() == 0
    assert (own_home / ".codex/config.toml").exists()
    assert (own_home / ".codex/AGENTS.md").exists() is are_installed
    for name in ("codex", "claude-code"):
        assert bool(of(name, project).installed()) is are_installed


def test_hooks_that_can_not_be_merged_are_shown(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = hooks_file("cursor", own_home / "project")
    file.parent.mkdir()
    file.write_text("// mine\n{}")
    assert init_with("--write", "--client", "cursor", "--hooks") == 1
    assert file.read_text() == "// mine\n{}"
    assert not entry_file("cursor", own_home / "project").exists(), "a client is written whole or not at all"
    assert '"beforeShellExecution": [' in capsys.readouterr().err


def test_init_and_doctor_say_how_to_restrict_the_tools_of_a_client_without_hooks(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = own_home / "project"
    assert not [*doctor_checks.examine_own_tools(project)]
    assert init_with("--client", "opencode") == init_with("--write", "--client", "opencode") == 0
    assert capsys.readouterr().out.count('"permission": {\n      "edit": "deny"') == 2
    assert doctor_checks.examine_hooks(project).text == "Intercom has none for opencode"
    [found] = doctor_checks.examine_own_tools(project)
    file = entry_file("opencode", project)
    assert found.state is State.WARN
    assert found.advice.startswith("let agent-intercom init --write --client opencode add rules in your terminal, or ")
    assert found.advice.endswith(f'or put "permission": {{"edit": "deny", "bash": "ask"}} into {file}')
    document = json.loads(file.read_text())
    for rules, is_restricted in [
        ({"edit": "deny", "bash": "ask"}, True),
        ({"*": "ask", "bash": {"*": "deny", "git status": "allow"}}, True),
        ("ask", True),
        ({"edit": "deny"}, False),
        ({"edit": "deny", "bash": {"rm *": "deny"}}, False),
        ({"edit": "deny", "bash": "ask", "*": "allow"}, False),
        ({"*": "allow", "edit": "deny", "bash": "ask"}, True),
        ({"edit": "deny", "bash": "ask", "ba*": "allow"}, False),
        ("allow", False),
        (["deny"], False),
    ]:
        file.write_text(json.dumps({**document, "permission": rules}))
        assert [*doctor_checks.examine_own_tools(project)] == ([] if is_restricted else [found])
    assert init_with("--write", "--client", "opencode") == 0


@pytest.mark.parametrize("answer", [True, False])
def test_on_a_terminal_it_offers_the_rules_of_a_client_without_hooks(
    own_home: Path,
    answer: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    project = own_home / "project"
    asked: list[str] = []
    monkeypatch.setattr(init, "_is_terminal", lambda: True)
    monkeypatch.setattr(init, "agreed", lambda question: (asked.append(question), answer)[1])
    words = ("--write", "--client", "opencode", "--no-instructions", "--no-key")
    file = entry_file("opencode", project)
    file.parent.mkdir(parents=True)
    old = '{"permission": {"webfetch": "ask"}}'
    file.write_text(old)
    assert init_with(*words, "--no-hooks") == 0
    assert not asked
    capsys.readouterr()
    assert init_with(*words) == 0
    assert asked == ["Add these rules?"]
    rules = {"edit": "deny", "bash": "ask"} if answer else {}
    assert json.loads(file.read_text())["permission"] == {**rules, "webfetch": "ask"}
    assert bool([*doctor_checks.examine_own_tools(project)]) is not answer
    said = capsys.readouterr().out
    assert "To restrict them, add to" not in said
    assert ("no rules were added for opencode's own tools (init --write asks again)" in said) is not answer
    assert init_with("--remove", "--client", "opencode") == 0
    assert file.read_text() == old


def test_rules_of_the_persons_stay_and_init_does_not_take_out_what_restricts(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = entry_file("opencode", own_home / "project")
    monkeypatch.setattr(init, "_is_terminal", lambda: True)
    monkeypatch.setattr(init, "agreed", lambda _question: True)
    words = ("--write", "--client", "opencode", "--no-instructions", "--no-key")
    file.parent.mkdir(parents=True)
    for mine in ("allow", {"edit": "allow"}):
        file.write_text(json.dumps({"permission": mine}))
        assert init_with(*words) == 0
        assert json.loads(file.read_text())["permission"] == mine
    file.write_text('{"permission": {"*": "allow"}}')
    assert init_with(*words) == 0
    # The last rule that matches counts.
    assert [*json.loads(file.read_text())["permission"].items()] == [("*", "allow"), ("edit", "deny"), ("bash", "ask")]
    file.write_text("{}")
    assert init_with(*words) == 0
    file.write_text(json.dumps(json.loads(file.read_text()) | {"theme": "x"}))
    capsys.readouterr()
    assert init_with("--remove", "--client", "opencode") == 0
    assert f"kept     opencode's rules on its own tools, in {file}" in capsys.readouterr().out
    assert json.loads(file.read_text()) == {"permission": {"edit": "deny", "bash": "ask"}, "theme": "x"}


def test_doctor_says_who_may_do_without_asking(own_home: Path) -> None:
    project = own_home / "project"
    assert doctor_checks.examine_hooks(project).state is State.OK
    assert init_with("--write", "--client", "codex", "--no-hooks") == 0
    found = doctor_checks.examine_hooks(project)
    assert (found.state, "Codex may write and run without asking" in found.text) == (State.WARN, True)
    assert init_with("--write", "--client", "codex", "--hooks") == 0
    assert doctor_checks.examine_hooks(project).text == "Codex must ask"
    file = hooks_file("codex", project)
    document = json.loads(file.read_text())
    del document["hooks"]["PreToolUse"]
    file.write_text(json.dumps(document))
    assert "hooks are missing: Codex has only PermissionRequest, Stop" in doctor_checks.examine_hooks(project).text
