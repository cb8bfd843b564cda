"""The shared document of a room: text is appended, sections are replaced, and a conclusion is written. Pure.

A section is a heading and all up to the next heading of the same or a higher level. It is named by the heading's text,
with or without its marks: `Notes` and `## Notes` name the same. Case, emphasis and a colon at the end make no
difference. If several sections have the name, the first one counts.

Text that is put into a section cannot swallow the sections after it: a code fence or an HTML block that it leaves open
is closed. Text is inserted as it is, except for empty lines around it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, TypeAlias

from attrs import frozen

from intercom.model.room import RoomErrorCode, RoomRefused
from intercom.rooms.headings import Heading, Outline, outline

CONCLUSION: Final = "Conclusion"
#: The longest name of a section, in characters. No section with a longer heading can be named.
SECTION_NAME: Final = 500
#: The most that `diff` returns to an agent, in characters.
DIFF: Final = 20_000

_LINE_END: Final = re.compile(r"\r\n?|\n")
_BLANK: Final = " \t\r\n"
_BLANK_LINE: Final = re.compile(r"[ \t]*(?:\r\n?|\n)")
#: Lines that go on from a line of the same kind without an empty line between.
_ROW: Final = re.compile(
    r"[ \t]*(?:(?P<bullet>[-+*])[ \t]+[^ \t]|(?P<number>[0-9]{1,9})[.)][ \t]+[^ \t]|(?P<cells>\|)|(?P<quote>>))"
)
#: It ends a list that an indented heading would belong to otherwise.
_LIST_END: Final = "<!-- -->"


def append(content: str, text: str, section: str | None = None) -> str:
    """Return the document with `text` at its end, or at the end of a section. Not one character of it changes.

    A section that is missing is added at the end. Text without visible characters adds nothing. Raises RoomRefused
    (invalid_arguments) for a section name that no heading can have.
    """
    name = None if section is None else _section_name(section)
    text = _trimmed(text)
    if not text:
        return content
    line_end = _line_end_of(content)
    if name is None:
        return content + _gap(content, text, line_end) + text + line_end
    found = _find(content, name)
    if found is None:
        return _with_section(content, f"## {name}", _body(text, name))
    text = _body(text, name)
    if not text:
        return content
    _, last = found.body_of(content)
    # Empty lines before the next heading stay where they are: between it and the section.
    ended = _LINE_END.match(content, last)
    at = ended.end() if ended else last
    inserted = _gap(content[found.heading.start : at], text, line_end) + text
    after = content[at:]
    inserted += _seal(content[found.heading.start : at] + inserted, after, found.is_before_indented(content), line_end)
    return content[:at] + inserted + after


def replace_section(content: str, section: str, text: str) -> str:
    """Return the document with `text` as the body of a section. The heading stays, and so does the rest.

    If `text` begins with the section's own heading, that heading is not doubled. A section that is missing is added at
    the end. Raises RoomRefused (invalid_arguments) for a section name that no heading can have.
    """
    name = _section_name(section)
    text = _body(text, name)
    found = _find(content, name)
    if found is None:
        return _with_section(content, f"## {name}", text)
    first, last = found.body_of(content)
    if content[first:last] == text:
        return content
    line_end = _line_end_of(content)
    heading, after = found.heading, content[found.end :]
    if not text:
        kept = content[: heading.end]
        return kept + _seal(kept[heading.start :], after, False, line_end) + after
    if first == last:
        kept = content[: heading.end]
        kept += ("" if _is_ended(kept) else line_end) + line_end
        rest = ""
    else:
        kept, rest = content[:first], content[last : found.end]
    section_text = kept[heading.start :] + text
    if after or not rest:
        rest = _seal(section_text, after, found.is_before_indented(content), line_end, rest)
    return kept + text + rest + after


def section_of(content: str, section: str) -> str | None:
    """Return the body of a section without empty lines around it; None if there is no such section."""
    name = _section_name(section)
    found = _find(content, name)
    if found is None:
        return None
    first, last = found.body_of(content)
    return content[first:last]


def conclude(content: str, summary: str, earlier: str | None = None) -> str:
    """Return the document with the conclusion of a room, which is `conclusion_text(summary)`.

    It replaces `earlier`, the text that the last conclusion put in, if that is still there. Otherwise it replaces the
    section `## Conclusion` (or `# Conclusion`), and is added at the end if there is none.
    """
    text = conclusion_text(summary)
    found = outline(content)
    if earlier:
        for heading in found.headings:
            if content.startswith(earlier, heading.start):
                return content[: heading.start] + text + content[heading.start + len(earlier) :]
    line_end = _line_end_of(content)
    # Deeper headings of this name conclude a part of the work.
    section = _section(content, found, CONCLUSION, levels=(1, 2))
    if section is None:
        return _with_end_closed(content, found, line_end, text) + text
    after = content[section.end :]
    if not after:
        return content[: section.heading.start] + text
    # What stands between must not depend on the summary: the next conclusion replaces exactly this one's text.
    between = line_end + (_LIST_END + line_end * 2 if section.is_before_indented(content) else "")
    return content[: section.heading.start] + text + between + after


def conclusion_text(summary: str) -> str:
    """Return what a conclusion puts into the document: the summary, word for word, under `## Conclusion`.

    If the summary begins with a heading of this name, of any level and style, that is the heading.
    """
    text = _trimmed(summary)
    own = _own_heading(text, CONCLUSION)
    if own is None:
        text = f"## {CONCLUSION}\n\n{text}" if text else f"## {CONCLUSION}"
    elif own.level != 2 or not text.startswith("## "):
        text = f"## {CONCLUSION}\n{text[own.end :]}"
    if not _is_ended(text):
        text += "\n"
    closing = outline(text).closing
    return text + (closing + "\n" if closing else "")


# --- sections --------------------------------------------------------------------------------------------------------


@frozen
class _Section:
    """A section of a document, up to the character `end`."""

    heading: Heading
    end: int

    def body_of(self, content: str) -> tuple[int, int]:
        """Return where the body begins and ends, without empty lines around it."""
        first, last = _trim(content[self.heading.end : self.end])
        return self.heading.end + first, self.heading.end + last

    def is_before_indented(self, content: str) -> bool:
        """Whether the heading after the section is indented. It would belong to a list at the section's end."""
        return content.startswith((" ", "\t"), self.end)


def _find(content: str, name: str) -> _Section | None:
    return _section(content, outline(content), name)


def _section(content: str, found: Outline, name: str, levels: Sequence[int] = range(1, 7)) -> _Section | None:
    wanted = _key(name)
    headings = iter(found.headings)
    for heading in headings:
        if heading.level in levels and _key(heading.title) == wanted:
            later = (each.start for each in headings if each.level <= heading.level)
            return _Section(heading, next(later, len(content)))
    return None


def _section_name(section: str) -> str:
    """Return a section's name as a heading's text."""
    # Longer ones are not looked at: they may have a megabyte.
    name = _bare(section) if len(section) <= SECTION_NAME else ""
    if not _key(name):
        raise RoomRefused(
            RoomErrorCode.INVALID_ARGUMENTS,
            f"section: must be the text of a heading, such as Notes, in at most {SECTION_NAME} characters",
        )
    return name


def _bare(title: str) -> str:
    """Return a title on one line, and without the marks of a heading around it."""
    words = title.split()
    first, last = 0, len(words)
    while first < last and not words[first].strip("#"):
        first += 1
    while first < last and not words[last - 1].strip("#"):
        last -= 1
    return " ".join(words[first:last])


def _key(title: str) -> str:
    """Return what two titles that name the same section have in common; empty for a title that names none."""
    if len(title) > SECTION_NAME:
        return ""
    bare = unicodedata.normalize("NFC", _bare(title)).strip("*_`: ")
    return unicodedata.normalize("NFC", bare.casefold())


def _own_heading(text: str, name: str) -> Heading | None:
    """Return the heading of this name that a trimmed text begins with."""
    if not text:
        return None
    headings = outline(text).headings
    if headings and headings[0].start == 0 and _key(headings[0].title) == _key(name):
        return headings[0]
    return None


def _body(text: str, name: str) -> str:
    """Return a text for a section without empty lines around it, and without the section's own heading."""
    text = _trimmed(text)
    own = _own_heading(text, name)
    return text if own is None else _trimmed(text[own.end :])


def _with_section(content: str, heading: str, text: str) -> str:
    """Return a document with a new section at its end."""
    line_end = _line_end_of(content)
    section = heading + line_end
    if text:
        section += line_end + text + line_end
    return _with_end_closed(content, outline(content), line_end, section) + section


def _with_end_closed(content: str, found: Outline, line_end: str, section: str) -> str:
    """Return a document after which a section can begin: with a line that closes what its end leaves open, and an empty
    line."""
    if found.closing:
        content += ("" if _is_ended(content) else line_end) + found.closing + line_end
    return content + _gap(content, section, line_end)


# --- empty lines -----------------------------------------------------------------------------------------------------


def _line_end_of(content: str) -> str:
    """Return the line end for what is added to a document."""
    return "\r\n" if "\r\n" in content else "\n"


def _is_ended(text: str) -> bool:
    """Whether a line ends, or nothing has begun, at the end of a text."""
    return not text or text[-1] in "\r\n"


def _trim(text: str) -> tuple[int, int]:
    """Return where the first line that is not blank begins, and where the last one ends, without its line end."""
    end = len(text.rstrip(_BLANK))
    if not end:
        return 0, 0
    first = len(text) - len(text.lstrip(_BLANK))
    begin = max(text.rfind("\n", 0, first), text.rfind("\r", 0, first)) + 1
    line_end = _LINE_END.search(text, end)
    return begin, line_end.start() if line_end else len(text)


def _trimmed(text: str) -> str:
    begin, end = _trim(text)
    return text[begin:end]


def _gap(before: str, text: str, line_end: str) -> str:
    """Return what must stand between the end of a text and a further one, for the latter not to continue a paragraph.

    That is an empty line, except where the first line goes on with a list, a table or a quote.
    """
    if not before:
        return ""
    if before.endswith("\r"):
        # A line feed would become a part of this line end.
        line_end = "\r"
    end = "" if _is_ended(before) else line_end
    whole = len(before)
    if not end:
        whole -= 2 if before.endswith("\r\n") else 1
    last = before[max(before.rfind("\n", 0, whole), before.rfind("\r", 0, whole)) + 1 : whole]
    return end if not last.strip(_BLANK) or _goes_on(last, text) else end + line_end


def _goes_on(last: str, text: str) -> bool:
    row = _ROW.match(text)
    if row is None:
        return False
    before = _ROW.match(last)
    if before is not None and before.lastgroup == row.lastgroup:
        return True
    # An indented line is the rest of a list item.
    return row.lastgroup in ("bullet", "number") and last[0] in " \t"


def _seal(section: str, after: str, is_before_indented: bool, line_end: str, rest: str = "") -> str:
    """Return what must stand between a section and the text after it, for neither to change the other.

    `rest` is what stands there already. The next heading is in `after`, and may be indented.
    """
    end = "" if _is_ended(section) else line_end
    if not after:
        return rest or end
    found = outline(section)
    closing = found.closing or (_LIST_END if found.in_container and is_before_indented else "")
    if closing:
        return end + (line_end if closing == _LIST_END else "") + closing + line_end * 2
    if not rest:
        return end + ("" if _BLANK_LINE.match(after) else line_end)
    first = _LINE_END.match(rest)
    is_apart = first is not None and _BLANK_LINE.match(rest, first.end()) is not None
    return rest if is_apart else rest + line_end


# --- differences -----------------------------------------------------------------------------------------------------

#: Lines that a comparison looks at. Beyond, all of them count as replaced: its time grows with their product.
_COMPARED: Final = 1_000
_CONTEXT: Final = 3
_Change: TypeAlias = tuple[str, int, int, int, int]


def diff(before: str, after: str, before_name: str, after_name: str, most: int = DIFF) -> str:
    """Return a unified diff of two texts, in at most so many characters; empty if they are equal.

    A longer diff is cut, and its last line says so. If a large part differs, that part is shown as replaced.
    """
    if before == after:
        return ""
    lines = _diff_lines(_lines(before), _lines(after), before_name, after_name)
    cut = "(cut here: the diff is longer; read both versions)"
    return _bounded(lines, most - len(cut) - 1, cut)


def _diff_lines(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> Iterator[str]:
    yield f"--- {old_name}"
    yield f"+++ {new_name}"
    for group in _groups(old, new):
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = group[0], group[-1]
        yield f"@@ -{_range(old_from, old_to)} +{_range(new_from, new_to)} @@"
        for kind, first, last, other_first, other_last in group:
            if kind == "equal":
                yield from _marked(" ", old[first:last])
            else:
                yield from _marked("-", old[first:last])
                yield from _marked("+", new[other_first:other_last])


def _groups(old: Sequence[str], new: Sequence[str]) -> Iterator[list[_Change]]:
    """Return the changes, with a few equal lines around each, in groups that touch."""
    shorter = min(len(old), len(new))
    same = 0
    while same < shorter and old[same] == new[same]:
        same += 1
    tail = 0
    while tail < shorter - same and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    # The lines that differ, and the context of the first and the last of them.
    begin, end = max(0, same - _CONTEXT), max(0, tail - _CONTEXT)
    old, new = old[begin : len(old) - end], new[begin : len(new) - end]
    changes: Iterable[Sequence[_Change]]
    if len(old) + len(new) <= _COMPARED:
        changes = SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT)
    else:
        head, foot = same - begin, tail - end
        changes = [
            [
                ("equal", 0, head, 0, head),
                ("replace", head, len(old) - foot, head, len(new) - foot),
                ("equal", len(old) - foot, len(old), len(new) - foot, len(new)),
            ]
        ]
    for group in changes:
        yield [(kind, i + begin, j + begin, k + begin, m + begin) for kind, i, j, k, m in group]


def _lines(text: str) -> list[str]:
    """Split a text at its line feeds, which each line keeps."""
    *lines, last = text.split("\n")
    return [line + "\n" for line in lines] + ([last] if last else [])


def _marked(mark: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if line.endswith("\n"):
            yield mark + line[:-1]
        else:
            yield mark + line
            yield "\\ No newline at end of file"


def _range(first: int, last: int) -> str:
    """Return a range of lines as unified diffs have it."""
    length = last - first
    if length == 1:
        return str(first + 1)
    return f"{first + 1 if length else first},{length}"


def _bounded(lines: Iterable[str], most: int, cut: str) -> str:
    kept: list[str] = []
    length = 0
    for line in lines:
        if length + len(line) + 1 > most:
            room = most - length - 1
            return "".join(each + "\n" for each in (*kept, *([line[:room]] if room > 0 else []), cut))
        kept.append(line)
        length += len(line) + 1
    return "".join(each + "\n" for each in kept)
