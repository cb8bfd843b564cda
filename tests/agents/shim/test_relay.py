"""The relay's rules, one test a rule: no I/O."""

from __future__ import annotations

import json
from typing import Any

import pytest

from intercom.agents.shim.relay import Effect, Failure, Leave, Note, Relay, Retry, ToClient, ToServer, control

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
SHIPPED = {
    "2025-11-25": {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"logging": {}, "tasks": {}, "tools": {}},
            "serverInfo": {"name": "x", "version": "1"},
        },
        "tools/list": {"tools": ["old era"]},
    },
    "2026-07-28": {"server/discover": {"supportedVersions": ["2026-07-28"]}, "tools/list": {"tools": ["new era"]}},
}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def call(request_id: Any, name: str = "ask", **params: Any) -> bytes:
    return line(id=request_id, method="tools/call", params={"name": name, **params})


def read(effects: list[Effect]) -> list[tuple[str, Any]]:
    """The effects as pairs of where and what."""
    return [
        (type(each).__name__, json.loads(each.line) if isinstance(each, ToClient | ToServer) else None)
        for each in effects
    ]


def to_server(effects: list[Effect]) -> list[Any]:
    return [what for where, what in read(effects) if where == "ToServer"]


def to_client(effects: list[Effect]) -> list[Any]:
    return [what for where, what in read(effects) if where == "ToClient"]


def relay(*, up: bool = True, shipped: Any = None) -> Relay:
    made = Relay("shim", shipped or {})
    if up:
        assert made.server_up() == []
    return made


def greeted(*, up: bool = True) -> Relay:
    """A relay whose client has shaken hands without a server."""
    made = relay(up=False, shipped=SHIPPED)
    made.client_line(line(id=0, method="initialize", params=HELLO))
    made.client_line(line(method="notifications/initialized"))
    if up:
        made.server_up()
    return made


def test_a_call_is_named_by_shim_count_and_id_over_whatever_the_client_put_there() -> None:
    one = relay()
    sent = to_server(one.client_line(call(7, _meta={"intercom/call": "mine", "intercom/x": 1, "threadId": "t"})))
    assert sent[0]["params"]["_meta"] == {"threadId": "t", "intercom/call": "shim/1/7/tools/call"}
    assert to_server(one.client_line(call("7")))[0]["params"]["_meta"] == {"intercom/call": 'shim/2/"7"/tools/call'}


def test_our_keys_are_taken_out_of_every_message_and_only_calls_are_named() -> None:
    one = relay()
    for message in (
        line(id=1, method="resources/read", params={"uri": "u", "_meta": {"intercom/call": "x", "keep": 1}}),
        line(method="notifications/roots/list_changed", params={"_meta": {"intercom/call": "x", "keep": 1}}),
    ):
        assert to_server(one.client_line(message))[0]["params"]["_meta"] == {"keep": 1}


def test_a_client_can_not_speak_the_servers_control_words() -> None:
    one = relay()
    assert to_client(one.client_line(b'{"intercom":{"delivered":["x"]}}'))[0]["error"]["code"] == -32600
    sent = to_server(one.client_line(line(id=1, method="resources/read", intercom={"hello": {}})))
    assert sent == [{"jsonrpc": "2.0", "id": 1, "method": "resources/read"}]


def test_what_is_in_flight_is_asked_again_in_order_under_the_same_name() -> None:
    one = relay()
    first = to_server([*one.client_line(call(1)), *one.client_line(call(2)), *one.client_line(call(3))])
    one.server_line(line(id=2, result={}))
    one.server_down()
    assert to_server(one.server_up()) == [first[0], first[2]]


def test_a_cancelled_call_is_not_asked_again_and_its_late_answer_goes_nowhere() -> None:
    one = relay()
    one.client_line(call(1))
    assert to_server(one.client_line(line(method="notifications/cancelled", params={"requestId": 1})))
    assert one.server_line(line(id=1, result={})) == []
    one.server_down()
    assert one.server_up() == []


def test_whoever_writes_an_answer_gets_the_receipt_that_the_server_wants_back() -> None:
    one = relay()
    one.client_line(call(1))
    one.client_line(call(2))
    assert one.server_line(b'{"intercom": {"receipt": {"call": "shim/2/2/tools/call", "text": "two"}}}') == []
    assert one.server_line(b'{"id": 1, "result": {}}') == [ToClient(b'{"id": 1, "result": {}}\n')]
    assert one.server_line(b'{"id": 2, "result": {}}') == [ToClient(b'{"id": 2, "result": {}}\n', "two")]


def test_an_answer_reaches_the_client_once_and_as_it_was_written() -> None:
    one = relay()
    one.client_line(call(1))
    answer = b'{"jsonrpc": "2.0",  "id": 1, "result": {"a": 1.0}}'
    assert one.server_line(answer) == [ToClient(answer + b"\n")]
    assert one.server_line(answer) == []


def test_an_id_may_be_used_again_after_its_answer_but_not_before() -> None:
    one = relay()
    one.client_line(call(1))
    assert [type(each) for each in one.client_line(call(1))] == [Note]
    one.server_line(line(id=1, result={}))
    assert to_server(one.client_line(call(1)))[0]["params"]["_meta"]["intercom/call"] == "shim/2/1/tools/call"


def test_ids_of_different_types_are_different_ids() -> None:
    one = relay()
    one.client_line(call(1))
    one.client_line(call("1"))
    assert to_client(one.server_line(line(id="1", result={"to": "text"})))[0]["id"] == "1"
    assert list(one.in_flight) == ["1"]


def test_the_handshake_is_told_again_and_its_answer_kept_from_the_client() -> None:
    one = greeted(up=False)
    sent = to_server(one.server_up())
    assert [each["method"] for each in sent] == ["initialize", "notifications/initialized"]
    assert sent[0]["params"] == HELLO
    assert one.server_line(line(id=sent[0]["id"], result={})) == []
    assert [type(each) for each in one.server_line(line(id=sent[0]["id"], error={"code": 1, "message": "m"}))] == [Note]


def test_log_level_and_subscriptions_outlive_the_server_that_granted_them() -> None:
    one = greeted()
    for n, (method, params) in enumerate(
        [
            ("logging/setLevel", {"level": "info"}),
            ("resources/subscribe", {"uri": "a"}),
            ("resources/subscribe", {"uri": "b"}),
            ("resources/unsubscribe", {"uri": "a"}),
            ("resources/subscribe", {"uri": "refused"}),
        ]
    ):
        one.client_line(line(id=n, method=method, params=params))
        one.server_line(line(id=n, error={}) if params == {"uri": "refused"} else line(id=n, result={}))
    one.server_down()
    sent = to_server(one.server_up())[2:]
    assert [(each["method"], each["params"]) for each in sent] == [
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "b"}),
    ]
    assert len({each["id"] for each in sent}) == 2


def test_a_servers_requests_have_ids_of_their_own_in_each_life() -> None:
    one = relay()
    asked = line(id=5, method="roots/list", params={"_meta": {"progressToken": 5}})
    (first,) = to_client(one.server_line(asked))
    withdrawn = to_client(one.server_down())
    one.server_up()
    (second,) = to_client(one.server_line(asked))
    assert first["id"] != second["id"]
    assert [(each["method"], each["params"]["requestId"]) for each in withdrawn] == [
        ("notifications/cancelled", first["id"])
    ]
    assert one.client_line(line(id=first["id"], result={"of": "a dead life"})) == []
    token = second["params"]["_meta"]["progressToken"]
    moved = to_server(one.client_line(line(method="notifications/progress", params={"progressToken": token})))
    assert moved[0]["params"]["progressToken"] == 5
    assert to_server(one.client_line(line(id=second["id"], result={"roots": []}))) == [
        {"jsonrpc": "2.0", "id": 5, "result": {"roots": []}}
    ]
    assert one.client_line(line(id=second["id"], result={})) == [], "answered once"
    stale = line(method="notifications/progress", params={"progressToken": token, "progress": 1})
    assert one.client_line(stale) == []


def test_a_server_withdraws_its_request_under_the_id_the_client_knows() -> None:
    one = relay()
    params = {"_meta": {"progressToken": 5}}
    (asked,) = to_client(one.server_line(line(id=5, method="elicitation/create", params=params)))
    withdraw = line(method="notifications/cancelled", params={"requestId": 5, "reason": "r"})
    (told,) = to_client(one.server_line(withdraw))
    assert told["params"] == {"requestId": asked["id"], "reason": "r"}
    assert one.server_line(withdraw) == []
    late = {"progressToken": asked["params"]["_meta"]["progressToken"], "progress": 1}
    assert one.client_line(line(method="notifications/progress", params=late)) == []


def test_progress_never_falls_or_repeats_whichever_life_counts() -> None:
    one = relay()
    one.client_line(call(1, _meta={"progressToken": "t"}))

    def report(*values: float) -> list[float]:
        effects = []
        for value in values:
            params = {"progressToken": "t", "progress": value, "total": 4}
            effects += one.server_line(line(method="notifications/progress", params=params))
        assert all(("total" in each["params"]) == (each["params"]["progress"] <= 4) for each in to_client(effects))
        return [each["params"]["progress"] for each in to_client(effects)]

    assert report(1, 2, 2, 1.5, 3) == [1, 2, 3]
    one.server_down()
    one.server_up()
    assert report(1, 2, 2) == [4, 5]
    one.server_down()
    one.server_up()
    assert report(9) == [9], "a life that counts on from the store is shown as it is"
    one.server_line(line(id=1, result={}))
    assert report(10) == [], "progress of what is answered"


def test_progress_for_what_was_never_asked_is_dropped() -> None:
    one = relay()
    for params in ({"progressToken": 1, "progress": 1}, {"progressToken": 1, "progress": "x"}, None):
        assert one.server_line(line(method="notifications/progress", params=params)) == []


@pytest.mark.parametrize(
    ("sent", "code", "answered"),
    [
        (b"{", -32700, None),
        (b"\xff", -32700, None),
        (b'{"id": NaN}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b"1", -32600, None),
        (b"{}", -32600, None),
        (b'{"id":1}', -32600, None),
        (b'{"id":null,"method":"ping"}', -32600, None),
        (b'{"id":true,"method":"ping"}', -32600, None),
        (b'{"id":1.5,"method":"ping"}', -32600, None),
        (b'{"id":{},"method":"ping"}', -32600, None),
        (b'{"id":1,"method":2}', -32600, None),
        (b'{"id":1,"method":"tools/call","params":{"x":"\\ud800"}}', -32600, 1),
        (b'{"id":1,"method":"tools/call","params":{"x":1e999}}', -32600, 1),
        (b'{"id":"\\ud800","method":"tools/call"}', -32600, None),
        (b'{"id":1,"method":"ping","params":{"x":1e999}}', -32600, 1),
        (b'{"id":1,"result":1e999}', -32600, None),
    ],
)
def test_what_is_no_message_is_answered_by_the_shim(sent: bytes, code: int, answered: Any) -> None:
    for one in (relay(), greeted(up=False)):
        (told,) = to_client(one.client_line(sent))
        assert (told["error"]["code"], told["id"]) == (code, answered)


def test_without_a_server_the_shipped_answers_are_given_and_the_rest_waits() -> None:
    one = greeted(up=False)
    assert to_client(one.client_line(line(id=1, method="tools/list")))[0]["result"] == {"tools": ["old era"]}
    assert to_client(one.client_line(line(id=2, method="ping")))[0]["result"] == {}
    assert one.client_line(line(id=3, method="tools/list", params={"cursor": "next"})) == []
    assert one.client_line(call(4)) == []
    assert [each.get("id") for each in to_server(one.server_up())][-2:] == [3, 4]


def test_with_a_server_everything_is_relayed() -> None:
    one = greeted()
    assert [each["method"] for each in to_server(one.client_line(line(id=1, method="tools/list")))] == ["tools/list"]


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("2024-11-05", "2024-11-05"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ],
)
def test_an_unknown_revision_gets_the_newest_of_the_handshake_era_which_alone_has_tasks(
    asked: str, agreed: str
) -> None:
    one = relay(up=False, shipped=SHIPPED)
    (told,) = to_client(one.client_line(line(id=0, method="initialize", params={**HELLO, "protocolVersion": asked})))
    assert told["result"]["protocolVersion"] == agreed
    assert list(told["result"]["capabilities"]) == ["logging", *["tasks"] * (agreed == "2025-11-25"), "tools"]


def test_the_newer_era_is_answered_without_a_handshake() -> None:
    one = relay(up=False, shipped=SHIPPED)
    for n, method in enumerate(["server/discover", "tools/list"]):
        (told,) = to_client(one.client_line(line(id=n, method=method, params={"_meta": MODERN})))
        assert told["result"] == SHIPPED["2026-07-28"][method]
    unknown = {**MODERN, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    assert one.client_line(line(id=8, method="server/discover", params={"_meta": unknown})) == []
    assert one.client_line(line(id=9, method="initialize", params=HELLO)) == [], "the server refuses this, in its words"
    assert [each["id"] for each in to_server(one.server_up())] == [8, 9], "no handshake is made up"


@pytest.mark.parametrize(
    "params", [{}, {"protocolVersion": 1}, {**HELLO, "clientInfo": {}}, {**HELLO, "capabilities": None}, []]
)
def test_a_malformed_handshake_is_left_to_the_server(params: Any) -> None:
    one = relay(up=False, shipped=SHIPPED)
    assert one.client_line(line(id=0, method="initialize", params=params)) == []
    assert one.client_line(line(id=1, method="tools/list")) == [], "nor is a list given before the handshake"


def test_a_list_that_a_dying_server_owes_is_answered_at_once() -> None:
    one = greeted()
    one.client_line(line(id=1, method="tools/list"))
    one.client_line(call(2))
    assert [each["id"] for each in to_client(one.server_down())] == [1]
    assert list(one.in_flight) == ["2"]


def test_when_no_server_can_be_had_every_caller_is_told_why() -> None:
    one = greeted(up=False)
    one.client_line(call(1))
    one.client_line(line(id=2, method="resources/read", params={"uri": "u"}))
    told = to_client(one.server_failed(Failure("config", "line 3 is wrong")))
    body = {"status": "error", "error_code": "config", "error_message": "line 3 is wrong"}
    assert told[0]["result"]["isError"] is True
    assert told[0]["result"]["structuredContent"] == body
    assert json.loads(told[0]["result"]["content"][0]["text"]) == body
    assert told[1]["error"]["data"] == {"error_code": "config"}
    assert to_client(one.client_line(call(3)))[0]["result"]["structuredContent"] == body
    assert to_client(one.client_line(line(id=4, method="tools/list")))[0]["result"], "the shim itself is well"
    assert one.in_flight == {}


def test_the_newer_era_gets_its_error_results_complete() -> None:
    one = relay(up=False)
    one.server_failed(Failure("db", "m"))
    assert to_client(one.client_line(call(1, _meta=MODERN)))[0]["result"]["resultType"] == "complete"


def test_some_time_after_a_failure_a_call_causes_another_try_and_waits_for_it() -> None:
    one = relay(up=False)
    one.server_failed(Failure("config", "wrong"))
    one.retry_allowed()
    assert one.client_line(call(1)) == [Retry()]
    assert one.client_line(call(2)) == [], "one try at a time"
    assert [each["id"] for each in to_client(one.server_failed(Failure("config", "still")))] == [1, 2]
    one.retry_allowed()
    one.client_line(call(3))
    assert [each["id"] for each in to_server(one.server_up())] == [3]


def test_a_delivery_is_told_until_it_is_recorded() -> None:
    one = relay()
    assert to_server(one.written("a")) == [{"intercom": {"delivered": ["a"]}}]
    one.server_down()
    assert one.written("b") == []
    assert list(one.undelivered) == ["a", "b"]
    assert to_server(one.server_up()) == [{"intercom": {"delivered": ["a", "b"]}}]
    assert one.server_line(b'{"intercom":{"recorded":["a"]}}') == []
    assert list(one.undelivered) == ["b"]


def test_a_handover_makes_the_shim_leave() -> None:
    assert relay().server_line(b'{"intercom":{"handover":{}}}') == [Leave()]


@pytest.mark.parametrize("sent", [b"{", b"[]", b'{"intercom":1}'])
def test_what_a_server_should_not_say_is_noted_and_passed_over(sent: bytes) -> None:
    assert [type(each) for each in relay().server_line(sent)] == [Note]
    assert control(sent) == {}


def test_too_many_requests_in_flight_are_refused() -> None:
    one = relay(up=False)
    for n in range(10_000):
        one.client_line(call(n))
    (told,) = to_client(one.client_line(call("one more")))
    assert told["result"]["structuredContent"]["error_code"] == "busy"


@pytest.mark.parametrize("over", [0, 1])
def test_requests_in_flight_have_at_most_256_mib_together(over: int) -> None:
    one = relay(up=False)
    one.client_line(call(1, "x" * 70_000))
    (kept,) = one.in_flight.values()
    one.in_flight = {"2": kept._replace(line=bytes(2**28 - len(kept.line) + over))}
    assert len(one.client_line(call(1, "x" * 70_000))) == over
