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
from attrs import frozen
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from intercom.agents import hook_process as process
from intercom.agents.clients import CLIENTS, HOOKED, builtin_tools, hooks_of, sender_of
from intercom.agents.clients.client import Question, Unreadable, parse
from intercom.agents.hook_process import Answer, HookRequest, Output
from intercom.agents.shim.launch import Options
from intercom.agents.shim.relay import Failure

_NAMES = st.sampled_from([
    "hook_event_name", "tool_name", "tool_input", "toolName", "toolArgs", "command", "cwd", "session_id",
    "sessionId", "conversation_id", "file_path", "content", "old_string", "new_string", "edits", "path",
    "cursor_version", "timestamp", "permission_mode", "workspace_roots",
])  # fmt: skip
_WORDS = st.sampled_from([
    "PreToolUse", "PermissionRequest", "Stop", "preToolUse", "permissionRequest", "beforeShellExecution",
    "beforeMCPExecution", "beforeReadFile", "Bash", "Write", "Edit", "apply_patch", "Shell", "mcp__x__y", "MCP:x",
    "Read",
]) | st.text(max_size=8)  # fmt: skip
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(max_size=4), inner, max_size=5),
    max_leaves=20,
)
_EVENTS = st.dictionaries(_NAMES, _JSON, max_size=10)
_NEARLY = st.sampled_from([
    b"", b"null", b"[{}]", b"[" * 20_000, b'"Bash"', b"\xef\xbb\xbf", b'{"tool_name": "Bash"',
    b'{"tool_name": "\xff"}', b"{} {}",
])  # fmt: skip

#: Tools that a person is asked about whatever they are given.
_ASKED_FOR = st.sampled_from([
    "Bash", "Shell", "exec_command", "container.exec", "Write", "create", "Edit", "MultiEdit", "StrReplace",
    "apply_patch", "NotebookEdit", "Delete", "WebFetch", "mcp__other__delete", "mcp__other__ping",
    "mcp__agent-intercom__rm", "made up",
])  # fmt: skip
_NOBODY = Answer(failure=Failure("unavailable", "no server"))
_RESULTS: tuple[dict[str, Any], ...] = (
    {},
    {"behavior": "deny", "message": "no"},
    {"behavior": "deny", "message": None, "receipt": 5},
    {"behavior": "Allow"},
    {"behavior": "ask", "message": "allow"},
    {"behavior": True},
    {"behavior": ["allow"]},
    {"permissionDecision": "allow", "permission": "allow", "decision": "allow"},
    {"result": {"behavior": "allow"}},
)
#: What may come of a question short of a yes, whether or not a server would say so.
_ANSWERS = st.sampled_from(
    [_NOBODY, Answer(), Answer(paused=True), Answer(request_id="r1"), *(Answer(result) for result in _RESULTS)]
)
#: Events of an agent that wants to stop, which nothing keeps it from.
_STOPS = ("Stop", "SubagentStop", "agentStop", "subagentStop", "stop")


@frozen
class Asking:
    """A whole question about a tool: whose hook it comes to, who wrote it and what, its event, and the one that the
    command line names."""

    client: str
    writer: str
    data: dict[str, Any]
    event: str
    named: str | None

    def answered(self, answered: Answer) -> Output:
        return answer(self.client, json.dumps(self.data).encode(), self.named, answered)


@st.composite
def askings(draw: st.DrawFn) -> Asking:
    writer = draw(st.sampled_from(HOOKED))
    tool, given = draw(_ASKED_FOR), draw(st.dictionaries(_NAMES, _JSON, max_size=4))
    data: dict[str, Any] = {"cwd": draw(st.sampled_from(["/", "/nowhere"]))}
    # Copilot and Cursor run the hooks of Claude Code's settings too.
    client = draw(st.sampled_from([writer, "claude-code"])) if writer in ("copilot-cli", "cursor") else writer
    match writer:
        case "copilot-cli":
            # Its own spelling leaves it to the command line to say which event it is.
            event = draw(st.sampled_from(["preToolUse", "permissionRequest", "PreToolUse", "PermissionRequest"]))
            arguments = json.dumps(given) if draw(st.booleans()) else given
            data |= {"sessionId": "c", "timestamp": 1, "toolName": tool, "toolArgs": arguments}
            return Asking(client, writer, data, event, event)
        case "cursor":
            event = draw(st.sampled_from(["preToolUse", "beforeShellExecution", "beforeMCPExecution"]))
            data |= {"conversation_id": "c", "cursor_version": "3", "workspace_roots": ["/nowhere"]}
            if event == "beforeShellExecution":
                data["command"] = draw(_WORDS.filter(bool))
            else:
                data |= {"tool_name": tool, "tool_input": given, "command": "npx other-server"}
        case _:
            event = draw(st.sampled_from(["PreToolUse", "PermissionRequest"]))
            data |= {"session_id": "c", "permission_mode": "default", "tool_name": tool, "tool_input": given}
    return Asking(client, writer, {**data, "hook_event_name": event}, event, draw(st.sampled_from([None, event])))


class NoServer:
    """The connection to a server that is not there."""

    answer = _NOBODY

    def __init__(self, *_given: object, **_options: object) -> None: ...

    def __enter__(self) -> NoServer:
        return self

    def __exit__(self, *_failed: object) -> None: ...

    def run(self, _until: float) -> Answer:
        return self.answer

    def confirm(self, _receipt: object) -> None: ...


@contextmanager
def given_to(raw: bytes, monkeypatch: pytest.MonkeyPatch, answered: Answer) -> Iterator[list[Output]]:
    said: list[Output] = []
    with monkeypatch.context() as patch:
        patch.setattr(process, "_read_input", lambda _until: raw)
        patch.setattr(process, "_write", lambda _output, each: said.append(each) is None)
        patch.setattr(process, "ServerConnection", NoServer)
        patch.setattr(NoServer, "answer", answered)
        yield said


def answer(client: str, raw: bytes, event: str | None = None, answered: Answer = _NOBODY) -> Output:
    monkeypatch = pytest.MonkeyPatch()
    with given_to(raw, monkeypatch, answered) as said:
        order = process.Order(client, event, None, Options(config="/nowhere/config.toml"))
        returned = process.Hook(order, time.monotonic() + 60, [], 0, 1).run()
    assert said == [returned]
    return returned


def is_object(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def words(said: Output) -> set[str]:
    """Every word for or against in an answer, in whichever client's form."""
    text = json.loads(said.stdout)
    inner = text.get("hookSpecificOutput", {})
    found = [text.get(name) for name in ("behavior", "permission", "permissionDecision")]
    found += [inner.get("permissionDecision"), inner.get("decision", {}).get("behavior")]
    return {each for each in found if each is not None}


def allows(said: Output) -> bool:
    """Whether a client would take this for leave, rather than for nothing said."""
    return said.code == 0 and "allow" in words(said)


def heard(writer: str, event: str, said: Output) -> Any:
    """The decision, where this client looks for it after this event."""
    text = json.loads(said.stdout)
    is_permission = event.lower() == "permissionrequest"
    match writer:
        case "cursor":
            return text.get("permission")
        case "copilot-cli":
            return text.get("behavior" if is_permission else "permissionDecision")
    inner = text.get("hookSpecificOutput", {"hookEventName": event})
    assert inner["hookEventName"] == event
    return inner.get("decision", {}).get("behavior") if is_permission else inner.get("permissionDecision")


@given(st.sampled_from(HOOKED), st.binary(max_size=200) | _NEARLY, st.none() | _WORDS)
def test_bytes_that_are_no_event_are_denied(client: str, raw: bytes, event: str | None) -> None:
    assume(event not in _STOPS and not is_object(raw))
    said = answer(client, raw, event)
    # Nothing said would be leave to most clients.
    assert (said.code, words(said)) == (process.REFUSED, {"deny"})


@given(st.sampled_from(HOOKED), _EVENTS, st.none() | _WORDS)
def test_no_event_without_a_server_is_allowed(client: str, data: dict[str, Any], event: str | None) -> None:
    raw = json.dumps(data).encode()
    said = answer(client, raw, event)
    parsed = parse(raw)
    asked = sender_of(parsed, CLIENTS[client])
    hooks = hooks_of(asked.name)
    try:
        found = hooks.read(parsed, event)
    except Unreadable:
        assert (said.code, words(said)) == (process.REFUSED, {"deny"}) or event in _STOPS
        return
    if isinstance(found, Question) and found.operation.kind in process.ASK_FOR:
        # What would run something, or change a file, is not even passed on.
        why = "no server; nobody could be asked, so this is denied"
        assert json.loads(said.stdout) == hooks.decide(found.event, False, why)
        assert words(said) == {"deny"}
    else:
        assert said == Output(json.dumps(hooks.pass_on(found.event)))
        # Cursor alone has to be told that nothing is said against it.
        assert asked.name == "cursor" or not allows(said)


@given(askings(), _ANSWERS)
def test_nothing_short_of_a_yes_lets_a_tool_run(asking: Asking, answered: Answer) -> None:
    said = asking.answered(answered)
    assert words(said) == {"deny"}
    assert heard(asking.writer, asking.event, said) == "deny"
    # Which form a client expects of another's hooks is not known; the code speaks to all.
    assert said.code == (0 if asking.client == asking.writer else process.REFUSED)


@settings(max_examples=40)
@given(askings())
def test_a_yes_is_said_where_the_client_looks_for_it(asking: Asking) -> None:
    said = asking.answered(Answer({"behavior": "allow"}))
    # Codex takes silence for leave here, and a yes for a fault.
    silent = (asking.writer, asking.event) == ("codex", "PreToolUse")
    assert (said.code, heard(asking.writer, asking.event, said)) == (0, None if silent else "allow")


@pytest.mark.parametrize("client", HOOKED)
def test_a_fault_of_the_hooks_own_is_a_refusal(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: NoServer, _until: float) -> Answer:
        raise RuntimeError("boom")

    data = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    monkeypatch.setattr(NoServer, "run", fail)
    monkeypatch.setattr(process, "claim_standard_output", lambda: 1)
    monkeypatch.setattr(process, "listen_for_signals", lambda *_numbers: ([], 0))
    monkeypatch.setattr(process, "_deny_after", lambda _seconds: None)
    with given_to(json.dumps(data).encode(), monkeypatch, _NOBODY) as said:
        order = process.Order(client, None, None, Options(config="/nowhere/config.toml"))
        assert process.main(order) == process.REFUSED
    (only,) = said
    assert heard(client, "PreToolUse", only) == "deny"


def test_own_tools_need_no_server() -> None:
    for name in builtin_tools.own_tools():
        data = {"hook_event_name": "PreToolUse", "tool_name": f"mcp__agent-intercom__{name}", "tool_input": {}}
        assert allows(answer("claude-code", json.dumps(data).encode()))


def test_an_agent_may_stop_without_a_server() -> None:
    for client, event in (("claude-code", "Stop"), ("copilot-cli", "agentStop"), ("cursor", "stop")):
        assert answer(client, json.dumps({"hook_event_name": event}).encode()) == Output("{}")
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
        order = process.Order("claude-code", None, None, Options(config=str(config)))
        hook = process.Hook(order, time.monotonic() + 60, [], 0, 1)
        assert hook._ask_for() == wanted
    assert answer("claude-code", read) == Output("{}")


def test_a_hook_that_runs_out_of_time_says_what_it_waited_for() -> None:
    request = HookRequest("intercom/permission", {})
    assert "nobody could be asked in time" in process._undecided(request.answer)
    request.server_line(b'{"method": "intercom/paused", "params": {"session_id": "s"}}\n')
    assert "has paused this agent" in process._undecided(request.answer)
    request.server_line(b'{"method": "intercom/asked", "params": {"session_id": "s", "request_id": "r1"}}\n')
    assert "request r1 still waits" in process._undecided(request.answer)


@pytest.mark.parametrize("event", ["Stop", "PreToolUse"])
@pytest.mark.parametrize("heard", [True, False])
def test_what_nobody_read_was_told_to_nobody(event: str, heard: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    receipts: list[object] = []

    class OneServer(NoServer):
        def run(self, _until: float) -> Answer:
            return Answer({"words": "wait", "behavior": "deny", "receipt": "r"})

        def confirm(self, receipt: object) -> None:
            receipts.append(receipt)

    raw = json.dumps({"hook_event_name": event, "tool_name": "Bash", "tool_input": {"command": "ls"}}).encode()
    monkeypatch.setattr(process, "_read_input", lambda _until: raw)
    monkeypatch.setattr(process, "ServerConnection", OneServer)
    reading, writing = os.pipe()
    if not heard:
        os.close(reading)
    order = process.Order("claude-code", event, None, Options(config="/nowhere/config.toml"))
    said = process.Hook(order, time.monotonic() + 60, [], 0, writing).run()
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
        assert b"its input does not end" in process.stderr.read()


def test_input_without_bounds_is_denied() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "intercom.cli.main", "hook", "claude-code"]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(reading)
        with io.FileIO(writing, "w") as stream, pytest.raises(BrokenPipeError):
            _flood(stream)
        assert process.wait(20) == 2
        assert b"larger than 16 MiB" in process.stderr.read()


def _flood(stream: io.FileIO) -> None:
    for _ in range(1000):
        stream.write(b" " * 2**20)
