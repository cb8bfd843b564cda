"""Whatever a hook is given, it neither falls nor allows: only what Intercom's own tools are passes unasked."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.agents.hook import clients, run, tools
from intercom.agents.hook.errand import Answer, Errand
from intercom.agents.hook.question import Said
from intercom.agents.shim.options import Options
from intercom.agents.shim.replies import Failure
from intercom.cli.main import HOOKED

_NAMES = st.sampled_from(
    [
        "hook_event_name",
        "tool_name",
        "tool_input",
        "toolName",
        "toolArgs",
        "command",
        "cwd",
        "session_id",
        "sessionId",
        "conversation_id",
        "file_path",
        "content",
        "old_string",
        "new_string",
        "edits",
        "path",
        "cursor_version",
        "timestamp",
        "permission_mode",
        "workspace_roots",
    ]
)
_WORDS = st.sampled_from(
    [
        "PreToolUse",
        "PermissionRequest",
        "Stop",
        "preToolUse",
        "permissionRequest",
        "beforeShellExecution",
        "beforeMCPExecution",
        "beforeReadFile",
        "Bash",
        "Write",
        "Edit",
        "apply_patch",
        "Shell",
        "mcp__x__y",
        "MCP:x",
        "Read",
    ]
) | st.text(max_size=8)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(max_size=4), inner, max_size=5),
    max_leaves=20,
)
_EVENTS = st.dictionaries(_NAMES, _JSON, max_size=10)


class NoWay:
    """The way to a server that is not there."""

    def __init__(self, *_given: object, **_options: object) -> None: ...

    def __enter__(self) -> NoWay:
        return self

    def __exit__(self, *_failed: object) -> None: ...

    def run(self, _until: float) -> Answer:
        return Answer(failure=Failure("unavailable", "no server"))

    def told(self, _receipt: object) -> None: ...


@contextmanager
def given_to(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Said]]:
    said: list[Said] = []
    with monkeypatch.context() as patch:
        patch.setattr(run, "_read_input", lambda _until: raw)
        patch.setattr(run, "_write", lambda _output, each: said.append(each) is None)
        patch.setattr(run, "Way", NoWay)
        yield said


def answer(client: str, raw: bytes, event: str | None = None) -> Said:
    monkeypatch = pytest.MonkeyPatch()
    with given_to(raw, monkeypatch) as said:
        order = run.Order(client, event, None, Options(config="/nowhere/config.toml"))
        returned = run._Hook(order, clients.CLIENTS[client], time.monotonic() + 60, [], 0, 1).run()
    assert said == [returned]
    return returned


def allows(said: Said) -> bool:
    """Whether a client would take this for leave, rather than for nothing said."""
    text = json.loads(said.stdout) if said.stdout else {}
    inner = text.get("hookSpecificOutput", {})
    words = [inner.get("permissionDecision"), inner.get("decision", {}).get("behavior"), text.get("behavior")]
    return said.code == 0 and "allow" in [*words, text.get("permissionDecision")]


@given(st.sampled_from(HOOKED), st.binary(max_size=200), st.none() | _WORDS)
def test_bytes_that_are_no_event_are_denied(client: str, raw: bytes, event: str | None) -> None:
    said = answer(client, raw, event)
    assert not allows(said)


@given(st.sampled_from(HOOKED), _EVENTS, st.none() | _WORDS)
def test_no_event_without_a_server_is_allowed(client: str, data: dict[str, Any], event: str | None) -> None:
    raw = json.dumps(data).encode()
    said = answer(client, raw, event)
    assert not allows(said)
    json.loads(said.stdout)
    # What would run something, or change a file, is not even passed on.
    parsed = clients.parse(raw)
    asked = clients.writer(client, parsed)
    try:
        found = asked.read(parsed, event)
    except Exception:
        assert said.code == 2 or said == asked.pass_on(event or "")
        return
    if getattr(found, "operation", None) is not None and found.operation.kind in run.ASK_FOR:
        assert said.stdout == asked.deny(found.event, "no server; nobody could be asked, so this is denied").stdout


def test_own_tools_need_no_server() -> None:
    for name in tools.OUR_TOOLS:
        data = {"hook_event_name": "PreToolUse", "tool_name": f"mcp__agent-intercom__{name}", "tool_input": {}}
        assert allows(answer("claude-code", json.dumps(data).encode()))


def test_an_agent_may_stop_without_a_server() -> None:
    for client, event in (("claude-code", "Stop"), ("copilot-cli", "agentStop"), ("cursor", "stop")):
        assert answer(client, json.dumps({"hook_event_name": event}).encode()) == Said("{}")
        assert answer(client, b"nonsense", event).stdout == "{}"


def test_what_is_not_asked_for_is_left_to_the_client(tmp_path: Any) -> None:
    config = tmp_path / "config.toml"
    read = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {"file_path": "a"}}).encode()
    for text, wanted in (
        ("", ("write", "command", "fetch", "mcp", "other")),
        ("[hooks]\nask_for = ['read']\n", ("read",)),
        ("[hooks]\nask_for = ['reed']\n", ("write", "command", "fetch", "mcp", "read", "other")),
        ("[hooks]\nask_for = 5\n", ("write", "command", "fetch", "mcp", "read", "other")),
        ("hooks = 5\n", ("write", "command", "fetch", "mcp", "read", "other")),
        ("[hooks\n", ("write", "command", "fetch", "mcp", "read", "other")),
    ):
        config.write_text(text)
        order = run.Order("claude-code", None, None, Options(config=str(config)))
        hook = run._Hook(order, clients.CLIENTS["claude-code"], time.monotonic() + 60, [], 0, 1)
        assert hook._ask_for() == wanted
    assert answer("claude-code", read) == Said("{}")


def test_a_hook_that_runs_out_of_time_says_what_it_waited_for() -> None:
    errand = Errand("intercom/permission", {})
    assert "nobody could be asked in time" in run._undecided(errand.answer)
    errand.server_line(b'{"method": "intercom/paused", "params": {"session_id": "s"}}\n')
    assert "has paused this agent" in run._undecided(errand.answer)
    errand.server_line(b'{"method": "intercom/asked", "params": {"session_id": "s", "request_id": "r1"}}\n')
    assert "request r1 still waits" in run._undecided(errand.answer)


@pytest.mark.parametrize("event", ["Stop", "PreToolUse"])
@pytest.mark.parametrize("heard", [True, False])
def test_what_nobody_read_was_told_to_nobody(event: str, heard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    receipts: list[object] = []

    class OneWay(NoWay):
        def run(self, _until: float) -> Answer:
            return Answer({"words": "wait", "behavior": "deny", "receipt": "r"})

        def told(self, receipt: object) -> None:
            receipts.append(receipt)

    raw = json.dumps({"hook_event_name": event, "tool_name": "Bash", "tool_input": {"command": "ls"}}).encode()
    monkeypatch.setattr(run, "_read_input", lambda _until: raw)
    monkeypatch.setattr(run, "Way", OneWay)
    reading, writing = os.pipe()
    if not heard:
        os.close(reading)
    order = run.Order("claude-code", event, None, Options(config="/nowhere/config.toml"))
    said = run._Hook(order, clients.CLIENTS["claude-code"], time.monotonic() + 60, [], 0, writing).run()
    assert said.code == (0 if heard or event == "Stop" else 2)
    assert receipts == (["r"] if heard else [])
    os.close(writing)
    if heard:
        os.close(reading)


def hook(*arguments: str, given: bytes = b"", **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "intercom.cli.main", "hook", *arguments]
    return subprocess.run(command, input=given, capture_output=True, timeout=30, check=False, **options)


def test_it_starts_on_the_standard_library_alone() -> None:
    script = (
        "import sys, io; from intercom.cli.main import main\n"
        "code = main(['hook', 'claude-code', '--wait', '5'])\n"
        "heavy = {'attrs', 'attr', 'trio', 'pykka', 'pydantic', 'mcp', 'cattrs', 'psutil'} & set(sys.modules)\n"
        "assert not heavy, heavy\nsys.exit(code)"
    )
    data = b'{"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {}}'
    done = subprocess.run([sys.executable, "-c", script], input=data, capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, b"{}\n"), done.stderr


def test_garbage_is_denied_in_words_without_a_traceback() -> None:
    done = hook("codex", given=b"\x00garbage")
    assert done.returncode == 2
    assert b"could not be read: it is not JSON" in done.stderr
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert b"Traceback" not in done.stderr


def test_a_client_that_nobody_knows_is_denied_by_the_command_line_itself() -> None:
    assert hook("emacs").returncode == 2
    assert hook("codex", "--wait", "never").returncode == 2


def test_input_that_does_not_end_is_denied_in_time() -> None:
    command = [sys.executable, "-m", "intercom.cli.main", "hook", "claude-code", "--wait", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(20) == 2
        assert process.stderr is not None
        assert b"its input does not end" in process.stderr.read()


def test_input_without_bounds_is_denied() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "intercom.cli.main", "hook", "claude-code"]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(reading)
        with io.FileIO(writing, "w") as stream, pytest.raises(BrokenPipeError):
            _flood(stream)
        assert process.wait(20) == 2
        assert process.stderr is not None
        assert b"larger than 16 MiB" in process.stderr.read()


def _flood(stream: io.FileIO) -> None:
    for _ in range(1000):
        stream.write(b" " * 2**20)
