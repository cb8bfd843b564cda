"""The stream of events: nothing is lost, nothing comes twice, and a slow reader takes no memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import trio
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from intercom.model.card import Card, CardState, Notice
from intercom.operators.web.events import COMMENT_SECONDS, EventLog, stream
from tests.operators.stand_in_service import START, card


@define
class Reader:
    """A page: applies what it gets as the page does, and remembers the last id."""

    cards: dict[str, str] = field(factory=dict)
    notices: list[str] = field(factory=list)
    last: str | None = None
    names: list[str] = field(factory=list)
    comments: int = 0
    is_ready: trio.Event = field(factory=trio.Event)

    async def take(self, part: bytes) -> None:
        for event in filter(None, part.decode("ascii").split("\n\n")):
            if event.startswith(":"):
                self.comments += 1
                continue
            fields: dict[str, str] = dict(line.split(": ", 1) for line in event.split("\n"))
            self._apply(fields["event"], json.loads(fields["data"]))
            self.last = fields.get("id", self.last)
        await trio.lowlevel.checkpoint()

    def _apply(self, name: str, data: dict[str, Any]) -> None:
        self.names.append(name)
        match name:
            case "reset":
                self.cards.clear()
            case "card" if data["status"] == "pending":
                self.cards[data["request_id"]] = data["title"]
            case "card":
                self.cards.pop(data["request_id"], None)
            case "notice":
                self.notices.append(data["text"])
            case "ready":
                self.is_ready.set()


async def read(log: EventLog, shown: Sequence[Card], reader: Reader, *, is_signed_in: bool = True) -> None:
    """Read until nothing more is there."""
    with trio.move_on_after(COMMENT_SECONDS / 2):
        await stream(log, lambda: shown, reader.last, reader.take, lambda: is_signed_in)


async def test_a_reader_begins_with_the_open_cards_and_goes_on_with_what_comes() -> None:
    log, reader = EventLog(), Reader()
    log.publish(card("old"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, log, [card("old")], reader)
        await reader.is_ready.wait()
        assert reader.names == ["reset", "card", "ready"]
        assert reader.last == f"{log.epoch}-1"
        log.publish(card("new"))
        log.publish(Notice("look", "info", START))
    assert (set(reader.cards), reader.notices) == ({"old", "new"}, ["look"])
    assert reader.last == f"{log.epoch}-3"


async def test_a_quiet_stream_sends_a_comment_every_fifteen_seconds() -> None:
    log, reader = EventLog(), Reader()
    with trio.move_on_after(3.5 * COMMENT_SECONDS):
        await stream(log, list, None, reader.take, lambda: True)
    assert reader.comments == 3


async def test_a_thousand_events_later_a_reader_resumes_without_a_reset() -> None:
    log, reader = EventLog(), Reader()
    await read(log, [], reader)
    for number in range(1000):
        log.publish(Notice(str(number), "info", START))
    await read(log, [], reader)
    assert reader.names.count("reset") == 1
    assert reader.notices == [str(number) for number in range(1000)]


@pytest.mark.parametrize(
    "last",
    [None, "", "7", "no-place", "-1", f"{'0' * 32}-1", "{epoch}-", "{epoch}-2", "{epoch}-01x", "{epoch}-" + "9" * 40],
)
async def test_a_place_that_is_none_of_this_run_begins_again(last: str | None) -> None:
    log = EventLog()
    log.publish(Notice("one", "info", START))
    reader = Reader(last=None if last is None else last.format(epoch=log.epoch))
    await read(log, [card("c")], reader)
    assert reader.names == ["reset", "card", "ready"]


async def test_a_restarted_listener_has_another_epoch() -> None:
    before, after = EventLog(), EventLog()
    reader = Reader()
    await read(before, [card("gone")], reader)
    after.publish(card("here"))
    await read(after, [card("here")], reader)
    assert set(reader.cards) == {"here"}


async def test_a_reader_that_falls_behind_is_cut_off_and_begins_again() -> None:
    log, reader = EventLog(most=5), Reader()
    proceed = trio.Event()

    async def slow(part: bytes) -> None:
        await reader.take(part)
        if reader.names.count("notice") == 1:
            await proceed.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream, log, list, None, slow, lambda: True)
        await reader.is_ready.wait()
        log.publish(Notice("0", "info", START))
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 10):
            log.publish(Notice(str(number), "info", START))
        # The stream returns by itself: nothing was kept for this reader.
        proceed.set()
    assert reader.notices == ["0"]
    await read(log, [card("c")], reader)
    assert reader.names[-3:] == ["reset", "card", "ready"]


async def test_large_cards_do_not_fill_the_memory() -> None:
    log = EventLog(most_bytes=300_000)
    for number in range(50):
        log.publish(card(str(number), diff="x" * 100_000, state=CardState.REJECTED))
    assert sum(len(each.line) for each in log.since(log.last - 2) or []) < 300_000
    assert log.since(log.last - 3) is None
    # An event alone is kept, however large it is.
    log.publish(card("huge", diff="x" * 120_000))
    small = EventLog(most_bytes=10)
    small.publish(card("huge"))
    assert len(small.since(0) or []) == 1


async def test_a_reader_who_signs_out_gets_nothing_more() -> None:
    log, reader, lasts = EventLog(), Reader(), True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream, log, list, None, reader.take, lambda: lasts)
        await reader.is_ready.wait()
        lasts = False
        log.publish(card("secret"))
    assert reader.names == ["reset", "ready"]


@given(data=st.data(), most=st.integers(1, 12))
def test_however_often_it_is_cut_off_a_reader_knows_what_is_open(data: st.DataObject, most: int) -> None:
    async def run() -> None:
        log, reader = EventLog(most=most), Reader()
        shown: dict[str, Card] = {}
        for _ in range(data.draw(st.integers(1, 6))):
            for _ in range(data.draw(st.integers(0, 15))):
                name = data.draw(st.sampled_from("abcdef"))
                title = f"{name} {log.last}"
                if name in shown and data.draw(st.booleans()):
                    log.publish(evolve(shown.pop(name), state=CardState.APPROVED))
                else:
                    shown[name] = card(name, title=title, expires_at=START + timedelta(hours=1))
                    log.publish(shown[name])
            with trio.move_on_after(data.draw(st.sampled_from([0, 5]))):
                await stream(log, lambda: list(shown.values()), reader.last, reader.take, lambda: True)
        await read(log, list(shown.values()), reader)
        assert reader.cards == {name: each.title for name, each in shown.items()}

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
