"""The shared document: what is appended, replaced or concluded changes its own place, and nothing else."""

from __future__ import annotations

import time
from functools import partial

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from intercom.model.room import RoomErrorCode, RoomRefused
from intercom.rooms import document
from intercom.rooms.document import append, conclude, conclusion_text, diff, replace_section, section_of
from intercom.rooms.headings import outline
from tests.rooms.test_headings import texts
from tests.support.machine_speed import is_below

SKELETON = "# Session: x\n\n## Goals\n\nShip.\n\n## Notes / Working\n\n- a\n\n### Detail\n\nb\n\n## Decisions\n"

#: Documents with sections.
documents = st.builds(
    str.join,
    st.sampled_from(["\n", "\n\n", "\r\n"]),
    st.lists(
        texts
        | st.sampled_from(["# Notes", "## Notes", " ## a", "  ### b ##", "b\n---", "Notes\n===", "## Conclusion"])
        | st.sampled_from(["- c", "  c", "c", "```", "<!--"]),
        max_size=6,
    ),
)
#: Texts as agents write them, and texts that mean something to a parser or a template.
summaries = st.one_of(
    texts,
    st.text(max_size=40),
    st.sampled_from([r"$1 \1 & \g<0> {0} %s", "## Conclusion\nDone.", "Conclusion\n===\n\nDone", "#### conclusion:\n"]),
)
names = st.sampled_from(["Notes", "## a", "b", "Conclusion", "c # d"])


def titles(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in outline(text).headings]


# --- append ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text", "section", "expected"),
    [
        ("", "a", None, "a\n"),
        ("a", "b", None, "a\n\nb\n"),
        ("a\n", "\n\nb\n\n\n", None, "a\n\nb\n"),
        ("a\n\n", "b", None, "a\n\nb\n"),
        ("a\r\n", "b", None, "a\r\n\r\nb\r\n"),
        ("- a\n", "- b", None, "- a\n- b\n"),
        ("- a\n  more\n", "- b", None, "- a\n  more\n- b\n"),
        ("| a |\n|---|\n", "| b |", None, "| a |\n|---|\n| b |\n"),
        ("1. a", "2. b", None, "1. a\n2. b\n"),
        ("a\n", "- b", None, "a\n\n- b\n"),
        ("a\n", "---", None, "a\n\n---\n"),
        ("a\n", " \n\t", None, "a\n"),
        ("## A\n## B\n", "x", "A", "## A\n\nx\n\n## B\n"),
        ("## A\n\n## B\n", "x", "## A", "## A\n\nx\n\n## B\n"),
        ("## A\n\nw\n\n## B\n", "x", "a", "## A\n\nw\n\nx\n\n## B\n"),
        ("## A\n\n- w\n\n\n## B\n", "- x", "A:", "## A\n\n- w\n- x\n\n\n## B\n"),
        ("## A\r\n\r\nw\r\n\r\n## B", "x", "A", "## A\r\n\r\nw\r\n\r\nx\r\n\r\n## B"),
        ("## A\nw", "x", "A", "## A\nw\n\nx\n"),
        ("A\n---\nw\n\nB\n---\n", "x", "A", "A\n---\nw\n\nx\n\nB\n---\n"),
        ("## A\n### C\nw\n## B\n", "x", "A", "## A\n### C\nw\n\nx\n\n## B\n"),
        ("## A\n## A\n", "x", "A", "## A\n\nx\n\n## A\n"),
        ("## A\nw\n", "## A\nx", "A", "## A\nw\n\nx\n"),
        ("## A\nw\n", "x", "B", "## A\nw\n\n## B\n\nx\n"),
        ("## A\n```\n## B\n```\n", "x", "B", "## A\n```\n## B\n```\n\n## B\n\nx\n"),
        ("```\nw\n", "x", "B", "```\nw\n```\n\n## B\n\nx\n"),
        ("<!--", "x", "B", "<!--\n-->\n\n## B\n\nx\n"),
        ("## A\n\n## B\n", "```\nx", "A", "## A\n\n```\nx\n```\n\n## B\n"),
        ("## A\n\n  ## B\n", "- x", "A", "## A\n\n- x\n\n<!-- -->\n\n  ## B\n"),
        ("", "x", "## B ##", "## B\n\nx\n"),
    ],
)
def test_text_is_appended_where_it_belongs(content: str, text: str, section: str | None, expected: str) -> None:
    result = append(content, text, section)
    # Empty lines may be more than one.
    assert result.replace("\n\n\n", "\n\n") == expected.replace("\n\n\n", "\n\n")


@settings(max_examples=120)
@given(documents, summaries, st.none() | names)
def test_to_append_never_changes_what_was_there(content: str, text: str, section: str | None) -> None:
    result = append(content, text, section)
    before = _common(content, result)
    behind = _common(content[::-1], result[::-1])
    assert before + behind >= len(content)
    assert text.strip(" \t\r\n") in result or section is not None


@settings(max_examples=120)
@given(documents, texts, names)
def test_text_appended_to_a_section_is_in_that_section_and_all_other_headings_stay(
    content: str, text: str, section: str
) -> None:
    assume(not titles(text) and text.strip())
    result = append(content, text, section)
    found = section_of(result, section)
    assert found is not None
    # What is inserted may be an element of a list, which its section's last line began.
    assert text.strip() in result
    known = [title for title in titles(content) if title in titles(result)]
    assert known == titles(content)
    assert len(titles(result)) <= len(titles(content)) + 1


def test_the_two_appends_of_the_pseudo_program_make_one_list_under_notes() -> None:
    content = append("", "## Notes\n- Alex's Team online, starting subtask X")
    content = append(content, "- found that Y is the right approach because Z")
    assert section_of(content, "Notes") == (
        "- Alex's Team online, starting subtask X\n- found that Y is the right approach because Z"
    )


# --- sections --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("Goals", "Ship."),
        ("## goals:", "Ship."),
        ("**Goals**", "Ship."),
        ("notes /  working", "- a\n\n### Detail\n\nb"),
        ("Detail", "b"),
        ("Decisions", ""),
        ("Session: x", SKELETON[14:].strip()),
        ("Nothing", None),
        ("Goal", None),
    ],
)
def test_a_section_is_found_by_its_name(section: str, expected: str | None) -> None:
    assert section_of(SKELETON, section) == expected


@pytest.mark.parametrize("section", ["", " \n", "##", "# #", "***", "x" * 501, "# " * 500_000])
def test_a_name_that_no_heading_can_have_is_refused(section: str) -> None:
    for call in (partial(append, "a", "b"), partial(replace_section, "a", text="b"), partial(section_of, "a")):
        with pytest.raises(RoomRefused) as refused:
            call(section=section)
        assert refused.value.room_code is RoomErrorCode.INVALID_ARGUMENTS


@pytest.mark.parametrize(
    ("content", "text", "expected"),
    [
        ("## A\n\nw\n\n## B\n", "x", "## A\n\nx\n\n## B\n"),
        ("## A\nw\n## B\n", "x\n", "## A\nx\n\n## B\n"),
        ("## A\r\nw\r\n\r\n## B\r\n", "x", "## A\r\nx\r\n\r\n## B\r\n"),
        ("## A\n## B\n", "x", "## A\n\nx\n\n## B\n"),
        ("## A", "x", "## A\n\nx\n"),
        ("## A\nw", "x", "## A\nx\n"),
        ("## A\nw\n### C\nv\n## B", "x", "## A\nx\n\n## B"),
        ("## A\nw\n\n## B", "", "## A\n\n## B"),
        ("## A\nw\n", "## A\n\nx", "## A\nx\n"),
        ("## A\nw\n", "a\n=\nx", "## A\nx\n"),
        ("## A\nw\n\n## B\n", "~~~\nx", "## A\n~~~\nx\n~~~\n\n## B\n"),
        ("## A\nw\n\nB\n---\n", "x", "## A\nx\n\nB\n---\n"),
        ("## A\n```\n```\nB\n---\n", "x", "## A\nx\n\nB\n---\n"),
        ("## B\n", "x", "## B\n\n## A\n\nx\n"),
        ("## A\nw\n\n## A\nv\n", "x", "## A\nx\n\n## A\nv\n"),
    ],
)
def test_a_section_is_replaced(content: str, text: str, expected: str) -> None:
    assert replace_section(content, "A", text) == expected


@settings(max_examples=120)
@given(documents, summaries, names)
def test_to_replace_a_section_changes_only_that_section(content: str, text: str, section: str) -> None:
    found = document._find(content, document._section_name(section))
    result = replace_section(content, section, text)
    if found is None:
        assert result.startswith(content)
        return
    after = content[found.end :]
    assert result.startswith(content[: found.heading.end])
    assert result.endswith(after)
    behind = [title for title in titles(result) if title]
    kept = [(each.level, each.title) for each in outline(content).headings if each.start >= found.end]
    assert behind[len(behind) - len(kept) :] == kept


@settings(max_examples=120)
@given(documents, names)
def test_a_section_replaced_by_itself_is_as_it_was(content: str, section: str) -> None:
    body = section_of(content, section)
    # A body that begins with the section's own heading loses it.
    if body is not None and document._body(body, document._section_name(section)) == body:
        assert replace_section(content, section, body) == content


@given(documents, texts, names)
def test_what_is_put_into_a_section_is_what_it_holds(content: str, text: str, section: str) -> None:
    assume(not titles(text) and not outline(text).closing)
    held = section_of(replace_section(content, section, text), section)
    assert held is not None
    assert held.removesuffix("<!-- -->").rstrip() == document._trimmed(text).rstrip()


# --- the conclusion --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "summary", "expected"),
    [
        ("", "Done.", "## Conclusion\n\nDone.\n"),
        ("a", "Done.", "a\n\n## Conclusion\n\nDone.\n"),
        ("a\r\n", "Done.", "a\r\n\r\n## Conclusion\n\nDone.\n"),
        ("## Conclusion\n", "Done.", "## Conclusion\n\nDone.\n"),
        ("a\n## Conclusion\nold\n### x\ny\n", "Done.", "a\n## Conclusion\n\nDone.\n"),
        ("## Conclusion\nold\n## B\nc\n", "Done.", "## Conclusion\n\nDone.\n\n## B\nc\n"),
        ("Conclusion\n---\nold\n\nB\n===\n", "Done.", "## Conclusion\n\nDone.\n\nB\n===\n"),
        ("# Conclusion\nold\n", "Done.", "## Conclusion\n\nDone.\n"),
        ("## A\n### Conclusion\nb\n", "Done.", "## A\n### Conclusion\nb\n\n## Conclusion\n\nDone.\n"),
        ("```\n## Conclusion\n```\n", "Done.", "```\n## Conclusion\n```\n\n## Conclusion\n\nDone.\n"),
        ("```\n## Conclusion\n", "Done.", "```\n## Conclusion\n```\n\n## Conclusion\n\nDone.\n"),
        ("## Conclusion\na\n\n ## B\n", "- x", "## Conclusion\n\n- x\n\n<!-- -->\n\n ## B\n"),
    ],
)
def test_a_conclusion_is_written_into_its_section(content: str, summary: str, expected: str) -> None:
    assert conclude(content, summary) == expected


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ("Done.", "## Conclusion\n\nDone.\n"),
        ("", "## Conclusion\n"),
        ("## Conclusion\nSubtask X complete.", "## Conclusion\nSubtask X complete.\n"),
        ("\n\n## Conclusion\n\nDone.\n\n", "## Conclusion\n\nDone.\n"),
        ("# Conclusion\nDone.", "## Conclusion\nDone.\n"),
        ("###### CONCLUSION: ######\nDone.", "## Conclusion\nDone.\n"),
        ("Conclusion\n==========\n\nDone.", "## Conclusion\n\nDone.\n"),
        ("Conclusion\n---\nDone.", "## Conclusion\nDone.\n"),
        ("  ## Conclusion\nDone.", "## Conclusion\nDone.\n"),
        ("## Conclusion", "## Conclusion\n"),
        ("## Conclusion\r\nDone.\r\n", "## Conclusion\r\nDone.\n"),
        ("## Conclusions\nDone.", "## Conclusion\n\n## Conclusions\nDone.\n"),
        ("```\n## Conclusion", "## Conclusion\n\n```\n## Conclusion\n```\n"),
        (r"$1 \1 & \g<0> %s {}", "## Conclusion\n\n" + r"$1 \1 & \g<0> %s {}" + "\n"),
    ],
)
def test_a_summary_is_taken_word_for_word_under_one_heading(summary: str, expected: str) -> None:
    assert conclusion_text(summary) == expected
    assert conclude("", summary) == expected


@settings(max_examples=120)
@given(documents, summaries)
def test_a_summary_stands_in_the_document_as_it_is(content: str, summary: str) -> None:
    result = conclude(content, summary)
    own = document._own_heading(document._trimmed(summary), "Conclusion")
    words = document._trimmed(summary)[own.end if own else 0 :]
    assert words in result
    assert conclusion_text(summary) in result


@settings(max_examples=120)
@given(documents, summaries, summaries)
def test_a_second_conclusion_replaces_the_first_and_nothing_else(content: str, first: str, second: str) -> None:
    once = conclude(content, first)
    assert conclude(once, first, earlier=conclusion_text(first)) == once
    assert conclude(once, second, earlier=conclusion_text(first)) == conclude(content, second)


@settings(max_examples=120)
@given(documents, st.text(alphabet="ab #-=\n`<>", max_size=30))
def test_to_conclude_twice_is_to_conclude_once_also_if_the_first_text_is_not_known(content: str, summary: str) -> None:
    once = conclude(content, summary)
    headings = outline(conclusion_text(summary)).headings
    # A summary of several sections cannot be told from the document's own.
    assume(all(heading.level > 2 for heading in headings[1:]))
    assert conclude(once, summary) == once


def test_what_was_appended_after_a_conclusion_stays_behind_the_next_one() -> None:
    once = conclude("# x\n", "First.")
    more = append(once, "### Later\n\nReopened.")
    assert conclude(more, "Second.", conclusion_text("First.")) == (
        "# x\n\n## Conclusion\n\nSecond.\n\n### Later\n\nReopened.\n"
    )


def test_an_edited_conclusion_is_replaced_as_a_section() -> None:
    once = conclude("# x\n", "First.").replace("First.", "First, edited.")
    assert conclude(once, "Second.", conclusion_text("First.")) == "# x\n\n## Conclusion\n\nSecond.\n"


# --- differences -----------------------------------------------------------------------------------------------------


def test_a_diff_shows_what_changed_with_its_surroundings() -> None:
    before = "".join(f"line {number}\n" for number in range(20))
    after = before.replace("line 9\n", "line nine\n").replace("line 19\n", "line 19")
    assert diff(before, after, "version 1", "version 2") == (
        "--- version 1\n+++ version 2\n"
        "@@ -7,7 +7,7 @@\n line 6\n line 7\n line 8\n-line 9\n+line nine\n line 10\n line 11\n line 12\n"
        "@@ -17,4 +17,4 @@\n line 16\n line 17\n line 18\n-line 19\n+line 19\n\\ No newline at end of file\n"
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a\n", "a\n", ""),
        ("", "a\n", "--- 1\n+++ 2\n@@ -0,0 +1 @@\n+a\n"),
        ("a\n", "", "--- 1\n+++ 2\n@@ -1 +0,0 @@\n-a\n"),
        ("a\n", "a\r\n", "--- 1\n+++ 2\n@@ -1 +1 @@\n-a\n+a\r\n"),
    ],
)
def test_small_diffs(before: str, after: str, expected: str) -> None:
    assert diff(before, after, "1", "2") == expected


@given(
    st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=60),
    st.lists(st.sampled_from(["a\n", "b\n", "c\n"]), max_size=60),
    st.sampled_from([10, 1_000]),
)
def test_a_diff_leads_from_one_text_to_the_other(old: list[str], new: list[str], compared: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Above so many lines, no lines are compared.
        patch.setattr(document, "_COMPARED", compared)
        lines = diff("".join(old), "".join(new), "1", "2").splitlines(keepends=True)
    assert _patched(old, lines[2:]) == new


def test_a_diff_of_large_documents_is_short_and_soon_there() -> None:
    numbers = range(100_000)
    before = "".join(f"line {number}\n" for number in numbers)
    after = "".join(f"line {number * 7919 % 100_000}\n" for number in numbers)
    started = time.process_time()
    shown = diff(before, after, "1", "2")
    assert is_below(2, time.process_time() - started)
    assert len(shown) <= document.DIFF
    assert shown.endswith("\n(cut here: the diff is longer; read both versions)\n")


def test_a_diff_of_one_long_line_is_cut() -> None:
    assert len(diff("a" * 1_000_000, "b" * 1_000_000, "1", "2")) <= document.DIFF


# --- size ------------------------------------------------------------------------------------------------------------


def test_a_document_of_a_megabyte_with_20000_headings_is_written_soon() -> None:
    content = "".join(f"## Section {number}\n\n- {'x' * 30}\n\n" for number in range(20_000))
    assert len(content) > 1_000_000
    started = time.process_time()
    append(content, "- y", "Section 19998")
    replace_section(content, "Section 10000", "z")
    conclude(content, "Done.")
    assert is_below(2, time.process_time() - started)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    most = min(len(one), len(other))
    return next((at for at in range(most) if one[at] != other[at]), most)


def _patched(old: list[str], lines: list[str]) -> list[str]:
    """What a diff makes of a text."""
    made: list[str] = []
    at = 0
    for line in lines:
        if line.startswith("@@"):
            first, _, length = line.split()[1][1:].partition(",")
            begin = int(first) - (length != "0")
            made += old[at:begin]
            at = begin
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert old[at] == line[1:]
            made += [line[1:]] if line[0] == " " else []
            at += 1
    return made + old[at:]
