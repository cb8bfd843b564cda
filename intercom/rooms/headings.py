"""The headings of a markdown document, where its sections begin. Pure.

It follows the block structure of CommonMark (https://spec.commonmark.org/0.31.2/, "A parsing strategy"). A heading
counts if it is in no list, quote, code or HTML block. One thing is simpler: a link reference definition is a paragraph.

The scan takes time linear in the text, whatever the text, because a room is locked while its document is written.
markdown-it-py finds the same headings (the tests compare). But a document of 1 MiB with deep quotes kept it busy for 18
seconds, and a list that is nested deeper than its limit hides all headings after it.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from attrs import frozen

_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\r|\n)|([^\r\n]+)")
_SPACES: Final = re.compile(" *")
_ATX: Final = re.compile(r"(#{1,6})(?= |$)")
_FENCE: Final = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_UNDERLINE: Final = re.compile(r"(?:=+|-+) *$")
_MARKER: Final = re.compile(r"(?:[-+*]|([0-9]{1,9})[.)])(?= |$)")
#: By character: as much of a line as can be a thematic break of it.
_BREAK: Final = {character: re.compile(rf"[{re.escape(character)} ]*") for character in "*-_"}
#: What begins an HTML block, what ends it, and a line that does. `{}` is the tag's name.
_HTML: Final = tuple(
    (re.compile(begin, re.IGNORECASE), re.compile(end, re.IGNORECASE), closing)
    for begin, end, closing in (
        (r"<(script|pre|style|textarea)(?=[ >]|$)", r"</(?:script|pre|style|textarea)>", "</{}>"),
        (r"<!--", r"-->", "-->"),
        (r"<\?", r"\?>", "?>"),
        (r"<![a-z]", r">", ">"),
        (r"<!\[CDATA\[", r"\]\]>", "]]>"),
    )
)
#: An HTML block that a blank line ends.
_HTML_BLOCK: Final = re.compile(
    r"</?(?:address|article|aside|base|basefont|blockquote|body|caption|center|col|colgroup|dd|details|dialog|dir|div|dl"
    r"|dt|fieldset|figcaption|figure|footer|form|frame|frameset|h[1-6]|head|header|hr|html|iframe|legend|li|link|main"
    r"|menu|menuitem|nav|noframes|ol|optgroup|option|p|param|search|section|summary|table|tbody|td|tfoot|th|thead|title"
    r"|tr|track|ul)(?= |/?>|$)",
    re.IGNORECASE,
)
#: The same, but it cannot follow a paragraph's line: any other tag, alone on its line.
_HTML_TAG: Final = re.compile(
    r"(?:<[a-z][a-z0-9-]*(?: +[a-z_:][a-z0-9:._-]*(?: *= *(?:[^\"'=<>`\x00-\x20]+|'[^']*'|\"[^\"]*\"))?)* */?>"
    r"|</[a-z][a-z0-9-]* *>) *$",
    re.IGNORECASE,
)
#: A quote among the open containers. The others are list items, as the width of their indentation.
_QUOTE: Final = -1


@frozen
class Heading:
    """A heading. Its lines are the characters from `start` to `end`, with the last line's end."""

    level: int
    title: str
    start: int
    end: int


@frozen
class Outline:
    """The headings of a text, and what its end leaves open.

    `closing` is a line that closes the code fence or the HTML block in which the text ends; empty if there is none.
    `in_container` says that the text ends in a list or a quote, which an indented line could continue.
    """

    headings: tuple[Heading, ...]
    closing: str
    in_container: bool


def outline(text: str) -> Outline:
    """Find the headings of a markdown text."""
    scanner = _Scanner(text)
    for match in _LINE.finditer(text):
        scanner.read(match.group(1) or match.group(3) or "", match.start(), match.end())
    closing = "" if scanner.containers or scanner.leaf not in (_Leaf.FENCE, _Leaf.HTML) else scanner.closing
    return Outline(tuple(scanner.headings), closing, bool(scanner.containers))


class _Leaf(Enum):
    """The innermost open block. An indented code block counts as none: no line depends on it."""

    NONE = auto()
    PARAGRAPH = auto()
    FENCE = auto()
    HTML = auto()


class _Scanner:
    """Reads lines, one by one, and keeps which blocks are open. Tabs are expanded, so a position is a column."""

    def __init__(self, text: str) -> None:
        self.headings: list[Heading] = []
        #: The open quotes and list items, from the outermost.
        self.containers: list[int] = []
        self.leaf = _Leaf.NONE
        #: What closes the open fence or HTML block; empty if that is a blank line.
        self.closing = ""
        self._text = text
        self._html_end: re.Pattern[str] | None = None
        #: Where the open paragraph begins, if it is in no container.
        self._paragraph = 0
        #: The innermost container is a list item without content yet: a blank line ends it.
        self._is_empty_item = False
        self._was_blank = False
        #: Up to here, no thematic break begins in this line.
        self._no_break = 0

    def read(self, line: str, start: int, end: int) -> None:
        """Read the next line, which is the text from `start` to `end`."""
        if "\t" in line:
            line = line.expandtabs(4)
        at = _indented(line, 0)
        is_blank = at == len(line)
        if is_blank and self._was_blank:
            # It changes nothing, and must not visit all containers again.
            return
        self._was_blank = is_blank
        self._no_break = 0
        position, at, kept = self._containers_of(line, at)
        is_inside = kept == len(self.containers)
        if is_inside and self.leaf is _Leaf.FENCE:
            self._read_fence(line, position, at)
        elif is_inside and self.leaf is _Leaf.HTML:
            self._read_html(line, at)
        elif at == len(line):
            del self.containers[kept:]
            self.leaf = _Leaf.NONE
            self._is_empty_item = False
        else:
            self._read_blocks(line, position, at, kept, start, end)

    def _containers_of(self, line: str, at: int) -> tuple[int, int, int]:
        """Return the position behind the open containers that the line continues, that of the next character that is
        no space, and the number of these containers."""
        position = kept = 0
        for width in self.containers:
            if width == _QUOTE:
                if at - position > 3 or not line.startswith(">", at):
                    break
                position = _behind_quote(line, at)
                at = _indented(line, position)
            elif at == len(line):
                if self._is_empty_item and kept == len(self.containers) - 1:
                    break
            elif at - position >= width:
                position += width
            else:
                break
            kept += 1
        return position, at, kept

    def _read_fence(self, line: str, position: int, at: int) -> None:
        if at - position <= 3:
            marks = line[at:].rstrip(" ")
            if len(marks) >= len(self.closing) and not marks.strip(self.closing[0]):
                self.leaf = _Leaf.NONE

    def _read_html(self, line: str, at: int) -> None:
        if at == len(line) if self._html_end is None else self._html_end.search(line, at):
            self.leaf = _Leaf.NONE

    def _read_blocks(self, line: str, position: int, at: int, kept: int, start: int, end: int) -> None:
        """Read a line that is not blank behind the containers that it continues, and not in a fence or HTML."""
        is_inside = kept == len(self.containers)
        containers = self.containers[:kept]
        # A paragraph goes on in the next line, also where a container's mark is missing, unless a block begins there.
        continues = self.leaf is _Leaf.PARAGRAPH
        while at < len(line) and at - position <= 3:
            if self._read_leaf(line, at, start, end, not containers, continues, continues and is_inside):
                self.containers = containers
                self._is_empty_item = False
                return
            if line[at] == ">":
                containers.append(_QUOTE)
                position = _behind_quote(line, at)
                at = _indented(line, position)
            elif (mark := _MARKER.match(line, at)) is not None:
                behind = _indented(line, mark.end())
                if continues and is_inside and not _may_interrupt(mark, behind == len(line)):
                    break
                spaces = behind - mark.end()
                if spaces > 4 or behind == len(line):
                    spaces = 1
                containers.append(mark.end() + spaces - position)
                position, at = mark.end() + spaces, behind
            else:
                break
            continues = False
        if continues:
            return
        self.containers = containers
        self._is_empty_item = at == len(line) and containers[-1] != _QUOTE
        if at == len(line) or at - position > 3:
            self.leaf = _Leaf.NONE
        else:
            self.leaf = _Leaf.PARAGRAPH
            self._paragraph = start

    def _read_leaf(
        self, line: str, at: int, start: int, end: int, is_outermost: bool, continues: bool, is_inside: bool
    ) -> bool:
        """Read a block that holds no others, if one begins or ends at `at`. `is_inside` says that an underline here is
        the paragraph's; `continues`, that without a block here the line continues a paragraph."""
        character = line[at]
        if character == "#" and (match := _ATX.match(line, at)):
            if is_outermost:
                self.headings.append(Heading(len(match.group()), _atx_title(line[match.end() :]), start, end))
        elif character in "`~" and (match := _FENCE.match(line, at)):
            self.leaf, self.closing = _Leaf.FENCE, match.group(1) or match.group(2)
            return True
        elif character == "<" and self._begins_html(line, at, continues):
            return True
        elif is_inside and character in "=-" and _UNDERLINE.match(line, at):
            if is_outermost:
                title = " ".join(self._text[self._paragraph : start].split())
                self.headings.append(Heading(1 if character == "=" else 2, title, self._paragraph, end))
        elif character not in "*-_" or not self._is_break(line, at):
            return False
        self.leaf = _Leaf.NONE
        return True

    def _is_break(self, line: str, at: int) -> bool:
        # Each list item in a line like "- - - x" asks, and the answer is found once.
        if at < self._no_break:
            return False
        run = _BREAK[line[at]].match(line, at)
        self._no_break = run.end() if run else at
        return self._no_break == len(line) and line.count(line[at], at) >= 3

    def _begins_html(self, line: str, at: int, continues: bool) -> bool:
        for begin, html_end, closing in _HTML:
            if match := begin.match(line, at):
                self.leaf = _Leaf.NONE if html_end.search(line, at) else _Leaf.HTML
                self._html_end, self.closing = html_end, closing.format(*match.groups())
                return True
        if _HTML_BLOCK.match(line, at) or (not continues and _HTML_TAG.match(line, at)):
            self.leaf, self._html_end, self.closing = _Leaf.HTML, None, ""
            return True
        return False


def _indented(line: str, position: int) -> int:
    """Return the position of the first character that is no space."""
    spaces = _SPACES.match(line, position)
    return spaces.end() if spaces else position


def _behind_quote(line: str, at: int) -> int:
    """Return the position behind a quote's mark and the one space that belongs to it."""
    return at + (2 if line.startswith(" ", at + 1) else 1)


def _may_interrupt(mark: re.Match[str], is_empty: bool) -> bool:
    """Whether a list may begin here, where a paragraph would go on otherwise."""
    return not is_empty and (mark.group(1) is None or int(mark.group(1)) == 1)


def _atx_title(rest: str) -> str:
    """Return the title in what follows the marks of a heading: without the marks that may close it."""
    title = rest.strip(" ")
    bare = title.rstrip("#")
    return bare.rstrip(" ") if not bare or bare.endswith(" ") else title
