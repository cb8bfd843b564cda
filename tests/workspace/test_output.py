"""What a command wrote: kept within the limit, plain, and cut between lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.workspace.command_runner import Output, plain


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x07 on", "link on"),
        (b"\x1b]0;title\x07rest", "rest"),
        (b"\x1b(Bascii\x1b7\x1b=", "ascii"),
        (b"10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        (b"a\x08\x07b\tc", "ab\tc"),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        ("a\u202eb".encode(), "ab"),
    ],
)
def test_text_is_plain(data: bytes, text: str) -> None:
    assert plain(data) == text


def test_little_is_kept_whole() -> None:
    output = Output(10)
    output.add(b"12345")
    output.add(b"67890")
    assert output.text() == "1234567890"
    assert not output.is_cut


def test_of_much_the_beginning_and_the_end_are_kept_in_whole_lines() -> None:
    output = Output(40)
    for i in range(1000):
        output.add(b"line %d\n" % i)
    text = output.text()
    assert text.startswith("line 0\nline 1\n… ")
    assert text.endswith(" bytes left out …\nline 998\nline 999\n")
    assert output.is_cut
    assert output.total == 8890


def test_a_line_without_its_end_waits() -> None:
    output = Output(1000)
    output.add(b"whole\ntoken=abc")
    assert output.text(whole_lines=True) == "whole\n"
    assert output.text() == "whole\ntoken=abc"


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 100))
def test_never_more_than_the_limit_is_held_and_what_is_left_out_is_counted(pieces: list[bytes], limit: int) -> None:
    output = Output(limit)
    for piece in pieces:
        output.add(piece)
    whole = b"".join(pieces)
    assert output.total == len(whole)
    assert len(output._head) + len(output._tail) <= 3 * limit + 50
    if not output.is_cut:
        assert output.text() == plain(whole)
    else:
        assert "bytes left out" in output.text()
