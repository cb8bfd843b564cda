"""One connection's JSON-RPC state: a downstream may send anything, and it reaches only the request that it is for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from intercom.gateway.breaker import Failure
from intercom.gateway.messages import CallFailed, RpcError
from intercom.gateway.rpc_multiplexer import (
    CANCELLED_SECONDS,
    LATE_SECONDS,
    MOST_ASKS,
    MOST_LATE,
    Answered,
    Ask,
    AskEnded,
    Event,
    Junk,
    Multiplexer,
    Notified,
    Send,
    ToAgent,
    cancellation,
    decode,
)
from intercom.model.json_types import JsonObject

OLD, MODERN = "2025-11-25", "2026-07-28"
VERSION, CLIENT, CAPABILITIES, LEVEL = (
    f"io.modelcontextprotocol/{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities", "logLevel")
)


@define(eq=False)
class Agent:
    """An agent that nothing is sent to."""

    id: str = "agent"
    capabilities: JsonObject = field(factory=lambda: {"sampling": {}, "elicitation": {}, "roots": {}})

    def notify(self, method: str, params: JsonObject) -> None:
        raise AssertionError

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        raise AssertionError


def multiplexer(version: str = OLD) -> Multiplexer:
    made = Multiplexer()
    made.speak(version)
    return made


def text(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def progress(**params: Any) -> bytes:
    return text(method="notifications/progress", params=params)


def outcome(events: Sequence[Event]) -> Any:
    (event,) = events
    assert isinstance(event, Answered)
    return event.outcome


def failure(events: Sequence[Event]) -> str:
    failed = outcome(events)
    assert isinstance(failed, CallFailed)
    assert failed.failure is Failure.PROTOCOL
    assert failed.was_sent
    return failed.reason


# --- Requests and their answers


def test_two_agents_requests_get_different_ids_and_their_own_answers() -> None:
    mux = multiplexer()
    first, sent = mux.request("tools/call", {"name": "a"}, agent=Agent("1"))
    second, _ = mux.request("tools/call", {"name": "b"}, agent=Agent("2"))

    assert sent == {"jsonrpc": "2.0", "id": first, "method": "tools/call", "params": {"name": "a"}}
    assert mux.received(text(id=second, result={"of": 2})) == (Answered(second, {"of": 2}),)
    assert mux.received(text(id=first, result={"of": 1})) == (Answered(first, {"of": 1}),)
    assert mux.waiting == 0


@pytest.mark.parametrize("made", ["1", 1.0])
def test_an_id_may_come_back_as_a_text_or_a_fraction(made: object) -> None:
    mux = multiplexer()
    mux.request("ping", {})

    assert outcome(mux.received(text(id=made, result={}))) == {}


@pytest.mark.parametrize("unknown", [2, 0, -1, True, "01", "x", "١", "", 1.5, [1], {"id": 1}, None, 10**400])
def test_an_answer_to_no_request_is_dropped_and_counted(unknown: object) -> None:
    mux = multiplexer()
    mux.request("ping", {})

    assert mux.received(text(id=unknown, result={})) == ()
    assert (mux.dropped_answers, mux.waiting) == (1, 1)


def test_a_second_answer_and_one_after_a_cancellation_are_dropped() -> None:
    mux = multiplexer()
    answered, _ = mux.request("ping", {})
    cancelled, _ = mux.request("ping", {})
    mux.received(text(id=answered, result={}))
    mux.forget(cancelled)

    assert mux.received(text(id=answered, result={"again": True})) == ()
    assert mux.received(text(id=cancelled, result={})) == ()
    assert mux.dropped_answers == 2


def test_an_answer_in_the_response_to_another_request_is_dropped() -> None:
    mux = multiplexer()
    mine, _ = mux.request("ping", {})
    other, _ = mux.request("ping", {})

    assert mux.received(text(id=other, result={}), request=mine) == ()
    assert outcome(mux.received(text(id=other, result={}), request=other)) == {}
    assert mux.dropped_answers == 1


def test_an_error_keeps_its_code_message_and_data() -> None:
    mux = multiplexer()
    id, _ = mux.request("ping", {})

    error = outcome(mux.received(text(id=id, error={"code": -32602, "message": "bad", "data": {"x": 1}})))

    assert isinstance(error, RpcError)
    assert (error.code, error.message, error.data) == (-32602, "bad", {"x": 1})


@pytest.mark.parametrize("error", [{}, {"code": "E", "message": 7}, {"code": True}])
def test_an_incomplete_error_is_an_error_all_the_same(error: object) -> None:
    mux = multiplexer()
    id, _ = mux.request("ping", {})

    assert outcome(mux.received(text(id=id, error=error))).code == -32603


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"result": "text"}, "the result of the answer is not an object"),
        ({"result": None}, "the result of the answer is not an object"),
        ({"result": [], "error": None}, "the result of the answer is not an object"),
        ({"error": "text"}, "the error of the answer is not an object"),
        ({"error": None}, "the error of the answer is not an object"),
        ({"result": {}, "error": {"code": 1, "message": ""}}, "the answer has both a result and an error"),
    ],
)
def test_an_answer_that_breaks_the_protocol_fails_its_request(answer: JsonObject, reason: str) -> None:
    mux = multiplexer()
    id, _ = mux.request("ping", {})

    assert failure(mux.received(text(id=id, **answer))) == reason


def test_a_result_beside_an_error_of_null_counts() -> None:
    mux = multiplexer()
    id, _ = mux.request("ping", {})

    assert outcome(mux.received(text(id=id, result={"a": 1}, error=None))) == {"a": 1}


def test_an_array_is_taken_message_by_message() -> None:
    mux = multiplexer()
    first, second = mux.request("ping", {})[0], mux.request("ping", {})[0]
    batch = [{"id": second, "result": {}}, 7, {"method": "ping", "id": "s"}, {"id": first, "result": {}}, [{}]]

    events = list(mux.received(json.dumps(batch).encode()))

    assert [type(event) for event in events] == [Answered, Junk, Send, Answered, Junk]
    assert [event.id for event in events if isinstance(event, Answered)] == [second, first]


def test_an_error_without_an_id_fails_the_only_request() -> None:
    mux = multiplexer()
    mux.request("initialize", {})

    assert outcome(mux.received(text(id=None, error={"code": -32700, "message": "parse error"}))).code == -32700


def test_an_error_without_an_id_is_dropped_if_it_could_be_for_any_of_two() -> None:
    mux = multiplexer()
    mux.request("ping", {})
    second, _ = mux.request("ping", {})
    error = text(id=None, error={"code": -32700, "message": "parse error"})

    assert mux.received(error) == ()
    assert outcome(mux.received(error, request=second)).code == -32700


def test_a_lost_connection_fails_all_requests_and_ends_all_questions() -> None:
    mux, agent = multiplexer(), Agent()
    first, second = (mux.request("tools/call", {}, agent=agent)[0] for _ in range(2))
    mux.received(text(id="q", method="roots/list"))

    events = list(mux.lost("the process exited with status 1"))

    assert [event.id for event in events if isinstance(event, Answered)] == [first, second]
    assert all(event.outcome.reason == "the process exited with status 1" for event in events[:2])  # type: ignore
    assert events[2:] == [AskEnded("q")]
    assert mux.received(text(id=first, result={})) == ()


def test_a_failed_request_says_whether_it_was_sent() -> None:
    mux = multiplexer()
    id, _ = mux.request("tools/call", {})

    failed = outcome(mux.failed(id, Failure.TRANSPORT, "the server cannot be reached", was_sent=False))

    assert (failed.failure, failed.was_sent) == (Failure.TRANSPORT, False)
    assert mux.failed(id, Failure.TRANSPORT, "again", was_sent=False) == ()


# --- What is not JSON


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}', "the answer is not valid UTF-8"),
        (b'{"result":{"a":NaN},"id":1}', "the answer is not valid JSON"),
        (b'{"result":{"a":1e999},"id":1}', "the answer is not valid JSON"),
        (b'{"result":{"a":' + b"9" * 5000 + b'},"id":1,"jsonrpc":"2.0"}', "the answer is not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"content":[', "the answer is not valid JSON"),
        (b'{"id":1,"result":{"a":' + b"[" * 250 + b"]" * 250 + b"}}", "the answer is not valid JSON"),
        (b'{"id":"1","result":{]}', "the answer is not valid JSON"),
        (b'{"result":{"content":,},"jsonrpc":"2.0","id":1}', "the answer is not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000, "the answer is not valid JSON"),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}{"jsonrpc":"2.0","id":2,"result":{}}', "the answer is not valid JSON"),
    ],
)
def test_an_unreadable_answer_fails_its_request_at_once(line: bytes, reason: str) -> None:
    mux = multiplexer()
    mux.request("ping", {})

    assert failure(mux.received(line)) == reason


@pytest.mark.parametrize(
    "line",
    [
        b"npm warn deprecated x",
        b"\xff\xfe",
        b'{"id":7,"result":{]}',
        b'{"method":"a","params":{"id":1},"x":\xff}',
        b'{"result":{"id":1},"x":',
        b"[" * 100_000,
        b"7",
        b'"text"',
        b"null",
        b"[]",
        b"{}",
        b"[" + b",".join([b'{"id":1,"result":{}}'] * 1001) + b"]",
        b'{"id":1}',
        b'{"method":7}',
        b'{"method":"x","params":[]}',
        b'{"method":"x","id":null}',
        b'{"method":"x","id":1.5}',
        b'{"method":"x","id":[1]}',
        b'{"method":"notifications/message","params":{"level":"loud","data":1}}',
        b'{"method":"notifications/message","params":{"level":"info"}}',
        b'{"method":"notifications/message","params":{"level":[],"data":1}}',
    ],
)
def test_other_junk_costs_only_itself(line: bytes) -> None:
    mux = multiplexer()
    id, _ = mux.request("ping", {})

    (event,) = mux.received(line)

    assert isinstance(event, Junk)
    assert len(event.text) <= 500
    assert mux.junk == 1
    assert outcome(mux.received(text(id=id, result={}))) == {}


def test_junk_is_shown_without_control_characters() -> None:
    assert multiplexer().received(b"\x1b[31mred\x1b[0m \x07bell") == (Junk("red bell"),)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (rb'{"a":"\ud83d\ude00"}', {"a": "😀"}),
        (rb'{"a":"\ud83d"}', {"a": "�"}),
        (rb'{"\ude00":"\ud83d\ud83d\ude00\ude00"}', {"�": "�😀�"}),
        (rb'{"a":"\\ud83d\ude00"}', {"a": "\\ud83d�"}),
        (rb'{"a":"\\ud83d"}', {"a": "\\ud83d"}),
        (b'\xef\xbb\xbf{"a":1}', {"a": 1}),
    ],
)
def test_what_is_decoded_can_be_encoded_again(line: bytes, expected: object) -> None:
    decoded = decode(line)

    assert decoded == expected
    json.dumps(decoded, ensure_ascii=False, allow_nan=False).encode()


def test_brackets_in_a_text_and_many_beside_each_other_are_no_nesting() -> None:
    for value in ("[" * 5000, [[]] * 5000, {str(n): {} for n in range(5000)}):
        assert decode(json.dumps(value).encode()) == value


@given(st.binary(max_size=60) | st.text(alphabet='\\ud83DcE0"{}[]:,1e9N', max_size=40).map(str.encode))
def test_decoding_raises_only_value_errors(line: bytes) -> None:
    try:
        decoded = decode(line)
    except ValueError:
        return
    json.dumps(decoded, ensure_ascii=False, allow_nan=False).encode()


# --- Metadata of requests


def test_an_older_downstream_gets_no_metadata_of_the_new_version() -> None:
    meta: JsonObject = {VERSION: MODERN, CLIENT: {}, CAPABILITIES: {}, LEVEL: "info", "intercom/call": "c", "own": 1}

    _, message = multiplexer().request("tools/call", {"name": "a", "_meta": meta}, agent=Agent())

    assert message["params"] == {"name": "a", "_meta": {"own": 1}}


def test_metadata_that_would_be_empty_is_left_out() -> None:
    _, message = multiplexer().request("tools/list", {"_meta": {"progressToken": "theirs"}})

    assert message["params"] == {}


def test_a_modern_downstream_gets_the_capabilities_of_the_agent_and_our_name() -> None:
    mux, agent = multiplexer(MODERN), Agent(capabilities={"elicitation": {"form": {}}})
    given: JsonObject = {"_meta": {VERSION: "1999", CAPABILITIES: {"sampling": {}}, LEVEL: "info", "own": 1}}

    _, message = mux.request("tools/call", given, agent=agent)

    sent = message["params"]["_meta"]  # type: ignore[index, call-overload]
    assert sent == {
        VERSION: MODERN,
        CAPABILITIES: {"elicitation": {"form": {}}},
        CLIENT: {"name": "agent-intercom", "version": sent[CLIENT]["version"]},
        LEVEL: "info",
        "own": 1,
    }
    assert given == {"_meta": {VERSION: "1999", CAPABILITIES: {"sampling": {}}, LEVEL: "info", "own": 1}}


# --- Progress and logs


def test_progress_comes_under_the_token_of_the_agent_until_the_answer() -> None:
    mux, agent = multiplexer(), Agent()
    id, message = mux.request("tools/call", {"_meta": {"progressToken": "theirs"}}, agent=agent, progress_token="t")
    assert message["params"] == {"_meta": {"progressToken": id}}

    found = mux.received(progress(progressToken=id, progress=1, total=2, message="half", more=[1]))

    params: JsonObject = {"progressToken": "t", "progress": 1, "total": 2, "message": "half", "more": [1]}
    assert found == (ToAgent(agent, "notifications/progress", params),)
    assert len(mux.received(progress(progressToken=str(id), progress=2.5))) == 1
    mux.received(text(id=id, result={}))
    assert mux.received(progress(progressToken=id, progress=3)) == ()


def test_progress_that_nobody_asked_for_is_dropped() -> None:
    mux = multiplexer()
    quiet, _ = mux.request("tools/call", {}, agent=Agent())
    nobodys, _ = mux.request("tools/list", {}, progress_token="t")

    for token in (quiet, nobodys, 99, True, "t", None, [1]):
        assert mux.received(progress(progressToken=token, progress=1)) == ()


@pytest.mark.parametrize(
    "params", [{}, {"progress": "1"}, {"progress": True}, {"progress": 1, "total": "2"}, {"progress": 1, "message": 7}]
)
def test_progress_that_would_break_a_client_is_junk(params: JsonObject) -> None:
    mux = multiplexer()
    id, _ = mux.request("tools/call", {}, agent=Agent(), progress_token=0)

    assert isinstance(mux.received(progress(progressToken=id, **params))[0], Junk)


def test_a_log_message_is_for_the_only_agent_with_a_request() -> None:
    mux, agent = multiplexer(), Agent("1")
    log: JsonObject = {"level": "info", "data": "x"}
    line = text(method="notifications/message", params=log)
    assert mux.received(line) == (Notified("notifications/message", log, None),)
    mux.request("tools/list", {})
    mux.request("tools/call", {}, agent=agent)
    mux.request("tools/call", {}, agent=agent)
    assert mux.received(line) == (ToAgent(agent, "notifications/message", log),)

    other = Agent("2")
    id, _ = mux.request("tools/call", {}, agent=other)

    assert mux.received(line) == (Notified("notifications/message", log, None),)
    assert mux.received(line, request=id) == (ToAgent(other, "notifications/message", log),)
    mux.received(text(id=id, result={}))
    assert mux.received(line) == (ToAgent(agent, "notifications/message", log),)


def test_a_message_goes_to_an_agent_by_one_of_its_running_requests() -> None:
    mux, ended, running = multiplexer(), Agent("1"), Agent("1")
    id, _ = mux.request("tools/call", {}, agent=ended)
    mux.request("tools/call", {}, agent=running)
    mux.received(text(id=id, result={}))

    (event,) = mux.received(text(id=1, method="roots/list"))

    assert isinstance(event, Ask)
    assert event.agent is running


# --- Requests that were given up


LOG_LINE = text(method="notifications/message", params={"level": "info", "data": "x"})
ROOTS = text(id="q", method="roots/list")


@define
class Clock:
    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def given_up(clock: Clock, *, failed: bool = False) -> tuple[Multiplexer, int]:
    """A request of agent 1 that was given up, while one of agent 2 runs."""
    mux = Multiplexer(clock)
    mux.speak(OLD)
    late, _ = mux.request("tools/call", {}, agent=Agent("1"))
    mux.request("tools/call", {}, agent=Agent("2"))
    if failed:
        mux.failed(late, Failure.TIMEOUT, "did not answer", was_sent=True)
    else:
        mux.forget(late)
    return mux, late


def hears(mux: Multiplexer) -> bool:
    """Whether the only agent with a request is asked and told."""
    (told,) = mux.received(LOG_LINE)
    asked = mux.received(ROOTS)
    if isinstance(asked[0], Ask):
        mux.refused("q", RpcError(-1, "no"))
    assert isinstance(told, ToAgent) == isinstance(asked[0], Ask)
    return isinstance(told, ToAgent)


@pytest.mark.parametrize("failed", [False, True])
def test_what_may_belong_to_a_request_that_was_given_up_reaches_no_other_agent(failed: bool) -> None:
    clock = Clock()
    mux, late = given_up(clock, failed=failed)
    (sent,) = mux.received(ROOTS)
    assert isinstance(sent, Send)
    assert "another agent's request was cancelled" in str(sent.message["error"])
    clock.seconds = LATE_SECONDS - 0.1
    assert not hears(mux)
    mux.received(text(id=late, result={}))
    assert hears(mux)
    assert mux.dropped_answers == 1


def test_a_request_that_was_given_up_counts_for_a_minute() -> None:
    clock = Clock()
    mux, _ = given_up(clock)
    clock.seconds = LATE_SECONDS
    assert hears(mux)


def test_a_downstream_that_has_read_the_cancellation_is_heard_again_after_seconds() -> None:
    clock = Clock()
    mux, late = given_up(clock)
    (ping,) = mux.ping_after(late)
    assert isinstance(ping, Send)
    assert ping.message["method"] == "ping"
    assert not hears(mux)
    mux.received(text(id=ping.message["id"], result={}))
    clock.seconds = CANCELLED_SECONDS - 0.1
    assert not hears(mux)
    clock.seconds = CANCELLED_SECONDS
    assert hears(mux)
    assert mux.waiting == 1


def test_one_that_goes_on_with_cancelled_requests_is_not_heard_so_soon() -> None:
    clock = Clock()
    mux, first = given_up(clock)
    (ping,) = mux.ping_after(first)
    assert isinstance(ping, Send)
    mux.received(text(id=ping.message["id"], result={}))
    mux.received(text(id=first, result={}))
    second, _ = mux.request("tools/call", {}, agent=Agent("1"))
    mux.forget(second)
    (ping,) = mux.ping_after(second)
    assert isinstance(ping, Send)
    mux.received(text(id=ping.message["id"], result={}))
    clock.seconds = LATE_SECONDS - 0.1
    assert not hears(mux)
    clock.seconds = LATE_SECONDS
    assert hears(mux)


def test_an_answer_that_crosses_with_the_cancellation_is_no_sign_of_that() -> None:
    clock = Clock()
    mux, first = given_up(clock)
    (ping,) = mux.ping_after(first)
    assert isinstance(ping, Send)
    mux.received(text(id=first, result={}))
    mux.received(text(id=ping.message["id"], result={}))
    second, _ = mux.request("tools/call", {}, agent=Agent("1"))
    mux.forget(second)
    (ping,) = mux.ping_after(second)
    assert isinstance(ping, Send)
    mux.received(text(id=ping.message["id"], result={}))
    clock.seconds = CANCELLED_SECONDS
    assert hears(mux)


def test_a_downstream_that_answers_no_ping_gets_only_some() -> None:
    mux = Multiplexer(Clock())
    mux.speak(OLD)
    sent = 0
    for _ in range(MOST_ASKS + 10):
        id, _ = mux.request("tools/call", {}, agent=Agent("1"))
        mux.forget(id)
        sent += len(mux.ping_after(id))
    assert sent == MOST_ASKS


def test_no_ping_follows_what_was_answered_or_never_sent_or_has_a_version_without_questions() -> None:
    mux, late = given_up(Clock())
    mux.received(text(id=late, result={}))
    assert not mux.ping_after(late)
    mux.speak(MODERN)
    late, _ = mux.request("tools/call", {}, agent=Agent("1"))
    mux.forget(late)
    assert not mux.ping_after(late)


def test_an_unreadable_answer_ends_a_request_that_was_given_up() -> None:
    mux, late = given_up(Clock())
    mux.received(b'{"jsonrpc": "2.0", "id": %d, "result": {"x": NaN}}' % late)
    assert hears(mux)


def test_an_answer_in_another_response_does_not_end_it() -> None:
    mux, late = given_up(Clock())
    mux.received(text(id=late, result={}), request=late + 1)
    assert not hears(mux)


def test_an_agent_hears_of_its_own_request_that_was_given_up() -> None:
    mux = Multiplexer(Clock())
    mux.speak(OLD)
    late, _ = mux.request("tools/call", {}, agent=Agent("1"))
    mux.request("tools/call", {}, agent=Agent("1"))
    mux.forget(late)
    assert hears(mux)


def test_a_request_that_was_never_sent_keeps_nobody_waiting() -> None:
    mux = Multiplexer(Clock())
    mux.speak(OLD)
    for failed in (False, True):
        id, _ = mux.request("tools/call", {}, agent=Agent("1"))
        if failed:
            mux.failed(id, Failure.TRANSPORT, "was lost", was_sent=False)
        else:
            mux.forget(id, was_sent=False)
    own, _ = mux.request("tools/list", {})
    mux.forget(own)
    mux.request("tools/call", {}, agent=Agent("2"))
    assert hears(mux)


def test_too_many_requests_that_were_given_up_keep_everybody_waiting() -> None:
    clock = Clock()
    mux = Multiplexer(clock)
    mux.speak(OLD)
    for _ in range(MOST_LATE + 1):
        late, _ = mux.request("tools/call", {}, agent=Agent("1"))
        mux.forget(late)
    for id in range(2, MOST_LATE + 2):
        mux.received(text(id=id, result={}))
    mux.request("tools/call", {}, agent=Agent("2"))
    assert not hears(mux)
    clock.seconds = LATE_SECONDS
    assert hears(mux)


# --- Requests of the downstream


def test_a_ping_is_answered() -> None:
    assert multiplexer().received(text(id="p", method="ping")) == (Send({"jsonrpc": "2.0", "id": "p", "result": {}}),)


def refusal(events: Sequence[Event]) -> tuple[object, object]:
    (event,) = events
    assert isinstance(event, Send)
    error = event.message["error"]
    assert isinstance(error, dict)
    return event.message["id"], error["code"]


def test_a_question_goes_to_the_only_agent_and_its_answer_back_under_the_same_id() -> None:
    mux, agent = multiplexer(), Agent()
    mux.request("tools/call", {}, agent=agent)
    asked: JsonObject = {"messages": [], "_meta": {"progressToken": 1, "x": 2}}

    found = mux.received(text(id=1, method="sampling/createMessage", params=asked))

    assert found == (Ask(1, "sampling/createMessage", {"messages": [], "_meta": {"x": 2}}, agent),)
    assert mux.replied(1, {"role": "assistant"}) == (
        Send({"jsonrpc": "2.0", "id": 1, "result": {"role": "assistant"}}),
    )
    assert mux.replied(1, {"role": "twice"}) == ()


def test_an_agents_error_goes_back() -> None:
    mux = multiplexer()
    mux.request("tools/call", {}, agent=Agent())
    mux.received(text(id="q", method="roots/list"))

    assert refusal(mux.refused("q", RpcError(-1, "user rejected"))) == ("q", -1)


def test_questions_that_no_agent_can_answer_are_refused() -> None:
    mux = multiplexer()
    roots = text(id=7, method="roots/list")
    assert refusal(mux.received(roots)) == (7, -32603)
    mux.request("tools/call", {}, agent=Agent("1", {}))
    assert refusal(mux.received(roots)) == (7, -32601)
    assert refusal(mux.received(text(id=8, method="tools/call"))) == (8, -32601)
    mux.request("tools/call", {}, agent=Agent("2"))
    assert refusal(mux.received(roots)) == (7, -32603)
    own, _ = mux.request("tools/list", {})
    assert refusal(mux.received(roots, request=own)) == (7, -32603)
    assert refusal(mux.received(roots, request=99)) == (7, -32603)


def test_a_question_in_the_response_to_a_request_goes_to_its_agent() -> None:
    mux, second = multiplexer(), Agent("2")
    mux.request("tools/call", {}, agent=Agent("1"))
    id, _ = mux.request("tools/call", {}, agent=second)

    assert mux.received(text(id=0, method="roots/list"), request=id) == (Ask(0, "roots/list", {}, second),)


def test_an_address_or_a_form_is_only_shown_by_clients_that_can() -> None:
    address, form = {"mode": "url", "url": "https://example.com"}, {"message": "Name?"}
    for capability, can in (
        ({}, (False, True)),
        ({"form": {}}, (False, True)),
        ({"url": {}}, (True, False)),
        ({"form": {}, "url": {}}, (True, True)),
        ({"newer": {}}, (False, True)),
    ):
        for params, expected in zip((address, form), can, strict=True):
            mux = multiplexer()
            mux.request("tools/call", {}, agent=Agent(capabilities={"elicitation": capability}))
            sent = mux.received(text(id=1, method="elicitation/create", params=params))[0]
            assert isinstance(sent, Ask if expected else Send), (capability, params)


def test_the_new_version_has_no_questions() -> None:
    mux = multiplexer(MODERN)
    mux.request("tools/call", {}, agent=Agent())

    assert refusal(mux.received(text(id=1, method="roots/list"))) == (1, -32601)


def test_an_id_that_is_in_use_is_not_taken_twice_but_its_text_is_another() -> None:
    mux = multiplexer()
    mux.request("tools/call", {}, agent=Agent())
    line = text(id=1, method="roots/list")
    mux.received(line)

    assert mux.received(line) == ()
    assert isinstance(mux.received(text(id="1", method="roots/list"))[0], Ask)
    assert refusal(mux.refused("1", RpcError(-1, ""))) == ("1", -1)
    assert len(mux.replied(1, {})) == 1


def test_too_many_questions_are_refused() -> None:
    mux = multiplexer()
    mux.request("tools/call", {}, agent=Agent())
    for id in range(MOST_ASKS):
        assert isinstance(mux.received(text(id=id, method="roots/list"))[0], Ask)

    assert refusal(mux.received(text(id="more", method="roots/list"))) == ("more", -32000)


def test_a_question_ends_when_the_downstream_cancels_it() -> None:
    mux = multiplexer()
    mux.request("tools/call", {}, agent=Agent())
    mux.received(text(id="q", method="roots/list"))
    cancel = text(method="notifications/cancelled", params={"requestId": "q"})

    assert mux.received(cancel) == (AskEnded("q"),)
    assert mux.received(cancel) == ()
    assert mux.replied("q", {}) == ()
    for other in (1, None, [], {}):
        assert mux.received(text(method="notifications/cancelled", params={"requestId": other})) == ()


def test_a_question_ends_with_the_last_request_that_it_can_belong_to() -> None:
    mux, agent = multiplexer(), Agent()
    first, second = (mux.request("tools/call", {}, agent=agent)[0] for _ in range(2))
    mux.received(text(id="q", method="roots/list"))
    assert len(mux.received(text(id=first, result={}))) == 1

    answered, ended, refused = mux.received(text(id=second, result={}))

    assert (answered, ended) == (Answered(second, {}), AskEnded("q"))
    assert refusal([refused]) == ("q", -32000)
    third, _ = mux.request("tools/call", {}, agent=agent)
    mux.request("tools/call", {}, agent=agent)
    mux.received(text(id="r", method="roots/list"), request=third)
    assert mux.forget(third)[0] == AskEnded("r")


def test_a_cancellation_names_our_id() -> None:
    assert cancellation(7)["params"] == {"requestId": 7}


# --- Everything at once

IDS = st.integers(-1, 12) | st.sampled_from(["1", "2", "s", None, True, 1.0, 2.5, "", [], {}])
METHODS = st.sampled_from(
    [
        *("ping", "roots/list", "sampling/createMessage", "x", "notifications/progress", "notifications/cancelled"),
        *("notifications/message", "notifications/elicitation/complete", 7, None, []),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3) | st.floats(allow_nan=False, width=16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
PARAMS = VALUES | st.fixed_dictionaries({}, optional={"requestId": IDS, "progressToken": IDS, "progress": VALUES})
MESSAGES = st.fixed_dictionaries(
    {}, optional={"id": IDS, "method": METHODS, "params": PARAMS, "result": VALUES, "error": VALUES}
)
LINES = (MESSAGES | st.lists(MESSAGES | VALUES, max_size=3)).map(lambda each: json.dumps(each).encode())


class Hostile(RuleBasedStateMachine):
    """Whatever a downstream sends, each request is answered at most once, and each question at most once."""

    def __init__(self) -> None:
        super().__init__()
        self.mux = multiplexer()
        self.open: set[int] = set()
        self.asked: set[object] = set()
        self.agents = [Agent("1"), Agent("2", {}), None]

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Answered(id, _):
                    self.open.remove(id)
                case Ask(key, _, _, agent):
                    assert key not in self.asked
                    assert agent is self.agents[0]
                    self.asked.add(key)
                case AskEnded(key):
                    self.asked.remove(key)
                case Send(message):
                    json.dumps(message)
                case _:
                    pass

    @rule(agent=st.integers(0, 2), token=st.none() | st.just("t"))
    def request(self, agent: int, token: str | None) -> None:
        id, _ = self.mux.request("tools/call", {}, agent=self.agents[agent], progress_token=token)
        assert id not in self.open
        self.open.add(id)

    @rule(line=LINES | st.binary(max_size=30), request=st.none() | st.integers(1, 12))
    def receive(self, line: bytes, request: int | None) -> None:
        self.take(self.mux.received(line, request))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.open)))
        self.take(self.mux.received(text(id=id, result={})))
        assert id not in self.open

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.open)))
        self.open.remove(id)
        self.take(self.mux.forget(id))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def reply(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.asked, key=repr)))
        self.asked.remove(key)
        assert len(self.mux.replied(key, {})) == 1  # type: ignore[arg-type]

    @rule()
    def lose(self) -> None:
        self.take(self.mux.lost("the process exited with status 1"))
        assert not self.open
        assert not self.asked

    @invariant()
    def nothing_is_forgotten(self) -> None:
        assert self.mux.waiting == len(self.open)


TestHostile = Hostile.TestCase
