"""The headings that are found are those that a CommonMark parser finds, in time linear in the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from intercom.rooms.headings import outline

#: By what stands in the text: a text, and the levels and titles of its headings.
TEXTS: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "nothing": ("", []),
    "marks": ("# a\n##  b  \n### c ###\n###### d", [(1, "a"), (2, "b"), (3, "c"), (6, "d")]),
    "marks that are a part of the title": ("## C#\n## a # b\n## # c", [(2, "C#"), (2, "a # b"), (2, "# c")]),
    "empty headings": ("#\n## ##\n", [(1, ""), (2, "")]),
    "no headings": ("#a\n####### b\n    # c\n\\# d\n", []),
    "indented marks": (" # a\n  # b\n   # c\n", [(1, "a"), (1, "b"), (1, "c")]),
    "underlines": ("a\n=\n\nb\n---\n\nc\nd\n ==  \n", [(1, "a"), (2, "b"), (1, "c d")]),
    "lines that underline nothing": ("\n===\n\n---\n\n    a\n---\n", []),
    "a code fence": ("```\n# a\n```\n# b\n~~~~ x\n# c\n~~~\n# d\n~~~~\n# e", [(1, "b"), (1, "e")]),
    "a fence that no fence closes": ("````\n# a\n```\n# b\n", []),
    "backticks that begin no fence": ("``` `\n# a\n", [(1, "a")]),
    "a comment": ("<!-- \n# a\n\n# b\n-->\n# c\n<!-- # d -->\n# e", [(1, "c"), (1, "e")]),
    "HTML": ("<div>\n# a\n\n# b\na\n<x>\n# c\n\n<pre>\n\n# d\n</PRE>\n# e\n", [(1, "b"), (1, "c"), (1, "e")]),
    "a tag alone": ("<x y='1'>\n# a\n\n# b\n", [(1, "b")]),
    "a list": ("- a\n\n  # b\n# c\n- # d\n1. a\n\n   # d\n\n  # e\n", [(1, "c"), (1, "e")]),
    "a fence in a list": ("- ```\n  # a\n# b\n", [(1, "b")]),
    "a quote": ("> # a\nb\n===\n\n> c\nd\n===\n", [(1, "b")]),
    "a list that deeply nests": ("- " * 200 + "a\n\n# b\n", [(1, "b")]),
    "tabs": ("#\ta\t#\n-\tb\n\n\t# c\n", [(1, "a")]),
    "DOS line ends": ("# a\r\nb\r\n---\r\n\r\n```\r\n# c\r\n", [(1, "a"), (2, "b")]),
    "old line ends": ("# a\rb\r---\r", [(1, "a"), (2, "b")]),
    "characters that end no line": ("# a\x0b# b\x85# c\u2028# d", [(1, "a\x0b# b\x85# c\u2028# d")]),
}

PREFIXES = ("", "", " ", "   ", "    ", "\t", ">", "> ", "- ", "* ", "-   ", "1. ", "2) ", "12. ")
LINES = (
    *("# a", "## b ##", "#", "#c", "===", "=", "---", "- - -", "***", "-", "--", "1.", "*"),
    *("```", "````", "~~~", "``` x", "``` `", "a", "b", "", "", " ", "0", "\\"),
    *("<div>", "</div>", "<x>", "<x y=1 />", "</x>", "<x", "<!--", "-->", "<!-- a -->", "<!-->"),
    *("<?", "?>", "<!A", ">", "<![CDATA[", "]]>", "<script>", "</script>", "<pre", "</textarea> a", "<style>"),
)
texts = st.builds(
    str.join,
    st.sampled_from(["\n", "\n", "\r\n", "\r"]),
    st.lists(
        st.builds(lambda prefixes, line: "".join(prefixes) + line, st.lists(st.sampled_from(PREFIXES), max_size=3),
                  st.sampled_from(LINES)),
        max_size=9,
    ),
)  # fmt: skip

# A line like `[a]: b` is read as a paragraph's.
_COMMONMARK = MarkdownIt("commonmark", {"maxNesting": 200}).disable(["inline", "text_join", "reference"])


def found_by_markdown_it(text: str) -> list[tuple[int, int, int]]:
    """The level of each heading, its first line, and the line after it."""
    return [
        (int(token.tag[1]), token.map[0], token.map[1])
        for token in _COMMONMARK.parse(text)
        if token.type == "heading_open" and token.level == 0 and token.map is not None
    ]


def found(text: str) -> list[tuple[int, int, int]]:
    def lines_up_to(at: int) -> int:
        return len(re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text[:at]))

    return [(each.level, lines_up_to(each.start), lines_up_to(each.end)) for each in outline(text).headings]


@pytest.mark.parametrize("name", TEXTS)
def test_headings_are_found_where_they_count(name: str) -> None:
    text, headings = TEXTS[name]
    assert [(heading.level, heading.title) for heading in outline(text).headings] == headings
    if name != "a list that deeply nests":
        assert found(text) == found_by_markdown_it(text)


@settings(max_examples=300)
@given(texts)
def test_the_same_headings_are_found_as_by_markdown_it(text: str) -> None:
    assert found(text) == found_by_markdown_it(text)


@pytest.mark.parametrize(
    ("text", "closing"),
    [
        ("a\n```\nb", "```"),
        ("~~~~~ x\n~~~~\n", "~~~~~"),
        ("```\n```\n", ""),
        ("<!-- a", "-->"),
        ("<TextArea>\n\n", "</TextArea>"),
        ("<?php\n", "?>"),
        ("<!DOCTYPE\n", ">"),
        ("<![CDATA[\n", "]]>"),
        ("<div>\n", ""),
        ("- ```\n  a\n", ""),
        ("> ```", ""),
    ],
)
def test_the_line_that_closes_what_is_open_is_known(text: str, closing: str) -> None:
    assert outline(text).closing == closing


@settings(max_examples=150)
@given(texts)
def test_a_heading_behind_the_closing_line_and_an_empty_one_is_found(text: str) -> None:
    before = outline(text)
    closed = f"{text}\n{before.closing}\n\n# behind\n"
    assert [heading.title for heading in outline(closed).headings][-1:] == ["behind"]
    assert len(outline(closed).headings) > len(before.headings)


#: Lines, or parts of one, that are costly for some parser or other.
PIECES = (
    "# a\n", "## a ##\n", "#\n", "a\n", "a\n\n", "a\n===\n", "- a\n", "- a\n\n", "1. a\n", "> a\n", ">\n", ">", "> ",
    "- ", "* ", "1. ", "+ * ", "-", "- - x\n", "***\n", "```\n", "~~~ a\n", "`", "<div>\n", "<!--\n", "<a ", "<a b='",
    "<a b=c\n", "<pre>", "<?\n", "[a]: b\n", "[a\n", "    a\n", "\t", " ", "\n", "\r", "- a\n  - b\n    - c\n", "|-",
    "-\n\n", "> - ", "- > ", "# # ", "#" * 100 + " ",
)  # fmt: skip
#: What goes before and behind many pieces.
AROUND = (("", ""), ("> " * 300 + "a\n", ""), ("- " * 300 + "a\n", ""), ("## ", " x"), ("<a", "x"), ("```\n", ""))


@pytest.mark.parametrize("piece", PIECES)
def test_no_text_takes_more_than_its_length(piece: str) -> None:
    for before, behind in AROUND:

        def seconds(length: int) -> float:
            text = before + piece * (length // len(piece)) + behind  # noqa: B023
            started = time.process_time()
            outline(text)
            return time.process_time() - started

        # Eight times the text may take eight times as long, and some; quadratic would be 64 times.
        assert seconds(32_000) < 0.1 or min(seconds(32_000) for _ in range(3)) < 24 * max(0.005, seconds(4_000))
