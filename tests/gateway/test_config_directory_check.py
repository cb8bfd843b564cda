"""Each thing that is wrong with the gateway's files is found without a server, and nothing else is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from intercom.gateway.assignments import Assignment, Assignments
from intercom.gateway.config_directory_check import examine_directory, lint_findings
from intercom.gateway.roles import Roles
from intercom.gateway.roles import parse as parse_roles
from intercom.model.gateway_view import LintFinding, LintLevel
from intercom.model.json_types import JsonObject

GITHUB: JsonObject = {
    "name": "github",
    "transport": "stdio",
    "command": sys.executable,
    "capabilities": ["github.*"],
    "schemaVersion": "1.0.0",
}
ROLES: JsonObject = {"defaultRole": "dev", "roles": [{"role": "dev", "capabilities": ["github.*"]}]}


def written(directory: Path, roles: JsonObject | None = ROLES, **files: JsonObject | str) -> Path:
    made = directory / "gateway"
    made.mkdir(mode=0o700)
    if roles is not None:
        files["roles"] = roles
    for name, content in files.items():
        file = made / f"{name}.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        file.chmod(0o600)
    return made


def found(directory: Path, **environ: str) -> tuple[LintFinding, ...]:
    return examine_directory(directory, {"PATH": "/usr/bin:/bin", "HOME": "/", **environ})[1]


def test_files_without_a_fault_and_a_directory_that_does_not_exist_have_no_finding(tmp_path: Path) -> None:
    assert found(written(tmp_path, github=GITHUB)) == ()
    assert found(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        ({"command": "nosuchprogram"}, LintLevel.FAULT, "nosuchprogram is in no directory of PATH"),
        ({"command": "/nowhere/server"}, LintLevel.FAULT, "the program server does not exist there"),
        ({"command": "/etc/passwd"}, LintLevel.FAULT, "is not executable"),
        (
            {"env": {"TOKEN": "${GITHUB_TOKEN}"}},
            LintLevel.WARNING,
            "GITHUB_TOKEN (for env.TOKEN) is not set for a server that an agent starts",
        ),
        (
            {"args": ["--key=${KEY}"]},
            LintLevel.WARNING,
            "KEY (for args[0]) is not set for a server that an agent starts",
        ),
    ],
)
def test_what_a_downstream_needs_and_is_not_there_is_found(
    tmp_path: Path, change: dict[str, Any], level: LintLevel, text: str
) -> None:
    [finding] = found(written(tmp_path, github={**GITHUB, **change}))
    assert finding.level is level
    assert text in finding.text
    assert not finding.text.endswith(".")


@pytest.mark.parametrize(
    "change",
    [
        {"command": "${PROGRAM:-nosuch}"},
        {"env": {"TOKEN": "${keychain:github}", "MODE": "${MODE:-fast}", "HERE": "${HERE}"}},
        {"command": "nosuchprogram", "enabled": False},
        {"transport": "http", "baseURL": "https://mcp.example.org", "command": None},
    ],
)
def test_what_cannot_be_known_or_does_not_matter_is_no_finding(tmp_path: Path, change: dict[str, Any]) -> None:
    config = {name: value for name, value in {**GITHUB, **change}.items() if value is not None}
    assert found(written(tmp_path, github=config), HERE="set") == ()


def test_a_file_with_a_fault_comes_first_and_others_are_checked_all_the_same(tmp_path: Path) -> None:
    listed = found(written(tmp_path, roles=None, broken="{", github=GITHUB))
    assert [each.level for each in listed] == [LintLevel.FAULT, LintLevel.WARNING]
    assert "broken.json" in listed[0].text
    assert "no defaultRole is set, so agents may call nothing" in listed[1].text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"roles": [*ROLES["roles"], {"role": "ops", "capabilities": []}]}, 'role "ops": no agent has it'),  # type: ignore[misc]
        ({"defaultRole": None}, "no defaultRole is set"),
        ({"trustClientNames": True}, "whose name it says"),
    ],
)
def test_a_likely_mistake_about_who_has_a_role_is_a_warning(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    roles = {name: value for name, value in {**ROLES, **change}.items() if value is not None}
    listed = found(written(tmp_path, roles=roles, github=GITHUB))
    assert {each.level for each in listed} == {LintLevel.WARNING}
    assert any(text in each.text for each in listed), listed


@pytest.mark.parametrize(("name", "mode"), [("github.json", 0o620), ("roles.json", 0o602), (".", 0o770)])
def test_what_others_can_write_is_a_fault(tmp_path: Path, name: str, mode: int) -> None:
    directory = written(tmp_path, github=GITHUB)
    (directory / name).chmod(mode)
    # Roles that are refused leave everybody without a role, which is said too.
    [finding] = [each for each in found(directory) if each.level is LintLevel.FAULT]
    assert f"chmod go-w {directory / name}" in finding.text


def test_a_directory_of_which_nothing_counts_has_no_other_finding(tmp_path: Path) -> None:
    directory = written(tmp_path, github=GITHUB, broken="{")
    directory.chmod(0o777)
    [finding] = found(directory)
    assert finding.text.endswith(f"chmod go-w {directory}")


def test_roles_that_cannot_be_read_have_no_other_finding(tmp_path: Path) -> None:
    [finding] = found(written(tmp_path, roles={"roles": 7}, github=GITHUB))
    assert (finding.level, "roles.json" in finding.text) == (LintLevel.FAULT, True)


def test_that_a_role_has_all_of_several_servers_is_one_finding() -> None:
    rules = ["a.*", "b.*", "c.read", "b.write"]
    roles, _ = parse_roles(
        {"roles": [{"role": "dev", "capabilities": rules}, {"role": "ops", "capabilities": ["a.*"]}]}
    )
    assert roles is not None
    assignments = Assignments([Assignment("ops", session="12345678")], "dev")
    findings = lint_findings(roles, assignments, (), dict.fromkeys("abc"))
    texts = [each.text for each in findings if "every tool" in each.text]
    assert [text.partition(", also")[0] for text in texts] == [
        'role "dev": it allows every tool of a, b',
        'role "ops": allow a.*: it allows every tool of a',
    ]


def test_an_assignment_whose_session_there_is_not_is_a_warning_which_knows_ids_of_agents() -> None:
    roles, _ = parse_roles({"roles": [{"role": "dev", "capabilities": ["a.read"]}]})
    assert roles is not None
    named = [Assignment("dev", session=each) for each in ("f0d44704", "10463c8c", "99999999")]
    agents = {"10463C8C3c434abf": "0a3f2d8b-1111"}
    ids = ("F0D44704-2222", "0a3f2d8b-1111")
    texts = [each.text for each in lint_findings(roles, Assignments(named, "dev"), (), {"a": None}, ids, agents)]
    assert texts == [
        'roles.json: the assignment of role "dev" fits no session "10463c8c": it is the id of an agent, whose session'
        " is 0a3f2d8b",
        'roles.json: the assignment of role "dev" fits no session "99999999": agent-intercom-ctl list has them',
    ]
    assert lint_findings(roles, Assignments(named, "dev"), (), {"a": None}) == ()


def test_no_value_of_a_file_is_in_a_finding(tmp_path: Path) -> None:
    secret = {"args": ["--token", "hunter2hunter2"], "env": {"A": "hunter2hunter2 ${NO}"}, "command": "/x/y=hunter2"}
    assert "hunter2" not in repr(found(written(tmp_path, github={**GITHUB, **secret})))


def test_a_server_that_no_role_names_is_a_warning() -> None:
    roles, _ = parse_roles({"roles": [{"role": "dev", "capabilities": ["a.read"], "deny": ["b.*"]}]})
    everything, _ = parse_roles({"roles": [{"role": "dev", "capabilities": ["*.read"]}]})
    assert roles is not None
    assert everything is not None
    assert _unnamed_in(roles) == ['b: no role names it, so no agent may call its tools: add "b.*" to a role']
    assert _unnamed_in(everything) == []


def _unnamed_in(roles: Roles) -> list[str]:
    found = lint_findings(roles, Assignments(default_role="dev"), (), {"a": None, "b": None})
    return [each.text for each in found if "no role names it" in each.text]
