"""What is kept of streams has its limits, and is given up with the session."""

from __future__ import annotations

import mcp_types as types

from intercom.agents.http import events
from intercom.agents.http.events import EventLog, Room


def message(size: int) -> types.JSONRPCNotification:
    return types.JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params={"data": "x" * size})


def log(room: Room) -> EventLog:
    return EventLog(room, lambda number, stream: None)


def test_where_all_is_too_much_the_log_without_news_gives_way() -> None:
    room = Room(most=30_000)
    quiet, busy = log(room), log(room)
    for _ in range(2):
        quiet.add("1", message(10_000))
    busy.add("1", message(10_000))
    assert (len(quiet), len(busy)) == (1, 1)
    busy.add("1", message(10_000))
    assert (len(quiet), len(busy)) == (0, 2)
    assert room.taken <= room.most
    # The newest is there in any case.
    busy.add("1", message(40_000))
    assert len(busy) == 1
    quiet.add("1", message(1_000))
    assert (len(quiet), len(busy)) == (1, 0)


def test_one_log_keeps_so_many_events() -> None:
    room = Room()
    one = log(room)
    for _ in range(events.MOST_EVENTS + 10):
        one.add("1", None)
    assert len(one) == events.MOST_EVENTS
    assert room.taken == 64 * events.MOST_EVENTS


def test_of_a_session_that_is_over_nothing_is_kept() -> None:
    room = Room()
    over = log(room)
    over.add("1", message(1_000))
    over.clear()
    assert over.add("1", message(1_000)) == "2"
    assert (room.taken, room.logs, len(over)) == (0, {}, 0)
