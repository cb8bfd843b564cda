"""Text: what is cut, where; what is shown; what is kept."""

from __future__ import annotations

import html
import time

import grapheme
import pytest
from hypothesis import given as for_any
from hypothesis import settings
from hypothesis import strategies as st

from intercom.model.visible_text import one_line, visible
from intercom.operators.slack.draw.blocks import CUT, code, cut, escaped, fence, fitted, is_cut, moment, short, size
from tests.operators.slack.draw import given
from tests.support.machine_speed import is_below


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("a&b", 7, "a&amp;b"),
        ("a&b", 6, "a…"),
        ("a<b", 6, "a&lt;b"),
        ("ab👍🏽", 4, "ab…"),
        ("ab👍🏽", 6, "ab👍🏽"),
        ("👩‍👩‍👧‍👦x", 11, "…"),
        ("ab🇩🇪🇫🇷", 7, "ab🇩🇪…"),
        ("ae\u0301x", 3, "a…"),
        ("", 9, "(empty)"),
        (" \n\t", 9, "(empty)"),
        ("a\r\nb", 9, "a\nb"),
    ],
)
def test_text_is_cut_between_what_a_reader_sees_as_one(text: str, limit: int, expected: str) -> None:
    assert fitted(text, limit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\u202eb", "a<U+202E>b"),
        ("\u2067x\u2069", "<U+2067>x<U+2069>"),
        ("a\u200bb", "a<U+200B>b"),
        ("a\u200db", "a<U+200D>b"),
        ("👩‍👧", "👩‍👧"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\ud800", "<U+D800>"),
        ("x\U000e0041", "x<U+E0041>"),
        ("tab\tline\n", "tab\tline\n"),
        ("é ü 日本語 שלום", "é ü 日本語 שלום"),
        ("\x85\u2028", "\\x85<U+2028>"),
    ],
)
def test_what_cannot_be_seen_is_shown_as_its_code(text: str, expected: str) -> None:
    assert visible(text) == expected


@settings(max_examples=100, deadline=None)
@for_any(given.texts, st.integers(12, 400))
def test_no_text_is_too_long_or_cut_in_a_wrong_place(text: str, limit: int) -> None:
    made = fitted(text, limit)
    assert made.strip()
    assert len(made) <= size(made) <= limit
    plain = html.unescape(made)
    assert escaped(plain) == made
    whole = visible(text[:2_000]).strip("\n")
    if made.endswith(CUT) and len(made) > 1 and len(text) < 2_000:
        kept = plain.removesuffix(CUT)
        assert whole.startswith(kept)
        rest = whole[len(kept) :].lstrip()
        if len(kept) == len(whole.rstrip()) - len(rest) and len(rest) < 60 and kept:
            assert grapheme.safe_split_index(whole, len(kept)) == len(kept)


@settings(max_examples=100, deadline=None)
@for_any(given.texts, st.integers(40, 3_000))
def test_a_fence_is_closed_once(text: str, limit: int) -> None:
    made = fence(text, limit)
    assert size(made) <= limit
    assert made.startswith("```\n")
    assert made.endswith("\n```")
    assert made.count("```") == 2


@settings(max_examples=100, deadline=None)
@for_any(given.texts)
def test_a_span_of_code_is_closed_once(text: str) -> None:
    made = code(text, 60)
    assert size(made) <= 60
    assert made.count("`") == 2
    assert "\n" not in made


def test_a_cluster_without_end_is_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 500_000
    started = time.process_time()
    assert size(fitted(text, 3_000)) <= 3_000
    assert is_below(0.1, time.process_time() - started)


def test_the_value_of_an_input_is_not_escaped() -> None:
    assert cut("a < b & c", 9, escape=False) == "a < b & c"


def test_small_things() -> None:
    assert short(given.ID) == "0f8fad5b"
    assert short("apply-1") == "apply-1"
    assert short(f"apply-{given.ID}") == "apply-0f8fad5b"
    assert short(given.ID.replace("0f8fad5b", "deadbeef")) == "deadbeef"
    assert one_line("a\n b\t c") == "a b c"
    assert moment(given.NOW) == "<!date^1772600767^{date_short_pretty} {time}|2026-03-04 05:06 UTC>"
    assert is_cut("abcd", 3)
    assert not is_cut("abc", 3)
