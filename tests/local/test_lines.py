"""Cutting bytes into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.local.wire import LineBuffer, LineTooLong, decode, encode


def take(buffer: LineBuffer) -> list[bytes | None]:
    """Every line there is; None stands for one that was too long."""
    lines: list[bytes | None] = []
    while True:
        try:
            line = buffer.next_line()
        except LineTooLong:
            lines.append(None)
            continue
        if line is None:
            return lines
        lines.append(line)


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"."))), st.lists(st.integers(1, 9)))
def test_lines_come_out_alike_however_they_are_cut_up(lines: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    whole = [None if len(line) > 8 else line.removesuffix(b"\r") for line in lines]
    expected = [line for line in whole if line is None or line.strip(b" \t\r\v\f")]
    buffer = LineBuffer(8)
    found: list[bytes | None] = []
    for cut in [*cuts, len(stream) + 1]:
        piece, stream = stream[:cut], stream[cut:]
        buffer.feed(piece)
        found += take(buffer)
    assert found == expected
    assert buffer.partial == b""


def test_a_long_line_is_told_before_it_ends_and_not_kept() -> None:
    buffer = LineBuffer(4)
    buffer.feed(b"12345")
    assert take(buffer) == [None]
    buffer.feed(b"67890")
    assert take(buffer) == []
    assert buffer.partial == b""
    buffer.feed(b"1\nok\nrest")
    assert take(buffer) == [b"ok"]
    assert buffer.partial == b"rest"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_what_json_can_not_carry_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        encode([value])


@pytest.mark.parametrize("line", [b"", b"{", b"NaN", b"[Infinity]", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


def test_a_line_is_utf8_and_one_line() -> None:
    assert encode({"a": "é\n"}) == '{"a":"é\\n"}\n'.encode()
    assert decode(encode({"a": "é\n"})) == {"a": "é\n"}
