"""What is kept of streams has its limits, and is given up with the session."""

from __future__ import annotations

from itertools import count

import mcp_types as types
import trio
from mcp.server.streamable_http import EventMessage

from intercom.agents.http import http_sessions
from intercom.agents.http.http_sessions import LogMemory, SessionEvents, SessionLog


def message(size: int) -> types.JSONRPCNotification:
    return types.JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": "x" * size})


def log(memory: LogMemory) -> SessionLog:
    return SessionLog(memory, lambda number, stream: None)


def test_where_all_is_too_much_the_log_without_news_gives_way() -> None:
    memory = LogMemory(most=30_000)
    quiet, busy = log(memory), log(memory)
    for _ in range(2):
        quiet.add("1", message(10_000))
    busy.add("1", message(10_000))
    assert (len(quiet), len(busy)) == (1, 1)
    busy.add("1", message(10_000))
    assert (len(quiet), len(busy)) == (0, 2)
    assert memory.taken <= memory.most
    # The newest is there in any case.
    busy.add("1", message(40_000))
    assert len(busy) == 1
    quiet.add("1", message(1_000))
    assert (len(quiet), len(busy)) == (1, 0)


def test_one_log_keeps_so_many_events() -> None:
    memory = LogMemory()
    one = log(memory)
    for _ in range(http_sessions.MOST_EVENTS + 10):
        one.add("1", None)
    assert len(one) == http_sessions.MOST_EVENTS
    assert memory.taken == 64 * http_sessions.MOST_EVENTS


def test_a_log_keeps_the_streams_that_were_answered_last() -> None:
    memory, times = LogMemory(), count(step=http_sessions.RESUME_SECONDS + 1)
    one = SessionLog(memory, lambda number, stream: None, now=lambda: next(times))
    one.add("open", None)
    for number in range(http_sessions.MOST_ANSWERED + 3):
        one.add(str(number), message(10))
        one.add(str(number), types.JSONRPCResponse(jsonrpc="2.0", id=number, result={}))
    # A client may give an id again: what belongs to its new request stays.
    one.add("3", message(10))
    one.add("last", types.JSONRPCResponse(jsonrpc="2.0", id="last", result={}))
    told = [(event.number, event.stream) for event in one._events]
    kept = [str(number) for number in range(4, http_sessions.MOST_ANSWERED + 3)]
    assert told[0] == (1, "open")
    assert [stream for _, stream in told[-2:]] == ["3", "last"]
    assert [stream for _, stream in told[1:-2:2]] == kept
    assert memory.taken == sum(event.size for event in one._events)
    assert one.after("2") is None
    assert one.after("1") == ("open", ())


def test_answers_that_can_still_be_resumed_stay_however_many() -> None:
    one = log(LogMemory())
    for number in range(2 * http_sessions.MOST_ANSWERED):
        one.add(str(number), types.JSONRPCResponse(jsonrpc="2.0", id=number, result={}))
    assert len(one) == 2 * http_sessions.MOST_ANSWERED


def test_what_is_kept_is_what_was_said() -> None:
    came: list[EventMessage] = []

    async def send(event: EventMessage) -> None:
        came.append(event)

    said = [
        message(10),
        types.JSONRPCResponse(jsonrpc="2.0", id="a", result={"content": [{"type": "text", "text": "\u00e9\u4e2d"}]}),
        types.JSONRPCError(jsonrpc="2.0", id=2, error=types.ErrorData(code=-32603, message="no", data={"why": None})),
        types.JSONRPCRequest(jsonrpc="2.0", id=3, method="ping"),
    ]

    async def tell() -> None:
        http_sessions.current_log.set(log(LogMemory()))
        first = await SessionEvents().store_event("1", None)
        for each in said:
            await SessionEvents().store_event("1", each)
        await SessionEvents().store_event("2", message(1))
        assert await SessionEvents().replay_events_after(first, send) == "1"

    trio.run(tell)
    assert [each.message for each in came] == said
    assert [each.message.model_fields_set for each in came] == [each.model_fields_set for each in said]
    assert [each.event_id for each in came] == ["2", "3", "4", "5"]


def test_what_can_not_be_written_takes_nothing_else_with_it() -> None:
    one = log(LogMemory())
    one.add("1", message(1))
    one.add("1", types.JSONRPCNotification(jsonrpc="2.0", method="a", params={"data": "\ud800"}))
    one.add("1", message(2))
    found = one.after("1")
    assert [event.data is None for event in found[1]] == [True, False]


def test_of_a_session_that_is_over_nothing_is_kept() -> None:
    memory = LogMemory()
    over = log(memory)
    over.add("1", message(1_000))
    over.clear()
    assert over.add("1", message(1_000)) == "2"
    assert (memory.taken, memory.logs, len(over)) == (0, {}, 0)
