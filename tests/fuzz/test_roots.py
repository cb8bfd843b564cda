"""A client that is asked for its workspace roots may answer anything: a usable root, a refusal in words, no harm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.fuzz.harm import is_fair_result
from tests.fuzz.rig import HANDSHAKE, Agent, Rig, sound
from tests.fuzz.test_tools import ANSWERS
from tests.fuzz.values import examples, garbage, texts
from tests.support.server_process import COMMAND


@pytest.fixture(scope="module")
def agent(on: Rig) -> Iterator[Agent]:
    """A client that has roots, started with no workspace in a directory that can be none."""
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=on.home.environ,
        cwd="/",
    )
    made = Agent(process, HANDSHAKE)
    info = {"name": "fuzz", "version": "1"}
    can = {"roots": {"listChanged": True}}
    made.ask("initialize", {"protocolVersion": HANDSHAKE, "capabilities": can, "clientInfo": info})
    made.wire.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    yield made
    made.close()


uris = (
    st.sampled_from(
        [
            "file:///",
            "file://",
            "file:///etc/passwd",
            "file:///nonexistent",
            "file://[",
            "file://[::1",
            "file:///%00",
            "FILE:///tmp",
            "http://x/",
            "",
            "file:relative",
            "file:///%ff%fe",
            "file://other/tmp",
            "file:///" + "a/" * 3000,
            "file:///%2e%2e",
        ]
    )
    | texts
)
roots = st.fixed_dictionaries({}, optional={"uri": uris | garbage, "name": garbage, "_meta": garbage})
answers: st.SearchStrategy[dict[str, Any]] = (
    st.fixed_dictionaries({"result": st.fixed_dictionaries({"roots": st.lists(roots, max_size=3) | garbage})})
    | st.fixed_dictionaries({"result": st.just({"roots": []})})
    | st.fixed_dictionaries({"error": st.fixed_dictionaries({"code": st.integers(), "message": texts})})
)


def test_any_answer_about_roots_is_taken(on: Rig, agent: Agent) -> None:
    count = 0

    @examples(12)
    @given(answers)
    @example({"result": []})  # no answer at all: it is not waited for without end
    @example({"result": {"roots": [{"uri": "file://["}]}})
    @example({"result": {"roots": [{"uri": "file:///%00"}]}})
    def check(said: dict[str, Any]) -> None:
        nonlocal count
        count += 1
        # A conversation of its own, for which the client is asked again.
        thread = {"threadId": f"thread-{count}"}
        id = agent.begin("tools/call", {"name": "ping", "arguments": {}, "_meta": thread})
        while True:
            message = json.loads(agent.wire.line())
            if message.get("method") == "roots/list":
                try:
                    told = {"jsonrpc": "2.0", "id": message["id"], **said}
                    answer = json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
                    assert b"[[[[" not in answer
                    json.loads(answer)
                except (ValueError, AssertionError):  # it would not be taken for an answer, and waited for
                    answer = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"roots": []}}).encode()
                agent.wire.say(answer + b"\n")
            elif message.get("id") == id:
                break
        is_fair_result(message, ANSWERS["ping"])

    check()
    assert count > 10
    sound(on)


def test_a_usable_root_is_taken(on: Rig, agent: Agent) -> None:
    root = on.home.workspace()
    id = agent.begin("tools/call", {"name": "ping", "arguments": {}, "_meta": {"threadId": "good"}})
    asked = json.loads(agent.wire.line())
    said = {"roots": [{"uri": "file:///nonexistent"}, {"uri": root.as_uri()}]}
    agent.wire.say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}).encode() + b"\n")
    session = agent.answer(id)["result"]["structuredContent"]["session_id"]
    (found,) = [each for each in on.ctl().do("list")["sessions"] if each["session_id"] == session]
    assert found["workspace_root"] == str(root)
