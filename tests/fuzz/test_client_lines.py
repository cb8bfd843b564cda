"""Whatever a client writes to its shim: each line is answered or passed over, and the next call is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.harm import shows_no_insides
from tests.fuzz.rig import CONFIG, HANDSHAKE, PATIENCE, Agent, Rig, rig
from tests.fuzz.values import examples, garbage, texts

METHODS = st.sampled_from(
    [
        "initialize",
        "notifications/initialized",
        "ping",
        "tools/list",
        "tools/call",
        "resources/read",
        "logging/setLevel",
        "x",
        "intercom",
        "resources/templates/list",
        "notifications/cancelled",
        "notifications/progress",
        "completion/complete",
        "prompts/get",
        "server/discover",
        "subscriptions/listen",
        "notifications/roots/list_changed",
    ]
)
ids = st.integers() | texts | garbage
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | st.just("2.0") | garbage,
        "id": ids,
        "method": METHODS | METHODS | garbage,
        "params": garbage | st.dictionaries(st.sampled_from(["name", "uri", "_meta", "cursor", "requestId"]), garbage),
        "result": garbage,
        "error": garbage,
        "intercom": garbage,
    },
)
lines = (
    st.binary(max_size=200)
    | messages.map(lambda said: json.dumps(said).encode())
    | garbage.map(lambda said: json.dumps(said).encode())
)

#: What once did harm, or looks as if it might.
KNOWN = [
    b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
    b'{"id":1,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":"","method":"ping"}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":{}},"name":"ping"}}',
    b'{"intercom":{"handover":{}}}',
    b'{"intercom":{"delivered":["x"]}}',
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":{},"result":{}}',
    b"[]",
    b"null",
    b"\xff\xfe",
    b"{" * 5000,
    b"[" * 900 + b"]" * 900,
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}' % (b'{"a":' * 700 + b"1" + b"}" * 700),
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}' % (b'{"a":' * 955 + b"1" + b"}" * 955),
    b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"9" * 4000),
    b'{"jsonrpc":"2.0","id":%s,"method":"ping"}' % (b"9" * 9000),
    b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
    b'{"jsonrpc":"2.0","id":"x","method":"ping","params":{"a":NaN}}',
]


@pytest.fixture(scope="module", params=[(), ("--in-process",)], ids=["behind a shim", "in process"])
def on(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with rig(CONFIG, HANDSHAKE, *request.param) as made:
        yield made


def take(agent: Agent, line: bytes) -> list[Any]:
    """Send a line; all that came before the answer to the ping behind it, which must come."""
    agent.others.clear()
    agent.wire.say(line.replace(b"\n", b" ") + b"\n")
    id = agent.begin("tools/call", {"name": "ping", "arguments": {}})
    while True:
        answer = agent.answer(id)
        if answer.get("id") == id:
            break
        agent.others.append(answer)
    assert answer["result"]["structuredContent"]["acknowledged"] is True
    for said in agent.others:
        shows_no_insides(said)
    return list(agent.others)


@pytest.mark.parametrize("line", KNOWN, ids=lambda line: repr(line[:60]))
def test_a_line_that_looks_for_trouble_leaves_the_next_call_served(on: Rig, line: bytes) -> None:
    take(on.first, line)


def test_a_request_that_can_not_be_read_is_answered_under_its_id(on: Rig) -> None:
    for line in KNOWN[:4]:
        assert [said["id"] for said in take(on.first, line) if "error" in said] == [1]


def test_any_line_leaves_the_next_call_served(on: Rig) -> None:
    @examples(60)
    @given(lines)
    def check(line: bytes) -> None:
        take(on.first, line)

    check()


def test_lines_before_any_greeting_do_no_harm(shared: Rig) -> None:
    agent = shared.agent(greet=False)

    @examples(25)
    @given(lines)
    def check(line: bytes) -> None:
        agent.wire.say(line.replace(b"\n", b" ") + b"\n")

    check()
    shared.done_with(agent)
    shared.agent().does("ping")


@pytest.mark.parametrize(
    "line", [b'{"jsonrpc":"2.0","id":1,"meth', b"\xff", b'{"jsonrpc":"2.0","id":1,"method":"ping"}']
)
def test_a_client_that_ends_in_the_middle_of_a_line_lets_its_shim_go(shared: Rig, line: bytes) -> None:
    agent = shared.agent()
    agent.wire.say(line)
    agent.process.stdin.close()
    assert agent.process.wait(PATIENCE) == 0
    shared.first.does("ping")
