"""Nothing an agent wrote can act on the terminal."""

from __future__ import annotations

import io
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.cli.ctl_text import agreed, clean, count, done_line, one_line
from tests.operators.ctl_server import environ
from tests.support.terminal import on_terminal


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("plain text\n\tof two lines", "plain text\n\tof two lines"),
        ("grün 日本 👍", "grün 日本 👍"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwrite\x08\x7f", "over\\x0dwrite\\x08\\x7f"),
        ("\x9b31m", "\\x9b31m"),
        ("ad\u202emin", "ad<U+202E>min"),
        ("hid\u200bden\ufeff", "hid<U+200B>den<U+FEFF>"),
        ("line\u2028end", "line<U+2028>end"),
        ("\ud800", "<U+D800>"),
    ],
)
def test_what_a_terminal_would_act_on_is_shown_as_its_code(written: str, shown: str) -> None:
    assert clean(written) == shown


@given(st.text(st.characters()))
def test_nothing_but_line_feeds_and_tabs_is_left_to_act(text: str) -> None:
    for character in clean(text):
        assert character in "\n\t" or unicodedata.category(character)[0] != "C"
    assert not set(one_line(text)) & {"\n", "\t"}
    clean(text).encode()


#: They have a shape by their category, and none on a screen: variation selectors, fillers, the blank braille cell.
SHAPELESS = "".join(map(chr, [*range(0xFE00, 0xFE10), *range(0x180B, 0x1810), *range(0xE0100, 0xE01F0)]))
SHAPELESS += "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"


@given(st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters=SHAPELESS)))
def test_what_is_visible_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ({"previous_mode": "local", "current_mode": "hybrid"}, "mode: local -> hybrid"),
        ({"request_id": "r-1", "session_id": "s", "status": "approved"}, "approved r-1"),
        ({"session_id": "s-1", "status": "resumed"}, "resumed s-1"),
        ({"request_id": "a", "status": "nudged", "note": "not\x1b delivered"}, "nudged a: not\\x1b delivered"),
    ],
)
def test_what_was_done_is_one_line(data: dict[str, str], line: str) -> None:
    assert done_line(data) == line


@pytest.mark.parametrize(
    ("number", "says"), [(0, "0 files, 0 replies"), (1, "1 file, 1 reply"), (2, "2 files, 2 replies")]
)
def test_one_is_counted_in_the_singular(number: int, says: str) -> None:
    assert f"{count(number, 'file')}, {count(number, 'reply', 'replies')}" == says


def test_on_a_terminal_what_was_done_ends_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    line = done_line({"request_id": "r-1", "status": "approved", "note": "the agent applies the change " * 3})
    assert max(map(len, line.split("\n"))) <= 40
    assert line.split()[:3] == ["approved", "r-1:", "the"]
    assert line.split()[-1] == "change"


@pytest.mark.parametrize(
    ("typed", "is_yes"),
    [
        ("y", True),
        ("YES", True),
        ("n", False),
        ("no", False),
        ("", False),
        ("ja\ny", False),
    ],
)
def test_only_yes_is_a_yes(
    typed: str, is_yes: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{typed}\n"))
    assert agreed("go on?") is is_yes
    assert capsys.readouterr().out.count("[y/N]") == 1


@pytest.mark.real_time
@pytest.mark.parametrize(("then", "is_yes"), [("y", True), ("n", False), ("ja", False)])
async def test_on_a_terminal_an_answer_that_is_neither_yes_nor_no_is_asked_about_once_more(
    tmp_path: Path, then: str, is_yes: bool
) -> None:
    code = "from intercom.cli.ctl_text import agreed; raise SystemExit(agreed('go on?'))"
    async with on_terminal([sys.executable, "-c", code], environ(tmp_path)) as screen:
        await screen.until("go on? [y/N]")
        # What is typed at once behind the first answer was not meant for the second question.
        screen.type("ja\ny\n")
        await screen.until("type y or n [y/N]")
        screen.type(f"{then}\n")
        assert await screen.ended() == is_yes
