"""The policy file: both forms, every fault with its line and reason, and never anything granted by a fault."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from intercom.model.policy import DENY_ALL, FilePatterns, WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.workspace import policy_file
from intercom.workspace.files import digest
from tests.workspace.policies import policies

FLAT = """{
  "$schema": "settings.schema.json",
  "enabled": true,
  "commands": ["status"],
  "tools": ["heartbeat", "remote_log"],
  "file_patterns": {"write": ["**/*.md", "docs/**"], "read": ["**/*"]},
  "risk_level_threshold": "high",
  "log_auto_approved": true,
  "summary_interval_seconds": 60
}
"""
NESTED = """{
  "$schema": "https://monocoque.dev/schemas/settings.v1.json",
  "autoApprove": {
    "enabled": true,
    "commands": ["status"],
    "tools": ["heartbeat", "remote_log"],
    "filePatterns": {"write": ["**/*.md", "docs/**"], "read": ["**/*"]},
    "riskLevelThreshold": "high"
  },
  "notifications": {"logAutoApproved": true, "summaryIntervalSeconds": 60}
}
"""
READ = WorkspacePolicy(
    enabled=True,
    commands=("status",),
    tools=("heartbeat", "remote_log"),
    file_patterns=FilePatterns(("**/*.md", "docs/**"), ("**/*",)),
    risk_level_threshold=RiskLevel.HIGH,
    log_auto_approved=True,
    summary_interval_seconds=60,
)


def put(root: Path, text: str | bytes, directory: str = ".intercom") -> Path:
    path = root / directory / "settings.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("text", [FLAT, NESTED])
def test_both_forms_state_the_same_policy(text: str) -> None:
    assert policy_file.parse(text) == (READ, None)


@pytest.mark.parametrize("text", ["{}", '{"autoApprove": {}}', '{"notifications": {}}', " \n{ }\n"])
def test_what_is_left_out_grants_nothing(text: str) -> None:
    assert policy_file.parse(text) == (DENY_ALL, None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "line 1, column 1: the file is empty"),
        (" \n", "line 1, column 1: the file is empty"),
        ('{"enabled": true,\n "tools": [,]}', "line 2, column 12: this is not JSON"),
        ('{"enabled": true', "line 1, column 17: this is not JSON"),
        ("[]", "line 1, column 1: this should be of type object"),
        ("null", "line 1, column 1: this should be of type object"),
        ('"text"', "line 1, column 1: this should be of type object"),
        ('{\n  "enabled": "yes"\n}', 'line 2, column 14: "enabled" should be of type boolean'),
        ('{\n "enabled": true,\n "tool": ["ping"]\n}', 'line 3, column 2: no setting is called "tool"; known: enabled'),
        ('{"enabled": true,\n\n"enabled": false}', 'line 3, column 1: the key "enabled" stands twice'),
        ('{"file_patterns": {"write": ["a"],\n"write": ["b"]}}', 'line 2, column 1: the key "write" stands twice'),
        ('{"tools": [\n"a",\n  3]}', "line 3, column 3: this should be of type string"),
        ('{"file_patterns": {"write": ["ok", "../x"]}}', "line 1, column 36: the pattern leads outside"),
        ('{"file_patterns": {"read": ["/etc/**"]}}', "the pattern leads outside"),
        ('{"file_patterns": {"read": ["a/.."]}}', "the pattern leads outside"),
        ('{"file_patterns": {"read": ["**/b/**/c/**"]}}', "more than two **"),
        ('{"risk_level_threshold": "medium"}', '"risk_level_threshold" should be one of low, high, critical'),
        ('{"summary_interval_seconds": -1}', "should be a number from 0 to 86400"),
        ('{"summary_interval_seconds": 1e9}', "should be a number from 0 to 86400"),
        ('{"summary_interval_seconds": NaN}', "NaN is no JSON number"),
        ('{"summary_interval_seconds": ' + "9" * 5000 + "}", "a number cannot be read"),
        ('{"tools": [""]}', "the text is 0 characters long"),
        ('{"tools": [' + ",".join(['"x"'] * 501) + "]}", '"tools" holds more than 500 entries'),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"autoApprove": {"enabled": true, "risk_level_threshold": "low"}}',
            'no setting is called "risk_level_threshold"',
        ),
        ('{"autoApprove": {"enabled": true}, "enabled": true}', 'no setting is called "enabled"'),
    ],
)
def test_a_fault_grants_nothing_and_is_told_with_its_place(text: str, fault: str) -> None:
    policy, told = policy_file.parse(text)
    assert policy == DENY_ALL
    assert fault in told
    assert told.startswith("line ")


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("{}", []),
        ('{"enabled": true}', []),
        ("", ["line 1"]),
        ("{,}", ["line 1"]),
        ('{"a": 1,\n"b": 2,\n"enabled": 3,\n"enabled": 4}', ["line 1", "line 2", "line 3", "line 4"]),
        ('{"file_patterns": {"write": ["../x"],\n"red": []}}', ["line 1", "line 2"]),
        ('{"autoApprove": {"enabled": 1,\n"x": 1}}', ["line 1", "line 2"]),
    ],
)
def test_every_fault_is_listed_in_order(text: str, places: list[str]) -> None:
    found = policy_file.faults(text)
    assert [each.partition(",")[0] for each in found] == places
    one = policy_file.parse(text)[1]
    assert one is None if not places else one in found


def test_the_newer_file_is_read_and_the_older_only_in_its_absence(tmp_path: Path) -> None:
    assert policy_file.load(tmp_path) == policy_file.Loaded()
    put(tmp_path, NESTED, ".monocoque")
    older = policy_file.load(tmp_path)
    assert (older.policy, older.source) == (READ, ".monocoque/settings.json")
    put(tmp_path, '{"enabled": false}')
    newer = policy_file.load(tmp_path)
    assert (newer.policy, newer.source, newer.fault) == (DENY_ALL, ".intercom/settings.json", None)
    assert newer.sha256 == digest(b'{"enabled": false}')
    put(tmp_path, "")
    broken = policy_file.load(tmp_path)
    assert broken.policy == DENY_ALL
    assert broken.fault == ".intercom/settings.json, line 1, column 1: the file is empty; write {} to grant nothing"


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    put(tmp_path, b"\xef\xbb\xbf" + FLAT.encode())
    loaded = policy_file.load(tmp_path)
    assert (loaded.policy, loaded.fault) == (READ, None)
    assert policy_file.parse(loaded.text or "") == (READ, None)


def test_bytes_that_are_no_text_are_a_fault(tmp_path: Path) -> None:
    put(tmp_path, b'{"tools":\n["\xff"]}')
    assert policy_file.load(tmp_path).fault == ".intercom/settings.json, line 2: the file is not UTF-8"


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / ".intercom").mkdir(parents=True)
    (tmp_path / "outside.json").write_text(FLAT)
    (root / "inside.json").write_text(FLAT)
    link = root / ".intercom" / "settings.json"
    link.symlink_to(tmp_path / "outside.json")
    loaded = policy_file.load(root)
    assert loaded.policy == DENY_ALL
    assert "outside the workspace" in (loaded.fault or "")
    link.unlink()
    link.symlink_to(root / "inside.json")
    loaded = policy_file.load(root)
    assert loaded.policy == DENY_ALL
    assert "leads out of its directory" in (loaded.fault or "")
    link.unlink()
    (root / ".intercom").rmdir()
    (root / ".intercom").symlink_to(tmp_path)
    assert "outside the workspace" in (policy_file.load(root).fault or "")


def test_what_is_no_file_or_too_large_is_a_fault_and_not_an_absence(tmp_path: Path) -> None:
    put(tmp_path, NESTED, ".monocoque")
    path = put(tmp_path, b" " * (policy_file.MAX_POLICY_BYTES + 1))
    assert "larger than" in (policy_file.load(tmp_path).fault or "")
    path.unlink()
    path.mkdir()
    assert "not a regular file" in (policy_file.load(tmp_path).fault or "")
    path.rmdir()
    os.mkfifo(path)
    assert "not a regular file" in (policy_file.load(tmp_path).fault or "")


def test_the_schema_is_a_schema_and_takes_both_forms() -> None:
    Draft202012Validator.check_schema(policy_file.schema())
    validator = Draft202012Validator(policy_file.schema())
    assert validator.is_valid(json.loads(FLAT))
    assert validator.is_valid(json.loads(NESTED))
    assert not validator.is_valid({"enable": True})


@given(policies())
def test_a_policy_written_out_is_read_as_itself(policy: WorkspacePolicy) -> None:
    assert policy_file.parse(policy_file.render(policy)) == (policy, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["enabled", "commands", "tools", "file_patterns", "write", "autoApprove", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(JSON.map(json.dumps) | st.text(max_size=40) | st.text(max_size=20).map('{"tools": ["'.__add__))
def test_any_text_is_a_policy_or_a_fault(text: str) -> None:
    policy, fault = policy_file.parse(text)
    assert fault is None or policy == DENY_ALL
