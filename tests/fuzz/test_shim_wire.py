"""Whoever connects where shims do: garbage for a greeting, garbage behind it, half lines, endless lines, no lines."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.harm import shows_no_insides
from tests.fuzz.rig import Ctl, Gone, Late, Rig, sound
from tests.fuzz.test_client_lines import KNOWN, lines
from tests.fuzz.values import examples, garbage, texts

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}


def dial(on: Rig) -> Ctl:
    return on.ctl(on.home.places.mcp_socket)


def hello(on: Rig, link: Ctl, **changes: Any) -> bytes:
    said = {
        "wire": 1,
        "version": "0.0.1",
        "shim": "f" * 32,
        "pid": os.getpid(),
        "client_pid": os.getppid(),
        "cwd": str(on.workspace),
        "workspace": str(on.workspace),
        "config": None,
        "config_digest": None,
        "token": link.token,
        "delivered": [],
    }
    return json.dumps({"intercom": {"hello": said | changes}}).encode() + b"\n"


def heard(link: Ctl, seconds: float = 0.2) -> list[Any]:
    """What comes until the other side closes or says no more."""
    said = []
    try:
        while True:
            said.append(json.loads(link.wire.line(seconds)))
    except (Gone, Late):
        return said


def say(link: Ctl, data: bytes) -> None:
    try:
        link.wire.say(data)
    except Gone:
        pass  # it had heard enough


hellos = st.fixed_dictionaries(
    {},
    optional={
        "wire": st.just(1) | garbage,
        "version": st.sampled_from(["0", "\u00b2.\u00b9", "0.0.1", "x", "1..2", "0" * 5000]) | texts,
        "shim": texts | garbage,
        "pid": st.integers(-5, 2**70) | garbage,
        "client_pid": st.integers(-5, 2**70) | garbage,
        "cwd": texts | garbage,
        "workspace": texts | garbage,
        "config": texts | garbage,
        "config_digest": texts | garbage,
        "delivered": garbage | st.lists(garbage),
        "token": st.just("") | garbage,
        "more": garbage,
    },
)


def test_any_greeting_with_the_token_is_welcomed_or_refused(on: Rig) -> None:
    ctl = on.ctl()

    @examples(30)
    @given(hellos)
    def check(changes: dict[str, Any]) -> None:
        link = dial(on)
        changes.pop("token", None)
        say(link, hello(on, link, **changes))
        say(link, json.dumps({"jsonrpc": "2.0", "id": 9, "method": "initialize", "params": GREETING}).encode() + b"\n")
        say(link, b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ping","arguments":{}}}\n')
        for said in heard(link, 0.05):
            shows_no_insides(said)
        # While such a shim is connected, people can still look and act.
        assert ctl.ask("version")["ok"]
        assert ctl.ask("approve", id="no-such-request")["error_code"] == "request_not_found"
        on.done_with(link)

    check()
    sound(on)


def test_no_greeting_without_the_token_gets_further(on: Rig) -> None:
    @examples(15)
    @given(hellos.filter(lambda said: "token" in said))
    def check(changes: dict[str, Any]) -> None:
        link = dial(on)
        changes["wire"] = 1
        say(link, hello(on, link, **changes))
        say(link, b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ping","arguments":{}}}\n')
        answers = heard(link, 5)
        assert [list(said["intercom"]) for said in answers] == [["refused"]], answers
        shows_no_insides(answers)
        on.done_with(link)

    check()


def test_any_first_line_is_refused(on: Rig) -> None:
    @examples(25)
    @given(lines)
    def check(line: bytes) -> None:
        link = dial(on)
        say(link, line.replace(b"\n", b" ") + b"\n")
        answers = heard(link, 5)
        assert [list(said["intercom"]) for said in answers] == [["refused"]], answers
        on.done_with(link)

    check()


def test_garbage_behind_a_greeting_harms_nobody(on: Rig) -> None:
    link = dial(on)
    say(link, hello(on, link))
    assert "welcome" in json.loads(link.wire.line())["intercom"]
    for line in KNOWN:
        say(link, line + b"\n")

    @examples(80)
    @given(lines)
    def check(line: bytes) -> None:
        say(link, line.replace(b"\n", b" ") + b"\n")

    check()
    for said in heard(link, 0.5):
        shows_no_insides(said)
    on.done_with(link)
    sound(on)


CONTROLS = [{"delivered": None}, {"delivered": 5}, {"delivered": [{}]}, {"hello": {}}, {"receipt": []}, [], None, 7]


@pytest.mark.parametrize("word", CONTROLS, ids=str)
def test_a_control_line_that_makes_no_sense_is_passed_over(on: Rig, word: Any) -> None:
    link = dial(on)
    say(link, hello(on, link, shim="e" * 32))
    link.wire.line()
    say(link, json.dumps({"intercom": word}).encode().replace(b": ", b":") + b"\n")
    say(link, json.dumps({"jsonrpc": "2.0", "id": 9, "method": "initialize", "params": GREETING}).encode() + b"\n")
    assert [said["id"] for said in heard(link, 0.5) if "result" in said] == [9]
    on.done_with(link)


def test_half_a_greeting_keeps_nobody_waiting(on: Rig) -> None:
    links = [dial(on) for _ in range(20)]
    for link in links:
        say(link, hello(on, link)[:40])
    on.first.does("ping")
    on.agent().does("ping")
    for link in links:
        on.done_with(link)


def test_a_line_without_an_end_is_cut_off(on: Rig) -> None:
    link = dial(on)
    say(link, hello(on, link, shim="d" * 32))
    link.wire.line()
    with contextlib.suppress(Gone):
        for _ in range(72):
            link.wire.say(b"x" * 2**20)
    with pytest.raises(Gone):
        link.wire.line()
    on.first.does("ping")
    on.done_with(link)


def test_a_cancellation_of_anything_leaves_the_link_up(on: Rig) -> None:
    agent = on.agent(name="patient")
    id = agent.begin("tools/call", {"name": "transmit", "arguments": {"prompt_text": "shall I?"}})
    odd: list[Any] = [[], {}, [[]], None, 1.5, True]
    for wanted in odd:
        said = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": wanted}}
        agent.wire.say(json.dumps(said).encode() + b"\n")
    assert agent.does("ping")["acknowledged"]
    ctl = on.ctl()
    (waiting,) = ctl.do("pending", session=agent.does("ping")["session_id"])
    ctl.do("answer", id=waiting["request_id"], decision="continue")
    assert agent.answer(id)["result"]["structuredContent"]["decision"] == "continue"
    sound(on)
