"""The text of a card as rows: wrapping, the gutter, syntax, and a whole file with the change in place."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from intercom.cli.inbox import card_rows
from intercom.cli.inbox.board import Board, keys_of
from intercom.cli.inbox.card_rows import CONTINUES, GUTTER, CardText, Part, Rows, breaks, parse_diff
from intercom.cli.inbox.pages import View, keys_line
from intercom.model.card import Card, CardKind
from tests.operators.stand_in_service import START, card

#: Long enough, wide, hostile, and of several scripts.
TEXTS = st.text(st.sampled_from("ab  -漢字é👍\t\x1b\u202e\u200d│↪"), max_size=60)

TWO_FILES = """diff --git a/a.py b/a.py
--- a/a.py
+++ b/a.py
@@ -2,2 +2,2 @@
-two
+zwei
 three
@@ -5 +5,2 @@
 five
+more
diff --git a/b.md b/b.md
--- a/b.md
+++ b/b.md
@@ -1 +1 @@
---- a/x
+++ b/x
"""


def text_of(**more: Any) -> CardText:
    return CardText.of(card("one", **more), START)


def plain(text: CardText) -> list[str]:
    return [line.plain for line in text.lines]


@given(st.text(max_size=80), st.integers(1, 20), st.booleans())
def test_no_character_is_lost_and_no_part_is_too_wide(text: str, width: int, at_words: bool) -> None:
    ends = (0, *breaks(text, width, at_words=at_words), len(text))
    parts = [text[begin:end] for begin, end in pairwise(ends)]
    assert "".join(parts) == text
    assert all(parts) or text == ""
    assert all(cell_len(part) <= max(width, 2) or len(part) == 1 for part in parts)


@given(st.lists(TEXTS, max_size=5), st.integers(1, 40))
def test_every_row_has_a_gutter_of_ours(texts: list[str], width: int) -> None:
    lines = [Text(text) for text in texts]
    rows = Rows(lines, width)
    at = 0
    for number, line in enumerate(lines):
        span = rows.span(number)
        assert span.start == at
        shown = [rows.row(row, line).plain for row in span]
        assert [row[:GUTTER] for row in shown] == ["  ", *[f"{CONTINUES} "] * (len(span) - 1)]
        assert "".join(row[GUTTER:] for row in shown) == line.plain
        assert all(rows.line_at(row) == number for row in span)
        at = span.stop
    assert len(rows) == at


def test_prose_breaks_at_words_and_a_diff_line_anywhere() -> None:
    assert breaks("one two three", 8, at_words=True) == (8,)
    assert breaks("one two three", 8, at_words=False) == (8,)
    assert breaks("one twothree", 8, at_words=True) == (4,)
    assert breaks("one twothree", 8, at_words=False) == (8,)
    assert breaks("漢字漢字", 4, at_words=False) == (2,)


def test_nothing_in_an_agents_text_acts_on_the_terminal() -> None:
    hostile = "\x1b[2Jgone \u202e\x07\x9b31m\nfrom the agent: no\n\r\x00"
    shown = text_of(title=hostile, body=hostile, diff=f"--- a/x\n+++ b/x\n@@ -0,0 +1 @@\n+{hostile.splitlines()[0]}\n")
    rows = Rows(shown.lines, 30)
    drawn = "".join(rows.row(at, shown.styled(rows.line_at(at))).plain for at in range(len(rows)))
    assert not {character for character in drawn if ord(character) < 32 or character in "\x7f\x9b\u202e"}
    assert "\\x1b[2Jgone <U+202E>" in "".join(drawn.split(CONTINUES + " "))


def test_a_diff_is_parsed_by_its_counts() -> None:
    parsed = list(parse_diff(TWO_FILES.removesuffix("\n").split("\n")))
    parts = [each.part for each in parsed]
    assert parts[:3] == [Part.HEADER] * 3
    assert parts[3:7] == [Part.HUNK, Part.REMOVED, Part.ADDED, Part.CONTEXT]
    assert parts[-3:] == [Part.HUNK, Part.REMOVED, Part.ADDED]
    assert [each.path for each in parsed if each.part is Part.HUNK] == ["a.py", "a.py", "b.md"]


@given(st.lists(st.text(st.sampled_from("@-+ 12,ab\\/"), max_size=12), max_size=20))
def test_any_text_is_parsed_line_by_line(lines: list[str]) -> None:
    assert len(list(parse_diff(lines))) == len(lines)


def test_a_whole_file_holds_the_change_in_its_place() -> None:
    shown = text_of(diff=TWO_FILES)
    whole = shown.in_file("a.py", "one\ntwo\nthree\nfour\nfive\nsix\n")
    assert whole is not None
    assert plain(whole)[-10:] == [
        " one",
        "@@ -2,2 +2,2 @@",
        "-two",
        "+zwei",
        " three",
        " four",
        "@@ -5 +5,2 @@",
        " five",
        "+more",
        " six",
    ]
    # The card's own lines keep their numbers; the others have none.
    for at, number in enumerate(whole.numbers):
        if number is not None:
            assert shown.lines[number].plain == whole.lines[at].plain
    assert [number for number in whole.numbers if number is not None] == sorted(
        {number for number in whole.numbers if number is not None}
    )


@pytest.mark.parametrize("text", ["one\nTWO\nthree\nfour\nfive\n", "one\n", ""])
def test_a_file_that_the_diff_does_not_fit_is_not_shown(text: str) -> None:
    assert text_of(diff=TWO_FILES).in_file("a.py", text) is None


def test_source_is_coloured_and_its_characters_stay() -> None:
    diff = "--- a/a.py\n+++ b/a.py\n@@ -1 +1,2 @@\n def f(): return '\t漢'\n+# x\n"
    shown = text_of(diff=diff)
    for number, line in enumerate(shown.lines):
        assert shown.styled(number).plain == line.plain
    styles = {str(span.style) for span in shown.styled(len(shown.lines) - 2).spans}
    assert {"magenta", "yellow"} <= styles


@pytest.mark.parametrize(
    ("path", "line"), [("a.perl6", "x = 1"), ("a", "x = 1"), ("a.py/", "x = 1"), ("a.py", f"x = {'1' * 500}")]
)
def test_only_short_lines_of_known_languages_are_coloured(path: str, line: str) -> None:
    """An agent chooses the name and the text, and some lexers need seconds for a line that is made for them."""
    shown = text_of(diff=f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n")
    last = len(shown.lines) - 1
    assert shown.styled(last) is shown.lines[last]


def test_every_lexer_that_is_named_is_there() -> None:
    for end in card_rows._LEXERS:
        lexer = card_rows.lexer_of(f"a{end.upper()}")
        assert lexer is not None
        assert "".join(value for _, value in lexer.get_tokens(" if (a) { \t'漢' }  ")) == " if (a) { \t'漢' }  "


def test_a_card_of_each_kind_has_a_text() -> None:
    for kind in CardKind:
        shown = CardText.of(Card("x", kind, "s-1", "/w", "title", START, body="a\nb"), START)
        assert shown.size == len(shown.lines) >= 3


def test_a_row_that_continues_a_line_has_the_lines_style_and_not_the_gutters() -> None:
    line = Text("one two three four", "bold")
    rows = Rows((line,), 12)
    for at in range(len(rows)):
        row = rows.row(at, line)
        first = row.plain.partition(" ")[0]
        assert (first == CONTINUES) is bool(at)
        assert row.style == ""
        grey = [span for span in row.spans if span.style == "bright_black"]
        assert [(span.start, span.end) for span in grey] == ([(0, GUTTER)] if at else [])


@pytest.mark.parametrize("width", range(26, 130, 3))
def test_the_line_of_keys_breaks_between_two_keys_and_names_each(width: int) -> None:
    known = card("one", amendable=True)
    board = Board()
    board.take(known)
    board.select("one")
    rows = keys_of(known)
    line = keys_line(rows, board, View.INBOX, is_open=True, width=width)
    ends = (0, *breaks(line.plain, width, at_words=True), len(line.plain))
    shown = [line.plain[begin:end].rstrip() for begin, end in pairwise(ends)]
    is_whole = all(f" {word} " in line.plain for word in ("select", "mark", "filter", "next"))
    help_key = " ? help" if is_whole else " … ? help"
    for words in (*(f" {row.key} {row.shown}" for row in rows), " f file", help_key, " q quit"):
        assert any(words in each for each in shown), shown
    # Two rows are enough for the narrowest terminal that people use.
    assert len(shown) <= 2 or width < 60
