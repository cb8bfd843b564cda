"""Whatever stands where a workspace's policy should: a valid policy, or nothing is granted and the reason is told."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.policy import DENY_ALL, POLICY_FILE, FilePatterns, WorkspacePolicy
from intercom.model.request import RiskLevel
from intercom.workspace import policy, policy_file
from tests.fuzz.harm import is_fair_result, shows_no_insides
from tests.fuzz.rig import CONFIG, Rig, rig, sound
from tests.fuzz.test_tools import ANSWERS
from tests.fuzz.values import examples, garbage, texts
from tests.support.machine_speed import is_below

patterns = (
    st.sampled_from(["**", "**/*", "*", "src/**", "[", "[!]", "a{b,c}", "!(a)", "../x", "/etc/**", "~", "\\", ""])
    | texts
)
lists = st.lists(patterns, max_size=4) | garbage
keys = {
    "enabled": st.booleans() | garbage,
    "commands": lists,
    "tools": lists,
    "file_patterns": st.fixed_dictionaries({}, optional={"write": lists, "read": lists, "other": lists}) | garbage,
    "filePatterns": st.fixed_dictionaries({}, optional={"write": lists, "read": lists}) | garbage,
    "risk_level_threshold": st.sampled_from(["low", "high", "critical", "none", "LOW"]) | garbage,
    "log_auto_approved": st.booleans() | garbage,
    "summary_interval_seconds": st.integers(-1, 10**6) | garbage,
    "$schema": texts | garbage,
    "autoApprove": garbage,
}
near = st.fixed_dictionaries({}, optional=keys)
nested = st.fixed_dictionaries({}, optional={"autoApprove": near | garbage, "notifications": near | garbage})
as_json = (near | nested | garbage).map(lambda said: json.dumps(said).encode())
contents = (
    st.binary(max_size=200)
    | as_json
    | as_json.map(lambda text: text[: len(text) // 2])
    | as_json.map(lambda text: b"\xef\xbb\xbf" + text)
    | st.sampled_from(
        [b"", b"[" * 100_000, b'{"enabled":' * 5000, b"9" * 9000, b"x" * 300_000, b'{"enabled":true,"enabled":true}']
    )
)


@pytest.fixture(scope="module")
def on() -> Iterator[Rig]:
    with rig(CONFIG) as made:
        yield made


def test_any_file_is_a_policy_or_grants_nothing_and_says_why(tmp_path: Path) -> None:
    file = tmp_path / POLICY_FILE
    file.parent.mkdir()

    @examples(150)
    @given(contents)
    def check(content: bytes) -> None:
        file.write_bytes(content)
        loaded = policy_file.load(tmp_path)
        assert loaded.source == POLICY_FILE
        if loaded.fault is None:
            assert policy_file.parse(policy_file.render(loaded.policy)) == (loaded.policy, None)
        else:
            assert loaded.policy == DENY_ALL
            assert 0 < len(loaded.fault) < 2000
            shows_no_insides(loaded.fault)

    check()


def test_the_server_outlives_any_policy_file(on: Rig) -> None:
    workspace = on.home.workspace()
    agent, ctl = on.agent(workspace=workspace), on.ctl()
    file = workspace / POLICY_FILE
    file.parent.mkdir()

    @examples(25)
    @given(contents)
    def check(content: bytes) -> None:
        file.write_bytes(content)
        answer = agent.call("auto_check", {"tool_name": "transmit", "context": {"file_path": "src/a"}})
        is_fair_result(answer, ANSWERS["auto_check"])
        assert answer["result"]["structuredContent"]["auto_approved"] is False, content
        for waiting in ctl.do("pending"):
            shows_no_insides(waiting)

    check()
    sound(on)


def fifo(file: Path) -> None:
    os.mkfifo(file)


def directory(file: Path) -> None:
    file.mkdir()


def circle(file: Path) -> None:
    file.symlink_to(file)


def device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def nowhere(file: Path) -> None:
    file.symlink_to("/nonexistent/settings.json")


def listening(file: Path) -> None:
    socket.socket(socket.AF_UNIX).bind(str(file))


def outside(file: Path) -> None:
    secret = file.parents[2] / "granting.json"
    secret.write_text('{"enabled": true, "tools": ["transmit"]}')
    file.symlink_to(secret)


def moved(file: Path) -> None:
    file.parent.rmdir()
    file.parent.symlink_to("/")


PLACED: list[Callable[[Path], None]] = [fifo, directory, circle, device, nowhere, listening, outside, moved]


@pytest.mark.parametrize("place", PLACED, ids=lambda place: place.__name__)
def test_what_is_no_file_grants_nothing_and_holds_nobody_up(on: Rig, place: Callable[[Path], None]) -> None:
    workspace = on.home.workspace()
    file = workspace / POLICY_FILE
    file.parent.mkdir()
    place(file)
    agent = on.agent(workspace=workspace)
    began = time.monotonic()
    assert agent.does("auto_check", tool_name="transmit") == {"auto_approved": False, "matched_rule": None}
    assert is_below(5, time.monotonic() - began, time.monotonic)
    on.done_with(agent)


def test_patterns_that_are_slow_to_match_hold_nobody_else_up(on: Rig) -> None:
    workspace = on.home.workspace()
    file = workspace / POLICY_FILE
    file.parent.mkdir()
    slow = [f"**/*a*/**/*a*/**/*{number}" for number in range(16)]
    file.write_text(json.dumps({"enabled": True, "file_patterns": {"write": slow}}))
    agent = on.agent(workspace=workspace)
    agent.does("ping")
    deep: dict[str, Any] = {"file_path": "/".join(["a" * 60] * 63)}
    id = agent.begin("tools/call", {"name": "auto_check", "arguments": {"tool_name": "write", "context": deep}})
    longest = 0.0
    for _ in range(10):
        began = time.monotonic()
        on.first.does("ping")
        longest = max(longest, time.monotonic() - began)
    assert is_below(5, longest, time.monotonic), longest
    is_fair_result(agent.answer(id, 60), ANSWERS["auto_check"])
    on.done_with(agent)
    shutil.rmtree(workspace)


@pytest.mark.parametrize(
    "path",
    [
        ".g\u200cit/config",
        ".GIT/hooks/x",
        ".git./config",
        ".git /config",
        ".v\u017fcode/tasks.json",
        "a/.\u2060intercom/settings.json",
    ],
)
def test_no_spelling_of_a_protected_name_passes_by_itself(path: str) -> None:
    grants_all = WorkspacePolicy(enabled=True, file_patterns=FilePatterns(("**", "**/.*", ".*/**", "**/.*/**"), ()))
    assert not policy.evaluate_files(grants_all, [path], RiskLevel.LOW).auto_approved
    assert policy.evaluate_files(grants_all, ["src/.hidden"], RiskLevel.LOW).auto_approved
