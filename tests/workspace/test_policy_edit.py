"""Rules made from what an agent asks, and added to a policy file that somebody else formatted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.errors import InvalidArguments, InvalidState
from intercom.model.policy import FilePatterns, PolicyRule, RuleKind, WorkspacePolicy, with_rules
from intercom.model.request import RiskLevel
from intercom.workspace import command_rules
from intercom.workspace.files import digest
from intercom.workspace.policy import evaluate_files
from intercom.workspace.policy_edit import edited, write
from intercom.workspace.policy_file import parse
from intercom.workspace.policy_rules import directory_patterns, literal_command, literal_path

COMMAND = PolicyRule(RuleKind.COMMAND, "make test")
WRITE = PolicyRule(RuleKind.WRITE, "src/a.py")
LOW = RiskLevel.LOW

name = st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=12).filter(
    lambda each: each not in (".", "..")
)
path = st.lists(name, min_size=1, max_size=4).map("/".join)
wild = st.text("ab*?[]!{}()|\\~.-+@, ", min_size=1, max_size=10).filter(lambda each: each.strip("."))


def matches(rule: str, path: str) -> bool:
    policy = WorkspacePolicy(enabled=True, file_patterns=FilePatterns((rule,)))
    return evaluate_files(policy, (path,), LOW).matched_rule is not None


@given(st.one_of(path, wild), st.one_of(path, wild))
def test_a_literal_pattern_matches_its_path_and_no_other(one: str, other: str) -> None:
    policy = WorkspacePolicy(enabled=True, file_patterns=FilePatterns(("**",)))
    rule = literal_path(one)
    if evaluate_files(policy, (one,), LOW).auto_approved:
        assert matches(rule, one)
    assert one == other or not matches(rule, other)


@pytest.mark.parametrize(
    ("paths", "patterns"),
    [
        (("a.py",), ("*",)),
        (("src/a.py", "src/b.py", "c"), ("src/*", "*")),
        ((".env",), (".env",)),
        (("a/[x]/b",), (r"a/\[x\]/*",)),
        (("**/x",), (r"\*\*/*",)),
        (("src/.hidden*",), (r"src/.hidden\*",)),
    ],
)
def test_the_files_beside_these(paths: tuple[str, ...], patterns: tuple[str, ...]) -> None:
    assert directory_patterns(paths) == patterns
    assert all(any(matches(each, path) for each in patterns) for path in paths)


@given(st.text("ab*?[]'\"\\ -=/.~#!@%:,+", max_size=20))
def test_a_literal_command_matches_what_has_the_same_words(command: str) -> None:
    try:
        rule = literal_command(command)
    except InvalidArguments:
        return
    read = command_rules.read(command)
    assert read is not None
    assert command_rules.matches(rule, read)
    for other in (f"{command} more", f"x {command}", command.replace("a", "b")):
        given = command_rules.read(other)
        assert given is None or given.words == read.words or not command_rules.matches(rule, given)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("{}", '{"commands": ["make test"], "enabled": true}'),
        ('{"enabled": true}', '{"enabled": true, "commands": ["make test"]}'),
        (
            '{\n  "enabled": true,\n  "commands": [\n    "ls",\n    "cat *"\n  ]\n}\n',
            '{\n  "enabled": true,\n  "commands": [\n    "ls",\n    "cat *",\n    "make test"\n  ]\n}\n',
        ),
        (
            '{\n\t"commands": ["ls", "cat"],\n\t"enabled": true\n}',
            '{\n\t"commands": ["ls", "cat", "make test"],\n\t"enabled": true\n}',
        ),
        ('{"enabled":true,"commands":[ ]}', '{"enabled":true,"commands":["make test"]}'),
        (
            '\ufeff{"enabled": true, "commands": ["]}, \\"x"]}\r\n',
            '\ufeff{"enabled": true, "commands": ["]}, \\"x", "make test"]}\r\n',
        ),
        (
            '{"autoApprove": {"enabled": true}, "notifications": {}}',
            '{"autoApprove": {"enabled": true, "commands": ["make test"]}, "notifications": {}}',
        ),
        (
            '{"notifications": {"logAutoApproved": true}}',
            '{"notifications": {"logAutoApproved": true}, "autoApprove": {"commands": ["make test"], "enabled": true}}',
        ),
        (None, '{\n  "enabled": true,\n  "commands": [\n    "make test"\n  ],\n  "risk_level_threshold": "low"\n}\n'),
    ],
)
def test_only_what_is_added_changes(text: str | None, after: str) -> None:
    assert edited(text, [COMMAND], LOW) == after


def test_nested_lists_and_the_threshold() -> None:
    text = '{\n  "enabled": true,\n  "file_patterns": {\n    "read": ["**"]\n  },\n  "risk_level_threshold": "low"\n}'
    after = edited(text, [WRITE, COMMAND], RiskLevel.HIGH)
    assert after == (
        '{\n  "enabled": true,\n  "file_patterns": {\n    "read": ["**"],\n    "write": ["src/a.py"]\n  },\n'
        '  "risk_level_threshold": "high",\n  "commands": ["make test"]\n}'
    )
    old = '{"autoApprove": {"filePatterns": {"read": []}}}'
    assert parse(edited(old, [WRITE], RiskLevel.HIGH))[0].risk_level_threshold is RiskLevel.HIGH


rule = st.builds(
    PolicyRule, st.sampled_from(RuleKind), st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=9)
)
policy = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "commands": st.lists(st.text(min_size=1, max_size=5), max_size=3),
        "tools": st.lists(st.text(min_size=1, max_size=5), max_size=3),
        "file_patterns": st.fixed_dictionaries(
            {},
            optional={"write": st.lists(st.just("a/*"), max_size=2), "read": st.lists(st.just("b"), max_size=2)},
        ),
        "risk_level_threshold": st.sampled_from(["low", "high"]),
        "summary_interval_seconds": st.integers(0, 9),
    },
)
layout = st.sampled_from([None, 1, 2, "\t"])


@given(policy, layout, st.lists(rule, min_size=1, max_size=3), st.sampled_from([RiskLevel.LOW, RiskLevel.HIGH]))
def test_the_result_states_the_policy_with_the_rules(
    stated: dict[str, object], indent: int | str | None, rules: list[PolicyRule], threshold: RiskLevel
) -> None:
    text = json.dumps(stated, indent=indent)
    before, fault = parse(text)
    assert fault is None
    try:
        after = edited(text, rules, threshold)
    except InvalidState:
        # A rule that no policy may have, such as a pattern that leads outside.
        assert any(each.kind in (RuleKind.WRITE, RuleKind.READ) for each in rules)
        return
    assert parse(after) == (with_rules(before, rules, threshold), None)


@pytest.mark.parametrize("text", ["", "nonsense", '{"enabled": true, "enabled": false}', '{"unknown": 1}'])
def test_nothing_is_added_to_a_file_with_a_fault(text: str) -> None:
    with pytest.raises(InvalidState, match="has a fault"):
        edited(text, [COMMAND], LOW)


@pytest.mark.parametrize("pattern", ["/etc/*", "../x", "a/../../b", "**/**/**/x"])
def test_a_pattern_that_no_policy_may_have_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidState, match="edit it yourself"):
        edited("{}", [PolicyRule(RuleKind.WRITE, pattern)], LOW)


def test_the_file_is_replaced_whole_and_keeps_its_mode(root: Path) -> None:
    file = root / ".intercom" / "settings.json"
    write(root, None, None, "{}\n")
    assert file.read_text() == "{}\n"
    os.chmod(file, 0o640)
    write(root, ".intercom/settings.json", digest(b"{}\n"), '{"enabled": true}')
    assert (file.read_text(), file.stat().st_mode & 0o777) == ('{"enabled": true}', 0o640)
    assert os.listdir(root) == [".intercom"]
    assert os.listdir(file.parent) == ["settings.json"]


def test_a_file_that_changed_meanwhile_is_left(root: Path) -> None:
    write(root, None, None, "{}")
    for base in (None, digest(b"other")):
        with pytest.raises(InvalidState, match="was not written"):
            write(root, None, base, '{"enabled": true}')
    assert (root / ".intercom/settings.json").read_text() == "{}"
    assert os.listdir(root / ".intercom") == ["settings.json"]


def test_what_an_attempt_that_was_killed_left_is_no_obstacle(root: Path) -> None:
    (root / ".intercom").mkdir()
    sha = digest(b"{}")
    (root / ".intercom" / f".intercom-policy-{sha[:32]}-0.tmp").write_text("half")
    write(root, None, None, "{}")
    assert os.listdir(root / ".intercom") == ["settings.json"]


@pytest.mark.parametrize("link", ["dir", "file"])
def test_no_link_leads_the_writing_elsewhere(root: Path, tmp_path: Path, link: str) -> None:
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "settings.json").write_text("{}")
    if link == "dir":
        (root / ".intercom").symlink_to("elsewhere")
    else:
        (root / ".intercom").mkdir()
        (root / ".intercom" / "settings.json").symlink_to("../elsewhere/settings.json")
    with pytest.raises(InvalidState, match="symbolic link"):
        write(root, None, digest(b"{}"), '{"enabled": true}')
    assert (elsewhere / "settings.json").read_text() == "{}"
