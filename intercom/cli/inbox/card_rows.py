"""The text of a card as rows of a screen: its lines, wrapped at a width, with the diff's syntax in colour. Pure.

Nothing is cut: a long line takes several rows. The first column is ours on every row: it is empty where a line begins
and holds an arrow where one continues. So no text of an agent can look like a line of its own.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

from attrs import frozen
from rich.cells import cell_len, get_character_cell_size
from rich.text import Text

from intercom.cli import ctl_draw
from intercom.model.card import Card
from intercom.model.visible_text import visible_line

if TYPE_CHECKING:
    from pygments.lexer import Lexer

#: What stands in the first column of a row that continues a line.
CONTINUES = "↪"
#: The columns of the gutter.
GUTTER = 2
_TAB = 8
#: The fewest columns that text is wrapped at.
_NARROWEST = 8
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
#: A card of so many lines is not drawn again for its age.
LONG_CARD = 2000
#: A longer line is not coloured: a lexer may need long for it.
_LONGEST = 500
#: The lexers, by the end of a file's name. No others are used: an agent chooses the name and the text, and some lexers
#: need seconds for a line that is made for them.
_LEXERS = {
    ".py": "python",
    ".pyi": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".jsx": "javascript",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".json": "json",
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".ini": "ini",
    ".cfg": "ini",
    ".html": "html",
    ".xml": "xml",
    ".css": "css",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".hpp": "cpp",
    ".java": "java",
    ".kt": "kotlin",
    ".go": "go",
    ".rs": "rust",
    ".rb": "ruby",
    ".php": "php",
    ".sh": "bash",
    ".bash": "bash",
    ".sql": "sql",
}

#: The style of the tokens of source text, by the first part of the token's name that is listed.
_TOKEN_STYLES = {
    "Comment": "bright_black",
    "Keyword": "magenta",
    "String": "yellow",
    "Number": "cyan",
    "Function": "blue",
    "Class": "blue",
    "Decorator": "blue",
    "Builtin": "cyan",
}


class Part(Enum):
    """What a line of a diff is."""

    HEADER = "header"
    HUNK = "hunk"
    CONTEXT = " "
    ADDED = "+"
    REMOVED = "-"
    NOTE = "note"


@frozen
class DiffLine:
    """A line of a diff: what it is, its file, and its number in the file before the change, from 1."""

    part: Part
    path: str
    old: int


def parse_diff(lines: Sequence[str]) -> Iterator[DiffLine]:
    """Yield what each line of a diff is. A hunk's line counts tell its lines from headers."""
    path, at, old, new = "", 0, 0, 0
    for line in lines:
        if old > 0 or new > 0:
            first = line[:1]
            if first == "\\":
                yield DiffLine(Part.NOTE, path, at)
                continue
            part = {"+": Part.ADDED, "-": Part.REMOVED}.get(first, Part.CONTEXT)
            yield DiffLine(part, path, at)
            is_old, is_new = part is not Part.ADDED, part is not Part.REMOVED
            old, new, at = old - is_old, new - is_new, at + is_old
            continue
        hunk = _HUNK.match(line)
        if hunk:
            start, old_count, _, new_count = hunk.groups()
            old, new = int(old_count or 1), int(new_count or 1)
            at = int(start) + (old == 0)
            yield DiffLine(Part.HUNK, path, at)
            continue
        if line.startswith(("--- a/", "+++ b/")):
            path = line[6:]
        elif line.startswith("diff --git "):
            path = ""
        yield DiffLine(Part.NOTE if line.startswith("\\") else Part.HEADER, path, at)


class CardText:
    """The lines of a card, or of one of its files with the change in place.

    `lines` are the lines, without a line feed. `numbers` are their numbers among the card's own lines, None for a line
    that is not of the card. `size` is how many lines the card has.
    """

    def __init__(
        self, lines: list[Text], diff: Sequence[DiffLine | None], numbers: Sequence[int | None], size: int
    ) -> None:
        self.lines = lines
        self.numbers = numbers
        self.size = size
        self._diff = diff

    @classmethod
    def of(cls, card: Card, at: datetime) -> CardText:
        """Return the text of a card. Ages are relative to `at`."""
        lines: list[Text] = []
        for text in ctl_draw.card_lines(card, at):
            lines += text.split("\n", allow_blank=True) if "\n" in text.plain else [text]
        lines = [_without_tabs(line) for line in lines]
        diff: list[DiffLine | None] = [None] * len(lines)
        if card.diff and not card.diff_omitted and not card.diff_from_agent:
            shown = card.diff.removesuffix("\n").split("\n")
            diff[len(lines) - len(shown) :] = parse_diff(shown)
        return cls(lines, diff, range(len(lines)), len(lines))

    def path_at(self, line: int) -> str:
        """Return the file whose change stands at this line; for a line above the diff the first file. Empty if the
        card has no diff."""
        following = (each for each in self._diff[max(0, line) :] if each is not None and each.path)
        return next((each.path for each in following), "")

    def in_file(self, path: str, text: str) -> CardText | None:
        """Return the whole file with the change in place. `text` is the file before the change. Returns None if the
        diff does not fit that text."""
        old = [visible_line(line) for line in text.removesuffix("\n").split("\n")] if text else []
        lines: list[Text] = []
        diff: list[DiffLine | None] = []
        numbers: list[int | None] = []
        place = 1

        def add(text: Text, line: DiffLine, number: int | None) -> None:
            lines.append(text)
            diff.append(line)
            numbers.append(number)

        def add_old(until: int) -> None:
            nonlocal place
            while place < min(until, len(old) + 1):
                add(_without_tabs(Text(f" {old[place - 1]}", no_wrap=True)), DiffLine(Part.CONTEXT, path, place), None)
                place += 1

        for number, each in enumerate(self._diff):
            if each is None or each.path != path or each.part is Part.HEADER:
                if each is None or each.path == path:
                    lines.append(self.lines[number])
                    diff.append(each)
                    numbers.append(self.numbers[number])
                continue
            if each.part in (Part.HUNK, Part.ADDED):
                add_old(each.old)
            if each.part in (Part.CONTEXT, Part.REMOVED):
                before = Text(f"{self.lines[number].plain[:1] or ' '}{old[place - 1]}") if place <= len(old) else None
                if before is None or each.old != place or _without_tabs(before).plain != self.lines[number].plain:
                    return None
                place += 1
            add(self.lines[number], each, self.numbers[number])
        add_old(len(old) + 1)
        return CardText(lines, diff, numbers, self.size)

    def first_change(self) -> int:
        """Return the number of the first line that changes something; 0 if there is none."""
        changes = (Part.ADDED, Part.REMOVED)
        found = (at for at, each in enumerate(self._diff) if each is not None and each.part in changes)
        return next(found, 0)

    def styled(self, line: int) -> Text:
        """Return a line with its syntax in colour."""
        text, diff = self.lines[line], self._diff[line]
        if diff is None or diff.part not in (Part.CONTEXT, Part.ADDED) or len(text.plain) > _LONGEST:
            return text
        lexer = lexer_of(diff.path)
        if lexer is None:
            return text
        text = text.copy()
        at = 1
        for kind, value in lexer.get_tokens(text.plain[1:]):
            name = str(kind)
            style = next((style for part, style in _TOKEN_STYLES.items() if part in name), "")
            if style:
                text.stylize(style, at, at + len(value))
            at += len(value)
        return text


def lexer_of(path: str) -> Lexer | None:
    """Return the lexer for a file of this name; None if there is none."""
    name = _LEXERS.get(os.path.splitext(path)[1].lower())
    return None if name is None else _lexer(name)


@lru_cache(len(_LEXERS))
def _lexer(name: str) -> Lexer:
    from pygments.lexers import get_lexer_by_name

    # The tokens must be the line itself: the offsets of the colours come from them.
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


class Rows:
    """Lines wrapped at a width. Row numbers begin at 0. Only the rows that are asked for are made."""

    def __init__(self, lines: Sequence[Text], width: int) -> None:
        self.width = max(_NARROWEST, width)
        self._breaks = [breaks(line.plain, self.width - GUTTER, at_words=not line.no_wrap) for line in lines]
        self._first: list[int] = []
        at = 0
        for found in self._breaks:
            self._first.append(at)
            at += len(found) + 1
        self._count = at

    def __len__(self) -> int:
        return self._count

    def line_at(self, row: int) -> int:
        """Return the number of the line that a row belongs to."""
        return bisect_right(self._first, row) - 1

    def span(self, line: int) -> range:
        """Return the rows of a line."""
        return range(self._first[line], self._first[line] + len(self._breaks[line]) + 1)

    def row(self, at: int, text: Text) -> Text:
        """Return a row. `text` is its line."""
        line = self.line_at(at)
        part = at - self._first[line]
        ends = (0, *self._breaks[line], len(text.plain))
        shown = text[ends[part] : ends[part + 1]] if len(ends) > 2 else text
        # Its style is that of the gutter, not of the whole row.
        row = Text().append(f"{CONTINUES} ", "bright_black") if part else Text(" " * GUTTER)
        row.append_text(shown)
        row.no_wrap = True
        return row


def breaks(text: str, width: int, *, at_words: bool) -> tuple[int, ...]:
    """Return where a line has to be broken so that no part is wider than `width` cells: the offsets of the parts after
    the first. A character that is wider than that has a part of its own."""
    width = max(1, width)
    if (len(text) <= width and text.isascii()) or cell_len(text) <= width:
        return ()
    found: list[int] = []
    start = cells = 0
    space = -1
    for at, character in enumerate(text):
        size = get_character_cell_size(character)
        if cells + size > width and at > start:
            start = space + 1 if at_words and space > start else at
            found.append(start)
            cells = cell_len(text[start:at])
        cells += size
        if character == " ":
            space = at
    return tuple(found)


def _without_tabs(text: Text) -> Text:
    if "\t" in text.plain:
        text = text.copy()
        text.expand_tabs(_TAB)
    return text
