"""The hunks of a card, numbered, and the lines that its diff shows: read from the diff, as every channel has it.

A card's hunks are numbered from 1 over all its files, in the order of the diff. A hunk is one `@@` group. A file
without such a group is one hunk: a rename or a mode alone, an empty or a binary file. So is a file whose diff is too
long to be shown whole. A rename and a mode go with any hunk of their file. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from attrs import frozen

from intercom.model.amendment import PATH, Change, Comment
from intercom.model.errors import InvalidArguments
from intercom.model.request import FileChange
from intercom.model.visible_text import one_line

#: The most comments of one decision, and the most characters of one.
MOST_COMMENTS, LONGEST_COMMENT = 100, 2_000
#: The most characters of a line of a hunk where the hunk is named.
_QUOTED = 60
#: The most hunks that a text can name.
_MOST_NUMBERS = 1_000_000

_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
_GROUP = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_CUT = re.compile(r"^\\ \d+ more lines of this diff are not shown\n\Z", re.MULTILINE)
_PLACE = re.compile(r"(\d{1,9}):\s*", re.ASCII)
_NUMBERS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


@frozen
class HunkOfCard:
    """One hunk of a card. `number` counts from 1 over all files, `place` from 0 in its file. `file` is the index of its
    file among the card's, and `path` that file's path. `range` is its line of the diff (`@@ -1,3 +1,4 @@`); None if the
    file is one hunk as a whole. `line` and `end` are the indexes of its first line in the diff and of the one after it.
    """

    number: int
    path: str
    file: int
    place: int
    range: str | None
    added: int
    removed: int
    line: int
    end: int


@frozen
class _Group:
    """One `@@` group of a file's part: its index among the part's lines, its header, and its lines."""

    at: int
    header: str
    new: int
    lines: tuple[str, ...]


def _groups(part: Sequence[str]) -> Iterator[_Group]:
    at = 0
    while at < len(part):
        found = _GROUP.match(part[at])
        if found is None:
            at += 1
            continue
        begin, old, new = at, int(found[2] or 1), int(found[4] or 1)
        lines: list[str] = []
        at += 1
        # The counts tell a hunk's lines from what follows: a removed line may look like a header.
        while at < len(part) and (old > 0 or new > 0 or part[at].startswith("\\ ")):
            old -= part[at].startswith((" ", "-"))
            new -= part[at].startswith((" ", "+"))
            lines.append(part[at])
            at += 1
        # A group without lines of the new file states the line before it.
        yield _Group(begin, part[begin], int(found[3]), tuple(lines))


def _parts(diff: str) -> list[str]:
    return [part for part in _FILE.split(diff) if part]


def hunks_of(diff: str, files: Sequence[FileChange]) -> tuple[HunkOfCard, ...]:
    """Return the hunks of a card, from its diff and its files. Raises InvalidArguments if the diff is not of these
    files: then it is no diff that was made from them."""
    parts = _parts(diff)
    if len(parts) != len(files):
        raise InvalidArguments("this card shows no diff that was made from its files, so it has no hunks to choose")
    found: list[HunkOfCard] = []
    line = 0
    for index, (part, change) in enumerate(zip(parts, files, strict=True)):
        lines = part.removesuffix("\n").split("\n")
        groups = [] if _CUT.search(part) else [*_groups(lines)]
        for place, group in enumerate(groups):
            added, removed = (sum(each.startswith(mark) for each in group.lines) for mark in "+-")
            number, at = len(found) + 1, line + group.at
            end = at + 1 + len(group.lines)
            found.append(HunkOfCard(number, change.path, index, place, group.header, added, removed, at, end))
        end = line + len(lines)
        if not groups:
            number = len(found) + 1
            found.append(HunkOfCard(number, change.path, index, 0, None, change.added, change.removed, line, end))
        line = end
    return tuple(found)


def lines_shown(diff: str, files: Sequence[FileChange]) -> dict[str, frozenset[int]]:
    """Return the numbers of the lines of each new file that the diff shows, by path."""
    return {
        change.path: frozenset(number for number in _line_numbers(part) if number is not None)
        for part, change in zip(_parts(diff), files, strict=False)
    }


def new_line_numbers(diff: str) -> tuple[int | None, ...]:
    """Return for each line of a diff its number in the new file; None for a line that is not in it."""
    return tuple(number for part in _parts(diff) for number in _line_numbers(part))


def _line_numbers(part: str) -> list[int | None]:
    lines = part.removesuffix("\n").split("\n")
    numbers: list[int | None] = [None] * len(lines)
    for group in _groups(lines):
        number = group.new
        for at, line in enumerate(group.lines, group.at + 1):
            if line.startswith((" ", "+")):
                numbers[at] = number
                number += 1
    return numbers


def checked_comments(
    comments: Sequence[Comment],
    diff: str,
    files: Sequence[FileChange],
    *,
    on_file: Callable[[str], str] = "{}: TEXT".format,
) -> tuple[Comment, ...]:
    """Return the comments, if each is about a file of the proposal and a line that its diff shows. Raises
    InvalidArguments for one that is not, or for too many or too long ones. `on_file` is how a person writes a comment
    on a file as a whole."""
    if len(comments) > MOST_COMMENTS:
        raise InvalidArguments(f"{len(comments)} comments are too many for one decision: at most {MOST_COMMENTS}")
    shown = lines_shown(diff, files)
    for each in comments:
        if each.path not in shown:
            raise InvalidArguments(f"{each.path[:PATH]} is no file of this proposal; it has {_few(shown)}")
        if not each.text.strip():
            raise InvalidArguments(f"the comment on {each.path[:PATH]} has no text")
        if len(each.text) > LONGEST_COMMENT:
            raise InvalidArguments(f"the comment on {each.path[:PATH]} is longer than {LONGEST_COMMENT} characters")
        if each.line is not None and each.line not in shown[each.path]:
            lines = spans(sorted(shown[each.path])) or "none"
            raise InvalidArguments(
                f"line {each.line} of {each.path[:PATH]} is not in the diff, which shows these lines of the new file:"
                f" {lines}; to comment on the file as a whole, write {on_file(each.path[:PATH])}"
            )
    return tuple(comments)


def comments_in(text: str, paths: Sequence[str]) -> tuple[Comment, ...]:
    """Read comments as a person writes them: lines `FILE:LINE: TEXT` or `FILE: TEXT`, with a file among `paths`. If
    there is only one file, `LINE: TEXT` is about it. Indented lines continue a comment; blank lines, and those that
    begin with #, are left out. Raises InvalidArguments for a line that names no file."""
    found: list[Comment] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace() and found:
            last = found[-1]
            found[-1] = Comment(last.path, f"{last.text}\n{line.strip()}", last.line)
            continue
        path = max((each for each in paths if line.startswith(f"{each}:")), key=len, default=None)
        rest = line.removeprefix(f"{path}:")
        if path is None and len(paths) == 1 and _PLACE.match(line):
            path = paths[0]
        if path is None:
            raise InvalidArguments(
                f"line {number} begins with no file of this proposal: {line[:80]}; write {how_to_comment(paths)}"
            )
        place = _PLACE.match(rest)
        said = rest[place.end() :] if place else rest
        found.append(Comment(path, said.strip(), int(place[1]) if place else None))
    return tuple(found)


def how_to_comment(paths: Sequence[object]) -> str:
    """Return how a person begins a comment on one of these files."""
    return "LINE: TEXT or FILE:LINE: TEXT" if len(paths) == 1 else "FILE:LINE: TEXT"


def _few(names: Iterable[str]) -> str:
    found = [one_line(name)[:PATH] for name in names]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def numbers_in(text: str) -> tuple[int, ...]:
    """Return the hunks that a text names, in order and once each: `1,3-5`. Raises InvalidArguments for another text,
    or none."""
    ranges: list[tuple[int, int]] = []
    for word in text.replace(",", " ").split():
        match = _NUMBERS.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 0 < first <= last:
            raise InvalidArguments(f"{word[:40]!r} is no number of a hunk; give numbers as in 1,3-5")
        ranges.append((first, last))
    found: list[int] = []
    for first, last in sorted(ranges):
        begin = max(first, found[-1] + 1) if found else first
        if last - begin + len(found) >= _MOST_NUMBERS:
            raise InvalidArguments(f"these are more than {_MOST_NUMBERS} hunks, which no card has")
        found += range(begin, last + 1)
    if not found:
        raise InvalidArguments("no hunk is named; to approve none of them, reject it instead")
    return tuple(found)


def spans(numbers: Sequence[int]) -> str:
    """Return ascending numbers as a short text: `1, 3-5`."""
    runs = groupby(enumerate(numbers), lambda each: each[1] - each[0])
    ends = [(run[0][1], run[-1][1]) for _, each in runs if (run := [*each])]
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ends)


def left_out(hunks: Sequence[HunkOfCard], numbers: Iterable[int], lines: Sequence[str]) -> tuple[Change, ...]:
    """Return what is left out of a proposal with these hunks if only `numbers` of them are approved. `lines` are those
    of its diff, without secrets: channels show what is quoted of them."""
    chosen = frozenset(numbers)
    changes: list[Change] = []
    for _, each in groupby(hunks, lambda hunk: hunk.file):
        own = [*each]
        out = tuple(_named(hunk, lines) for hunk in own if hunk.number not in chosen and hunk.range is not None)
        if not any(hunk.number in chosen for hunk in own):
            changes.append(Change(own[0].path, whole=True))
        elif out:
            changes.append(Change(own[0].path, out))
    return tuple(changes)


def _named(hunk: HunkOfCard, lines: Sequence[str]) -> str:
    """Return a hunk's header, with the first lines that it removes and adds: `@@ -1,3 +1,3 @@ (-"old", +"new")`. A
    blank line says nothing, so the first that is not is quoted."""
    own = lines[hunk.line + 1 : hunk.end]
    found = (next((line[1:] for line in own if line.startswith(mark) and line[1:].strip()), None) for mark in "-+")
    # The agent wrote these lines: they must not pass for another line of the text that names them, or another hunk.
    quoted = [f"{mark}{_quoted(line)}" for mark, line in zip("-+", found, strict=True) if line is not None]
    return f"{hunk.range} ({', '.join(quoted)})" if quoted else str(hunk.range)


def _quoted(line: str) -> str:
    text = one_line(line)
    return json.dumps(text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…", ensure_ascii=False)
