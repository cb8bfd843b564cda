"""Reading server-sent events: by examples of the standard, and in any chunks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.gateway.event_stream import LONGEST_ID, Event, EventReader, EventTooLong

SEVERAL = (
    b"\xef\xbb\xbf: hello\r\ndata: one\r\rid: 7\ndata:two\r\ndata: three\nevent: other\n\n"
    b"retry: 250\nid\ndata: four\r\n\r\ndata: cut"
)


def read(stream: bytes, longest: int = 10_000) -> list[Event]:
    return EventReader(longest).feed(stream)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [Event(b"message", b"a")]),
        (b"data:a\ndata: b\n\n", [Event(b"message", b"a\nb")]),
        (b"event: endpoint\ndata: /m\r\n\r\n", [Event(b"endpoint", b"/m")]),
        (b"data: a\r\rdata: b\r\r", [Event(b"message", b"a"), Event(b"message", b"b")]),
        (b"event: x\n\ndata: a\n\n", [Event(b"message", b"a")]),
        (b"data\n\ndata:\n\n: c\n\n\n", []),
        (b"data: a\n", []),
        (b"datax: a\nother\ndata:  b\n\n", [Event(b"message", b" b")]),
        (b"data: \xff\n\n", [Event(b"message", b"\xff")]),
        (b"data: \x0b\x1c\xc2\x85\n\n", [Event(b"message", b"\x0b\x1c\xc2\x85")]),
    ],
)
def test_a_stream_has_these_events(stream: bytes, events: list[Event]) -> None:
    assert read(stream) == events


@given(cuts=st.lists(st.integers(0, len(SEVERAL)), max_size=20))
def test_chunks_make_no_difference(cuts: list[int]) -> None:
    reader = EventReader(1000)
    bounds = [0, *sorted(cuts), len(SEVERAL)]
    found = [event for a, b in pairwise(bounds) for event in reader.feed(SEVERAL[a:b])]
    assert found == [Event(b"message", b"one"), Event(b"other", b"two\nthree"), Event(b"message", b"four")]
    assert (reader.last_id, reader.retry_seconds, reader.count) == (None, 0.25, 3)


def test_the_last_id_is_that_of_the_latest_whole_event() -> None:
    reader = EventReader(1000)
    reader.feed(b"id: 1\ndata:\n\nid: 2\ndata: a\n")
    assert reader.last_id == "1"
    reader.restart()
    assert reader.last_id == "1"
    reader.feed(b"data: b\n\n")
    assert reader.last_id == "1"


@pytest.mark.parametrize("id", [b"a\0b", b"\xc3\xa9", b"x" * (LONGEST_ID + 1)])
def test_an_id_that_no_header_can_have_is_ignored(id: bytes) -> None:
    reader = EventReader(10_000)
    reader.feed(b"id: 1\ndata: a\n\nid: " + id + b"\ndata: b\n\n")
    assert reader.last_id == "1"


@pytest.mark.parametrize("retry", [b"-1", b"1.5", b"x", b"9" * 12, "²".encode()])
def test_a_retry_that_is_no_number_is_ignored(retry: bytes) -> None:
    reader = EventReader(1000)
    reader.feed(b"retry: " + retry + b"\n\n")
    assert reader.retry_seconds is None


@pytest.mark.parametrize("endless", [b"data: aaaaaaaa", b"data: a\n", b": comment", b"x"])
def test_an_event_has_a_limit(endless: bytes) -> None:
    reader = EventReader(100)

    def feed() -> None:
        for _ in range(101):
            reader.feed(endless)

    with pytest.raises(EventTooLong):
        feed()


def test_many_events_have_no_limit_together() -> None:
    reader = EventReader(100)
    assert sum(len(reader.feed(b"data: 12345678\n\n")) for _ in range(1000)) == 1000


def test_a_long_event_in_small_chunks_takes_linear_time() -> None:
    reader = EventReader(10_000_000)
    reader.feed(b"data: ")
    for _ in range(200_000):
        assert reader.feed(b"0123456789") == []
    [event] = reader.feed(b"\n\n")
    assert len(event.data) == 2_000_000
