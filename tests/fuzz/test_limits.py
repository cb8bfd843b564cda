"""More than anybody needs: of what waits, of words, of connections, and of answers nobody reads."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

import psutil
import pytest

from intercom.agents.shim.relay import Relay, ToClient
from intercom.model.config import LimitSettings
from tests.fuzz.harm import is_fair_error, is_fair_result
from tests.fuzz.rig import ERAS, STATELESS, Agent, Late, Rig, sound
from tests.fuzz.test_tools import ANSWERS
from tests.fuzz.values import LONG
from tests.support.machine_speed import is_below

MEBIBYTE = 2**20


def memory(on: Rig) -> float:
    """What the server holds, in MiB."""
    assert on.server is not None
    return float(psutil.Process(on.server).memory_info().rss) / MEBIBYTE


def is_calm(on: Rig) -> bool:
    """Whether a ping of another agent is answered soon."""
    began = time.monotonic()
    on.first.does("ping")
    return is_below(2, time.monotonic() - began, time.monotonic)


def many(agent: Agent, tool: str, all_arguments: list[dict[str, Any]], at_once: int = 50) -> list[dict[str, Any]]:
    """The answers to many calls, so many under way at a time."""
    answers: dict[str, dict[str, Any]] = {}
    begun: list[str] = []
    for number, arguments in enumerate(all_arguments):
        begun.append(agent.begin("tools/call", {"name": tool, "arguments": arguments}))
        while len(begun) - len(answers) >= at_once or (number == len(all_arguments) - 1 and len(answers) < len(begun)):
            message = json.loads(agent.wire.line())
            answers[message["id"]] = message
    return [answers[id] for id in begun]


def test_of_thousands_of_requests_as_many_wait_as_may(on: Rig) -> None:
    count = 5000 if LONG else 300
    most = LimitSettings().pending_per_session
    agent, before = on.agent(), memory(on)
    asked = [{"title": f"t{n}", "diff": f"{n}\n", "file_path": f"f{n}"} for n in range(count)]
    answers = [answer["result"]["structuredContent"] for answer in many(agent, "check_clearance", asked)]
    assert sum(answer["status"] == "pending" for answer in answers) == most
    assert {answer.get("error_code") for answer in answers} == {None, "too_many_pending"}
    assert is_calm(on)
    assert memory(on) - before < 40 + most * 0.03
    ctl = on.ctl()
    waiting = ctl.do("pending", session=agent.does("ping")["session_id"])
    assert len(waiting) == most
    ctl.do("approve", id=waiting[most // 2]["request_id"])
    recovered = agent.does("reboot")
    assert recovered["status"] == "recovered"
    assert len(recovered["pending_requests"]) == most - 1
    # The verdict nobody waited for rides on it.
    assert len(recovered["late_verdicts"]) == 1


@pytest.mark.parametrize("era", ERAS)
def test_words_may_be_long(on: Rig, era: str) -> None:
    agent, before = on.agent(era), memory(on)
    long = "x" * MEBIBYTE
    given: list[tuple[str, dict[str, Any]]] = [
        ("check_clearance", {"title": long, "diff": "x", "file_path": "f"}),
        ("check_clearance", {"title": "t", "diff": "x", "file_path": "f" + long}),
        ("check_clearance", {"title": "t", "diff": "x", "file_path": "a/" * 5000 + "f"}),
        ("check_clearance", {"title": "t", "description": long, "diff": "x", "file_path": "g"}),
        ("check_clearance", {"request_id": long}),
        ("check_diff", {"request_id": long}),
        ("auto_check", {"tool_name": long, "context": {"file_path": long, "args": [long]}}),
        ("transmit", {"prompt_text": long}),
        ("broadcast", {"message": long, "thread_ts": long}),
        ("reboot", {"session_id": long}),
        ("switch_freq", {"mode": long}),
        ("standby", {"message": long}),
        ("ping", {"status_message": long, "progress_snapshot": [{"label": long, "status": "done"}] * 3}),
        (long, {}),
        ("ping", {long: long}),
    ]
    for tool, arguments in given:
        is_fair_result(agent.call(tool, arguments), ANSWERS.get(tool))
        assert is_calm(on)
    reply = on.ctl().ask("pending")
    assert reply["ok"]
    assert memory(on) - before < 250


def test_a_proposal_may_be_large_and_is_refused_when_it_is_too_large(on: Rig) -> None:
    agent = on.agent()
    most = "line\n" * (4 * MEBIBYTE // 5)
    asked = agent.does("check_clearance", title="large", diff=most, file_path="large.txt")
    # A connection that sends no request in time is closed, and this one took a while.
    on.ctl().do("approve", id=asked["request_id"])
    applied = agent.does("check_diff", request_id=asked["request_id"])
    assert applied["files_written"] == [{"path": "large.txt", "bytes": len(most)}]
    for diff in ("x" * 10 * MEBIBYTE, "--- a/f\n+++ b/f\n" + "@@ -1 +1 @@\n-a\n+b\n" * 500_000):
        refused = agent.does("check_clearance", title="too large", diff=diff, file_path="f")
        is_fair_error(refused)
        assert refused["error_code"] == "diff"
        assert is_calm(on)


def test_a_patch_that_is_slow_to_read_holds_nobody_else_up(on: Rig) -> None:
    agent = on.agent()
    (on.workspace / "same.txt").write_text("same\n" * 20_000)
    hunks = "".join(f"@@ -{n},3 +{n},3 @@\n same\n-same\n+other\n same\n" for n in range(1, 3_000, 4))
    lost = "".join(f"@@ -{n} +{n} @@\n-not there {n}\n+other\n" for n in range(1, 200))
    for body in (hunks, lost):
        diff = "--- a/same.txt\n+++ b/same.txt\n" + body
        arguments = {"title": "slow", "diff": diff, "file_path": "same.txt"}
        id = agent.begin("tools/call", {"name": "check_clearance", "arguments": arguments})
        assert all(is_calm(on) for _ in range(10))
        is_fair_result(agent.answer(id, 60), ANSWERS["check_clearance"])


@pytest.mark.parametrize("socket_name", ["ctl", "shims"])
def test_a_crowd_of_silent_connections_locks_nobody_out(on: Rig, socket_name: str) -> None:
    before, ctl = memory(on), on.ctl()
    # Who has shown the token does not give way to who has not.
    assert ctl.ask("version")["ok"]
    path = on.home.places.ctl_socket if socket_name == "ctl" else on.home.places.mcp_socket
    crowd = []
    for _ in range(200):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Waits where the queue is full.
        one.connect(path)
        with contextlib.suppress(BrokenPipeError):
            # One that there is no room for may have been told so, and closed, by now.
            one.send(b'{"half": ')
        crowd.append(one)
    assert is_calm(on)
    assert ctl.ask("version")["ok"]
    # Those who show the token are let in while the crowd stays.
    if socket_name == "shims":
        on.done_with(on.agent())
    else:
        assert on.ctl().ask("version")["ok"]
    assert memory(on) - before < 60
    for one in crowd:
        one.close()
    sound(on)


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_never_reads_costs_nobody_else(on: Rig, era: str) -> None:
    deaf, before = on.agent(era), memory(on)
    shim = psutil.Process(deaf.process.pid)
    held = shim.memory_info().rss / MEBIBYTE
    # Its pipe fills, then its shim stops reading, then the server stops reading the shim: each with bounded memory.
    deaf.wire.listen = False
    line = request(deaf)
    with pytest.raises(Late):
        keep_saying(deaf, line)
    assert is_calm(on)
    assert memory(on) - before < 200
    assert shim.memory_info().rss / MEBIBYTE - held < 100
    on.done_with(deaf)
    sound(on)


def keep_saying(agent: Agent, line: bytes) -> None:
    for number in range(100_000):
        agent.wire.say(line % number, seconds=1)


def request(agent: Agent) -> bytes:
    """A request with a long answer, with a place for its number."""
    params = {"_meta": agent.about()} if agent.era == STATELESS else {}
    text = json.dumps({"jsonrpc": "2.0", "id": "ID", "method": "tools/list", "params": params})
    return text.replace("%", "%%").replace('"ID"', "%d").encode() + b"\n"


def test_a_watcher_that_never_reads_is_dropped(on: Rig) -> None:
    deaf, before = on.ctl(), memory(on)
    deaf.wire.say(json.dumps({"command": "watch", "auth_token": deaf.token}).encode() + b"\n")
    long = "x" * 20_000
    for _ in range(40 if LONG else 10):
        for answer in many(on.first, "broadcast", [{"message": long}] * 40):
            assert "result" in answer
    assert is_calm(on)
    assert memory(on) - before < 150


def test_a_shim_keeps_only_so_much_of_what_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.agents.shim.relay._ROOM", 16 * MEBIBYTE)
    relay = Relay("s" * 32, {})
    words = "x" * MEBIBYTE
    answered = [
        effect
        for id in range(40)
        for effect in relay.client_line(
            json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": words}}).encode()
        )
    ]
    assert sum(len(each.line) for each in relay.in_flight.values()) <= 16 * MEBIBYTE
    refused = [json.loads(effect.line) for effect in answered if isinstance(effect, ToClient)]
    assert len(refused) == 40 - len(relay.in_flight) > 0
    assert {said["result"]["structuredContent"]["error_code"] for said in refused} == {"busy"}
