"""What init lets Claude Code do: start our server, and call our tools, without a question of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from intercom.agents.clients import CLIENTS
from intercom.cli import doctor_clients, main
from intercom.cli.doctor_checks import Finding, State
from intercom.model.config import Config
from tests.cli.test_init import init_with

VARIABLE = "CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS"
PERMITTED = {
    "permissions": {"allow": ["mcp__agent-intercom"]},
    "enabledMcpjsonServers": ["agent-intercom"],
    "env": {VARIABLE: "0"},
}


def settings(own_home: Path, document: dict[str, Any] | None = None) -> Path:
    file = own_home / "project/.claude/settings.local.json"
    if document is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(document))
    return file


def look(own_home: Path) -> list[Finding]:
    found = doctor_clients.examine_entries(own_home / "project", Config())
    return [each for each in found if "PATH" not in each.advice]


def test_the_server_and_its_tools_are_permitted_and_that_is_said(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init_with("--client", "claude-code") == 0
    assert "mcp__agent-intercom" in capsys.readouterr().out
    assert not settings(own_home).exists()
    assert init_with("--write", "--client", "claude-code") == 0
    assert json.loads(settings(own_home).read_text()) == PERMITTED
    said = capsys.readouterr().out
    assert (
        f"wrote    {settings(own_home)}  (Claude Code's permission to call these tools, in this project only)" in said
    )
    assert f"wrote    {own_home / 'project/.mcp.json'}  (Claude Code)" in said
    assert init_with("--remove") == 0
    assert not settings(own_home).parent.exists()


def test_what_is_the_persons_stays(own_home: Path) -> None:
    mine = {"permissions": {"allow": ["Bash(ls:*)"], "deny": ["WebFetch"]}, "enabledMcpjsonServers": ["other"], "x": 1}
    file = settings(own_home, mine)
    assert init_with("--write", "--hooks", "--client", "claude-code") == 0
    document = json.loads(file.read_text())
    assert document["permissions"] == {"allow": ["Bash(ls:*)", "mcp__agent-intercom"], "deny": ["WebFetch"]}
    assert document["enabledMcpjsonServers"] == ["other", "agent-intercom"]
    assert set(document["hooks"]) == {"PreToolUse", "Stop"}
    assert document["env"] == {VARIABLE: "0"}
    file.write_text(json.dumps(document | {"y": 2}))
    assert init_with("--remove") == 0
    assert json.loads(file.read_text()) == mine | {"y": 2}


def test_a_variable_with_a_value_of_the_persons_stays(own_home: Path) -> None:
    mine = {"env": {VARIABLE: "600000", "OTHER": "1"}}
    file = settings(own_home, mine)
    for words in (("--write", "--client", "claude-code"), ("--remove",)):
        assert init_with(*words) == 0
        assert json.loads(file.read_text())["env"] == mine["env"]


@pytest.mark.parametrize("kind", ["deny", "ask"])
@pytest.mark.parametrize(
    ("rule", "added"),
    [
        ("mcp__agent-intercom", {}),
        ("mcp__agent-intercom__*", {}),
        ("mcp__agent-intercom__check_diff", {"allow": ["mcp__agent-intercom"]}),
    ],
)
def test_a_rule_of_the_persons_is_kept_and_named(
    own_home: Path, kind: str, rule: str, added: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings(own_home, {"permissions": {kind: [rule, "mcp__agent-intercom-too"]}})
    assert init_with("--write", "--client", "claude-code") == 0
    assert json.loads(file.read_text())["permissions"] == {kind: [rule, "mcp__agent-intercom-too"], **added}
    assert f"kept     your rule {rule}: Claude Code follows it" in capsys.readouterr().out
    (found,) = [each for each in look(own_home) if each.state is State.WARN]
    assert rule in found.text
    assert str(file) in found.advice


def test_doctor_names_a_refused_server_and_init_accepts_it(own_home: Path) -> None:
    """Enter at Claude Code's question about the new server refuses it for good, and all looked well."""
    assert init_with("--write", "--client", "claude-code") == 0
    file = settings(own_home, {"disabledMcpjsonServers": ["agent-intercom"]})
    (found,) = [each for each in look(own_home) if each.state is State.FAULT]
    assert found.text == f"it does not use the server: disabledMcpjsonServers has agent-intercom ({file})"
    assert "agent-intercom init --write --client claude-code" in found.advice
    assert init_with("--write", "--client", "claude-code") == 0
    assert json.loads(file.read_text()) == PERMITTED
    assert [each for each in look(own_home) if each.state is State.FAULT] == []


@pytest.mark.parametrize(
    ("file", "document", "key", "remedy"),
    [
        ("project/.claude/settings.json", {"disabledMcpjsonServers": ["agent-intercom"]}, "disabledMcpjsonServers", ""),
        (".claude/settings.json", {"disabledMcpjsonServers": "agent-intercom"}, "disabledMcpjsonServers", ""),
        (
            ".claude.json",
            {"projects": {"{project}": {"disabledMcpServers": ["x", "agent-intercom"]}}},
            "disabledMcpServers",
            "/mcp",
        ),
    ],
)
def test_doctor_finds_a_refusal_wherever_claude_code_records_it(
    own_home: Path, capsys: pytest.CaptureFixture[str], file: str, document: dict[str, Any], key: str, remedy: str
) -> None:
    path = own_home / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document).replace("{project}", str(own_home / "project")))
    assert init_with("--write", "--client", "claude-code") == 0
    assert f"refused  {key} of {path} has agent-intercom: " in capsys.readouterr().out
    (found,) = [each for each in look(own_home) if each.state is State.FAULT]
    assert found.text == f"it does not use the server: {key} has agent-intercom ({path})"
    assert (remedy or f"out of {key} in {path}") in found.advice
    path.write_text("{")
    found = [each for each in look(own_home) if each.state is State.WARN]
    assert [f"{path} is not plain JSON" in each.text for each in found] == [True]
    path.write_text(json.dumps({"projects": {"/another": {"disabledMcpServers": ["agent-intercom"]}}}))
    assert {each.state for each in look(own_home)} == {State.OK}
    assert any(str(path) in each.text for each in look(own_home))


def test_settings_of_another_form_are_left_alone(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = settings(own_home, {"permissions": {"allow": "all"}})
    assert init_with("--write", "--client", "claude-code") == 1
    assert json.loads(file.read_text()) == {"permissions": {"allow": "all"}}
    assert not (own_home / "project/.mcp.json").exists()
    assert "something other than a list at allow" in capsys.readouterr().err


def test_a_client_given_to_init_is_not_asked_for_again(own_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["init", "--client", "codex", "--workspace", str(own_home / "project")]) == 0
    assert capsys.readouterr().out.endswith("nothing was changed: add --write\n")
    assert CLIENTS["claude-code"].permissions is not None
