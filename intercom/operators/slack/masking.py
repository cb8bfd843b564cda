"""Secrets are masked before they leave the machine. Pure: the same text is masked the same way, and masked text stays.

Only the secret is replaced, so that a person still sees what the line is about; a diff keeps its lines and their marks.
A masked message can be shown whole on the machine itself (`agent-intercom-ctl show ID`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from attrs import frozen

if TYPE_CHECKING:
    from intercom.operators.slack.detectors import Found

PRIVATE_KEY: Final = "private key"

#: Longer lines are looked at in windows: some patterns take time by the square of a line's length. Two windows overlap
#: by more than the longest secret.
_WINDOW, _OVERLAP = 6_000, 2_000
#: Masking may bring a second secret to light, next to the first. It never took more than two rounds.
_ROUNDS = 4
#: No shorter line holds a secret with what gives it away.
_SHORTEST = 8

_MASK = re.compile(r"\[masked(?:: [A-Za-z0-9 -]{1,40})?\]")
_MARK = re.compile(r"^[+\- ]?[ \t]*")
_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
#: What stands between the two lines of a key, after a diff's mark.
_MATERIAL = re.compile(r"^[+\- ]?\s*[\"']?(?:[A-Za-z0-9+/=]{1,200}|[A-Za-z-]{1,30}: .{0,200})?(?:\\n|[\"',\\+ \t\r])*$")
#: No key has more lines than that.
_KEY_LINES = 400


@frozen
class Masked:
    """The text without its secrets, and the kind of each that was masked, in the order in which they stood."""

    text: str
    kinds: tuple[str, ...]


class Masker:
    """Masks secrets. It keeps nothing between two texts; one is as good as another."""

    def mask(self, text: str) -> Masked:
        """`text` with every secret replaced by what kind it was, as `[masked: AWS access key]`.

        The number of lines stays, and so does each line's first character where it may be a diff's mark. It costs some
        70 ms for 100 KB of code, linear in the length (of lines, too), so large texts belong beside the loop.
        """
        kinds: list[str] = []
        lines = text.split("\n")
        _mask_keys(lines, kinds)
        for index, line in enumerate(lines):
            if len(line) >= _SHORTEST:
                lines[index] = _mask_line(line, kinds)
        return Masked("\n".join(lines), tuple(kinds)) if kinds else Masked(text, ())


def _mask_line(line: str, kinds: list[str]) -> str:
    for _ in range(_ROUNDS):
        spans = _merged(line, _spans(line))
        if not spans:
            break
        parts: list[str] = []
        at = 0
        for span in spans:
            parts += [line[at : span.start], f"[masked: {span.kind}]"]
            at = span.end
            kinds.append(span.kind)
        line = "".join(parts) + line[at:]
    return line


def _spans(line: str) -> Iterator[Found]:
    find = _find()
    if len(line) <= _WINDOW:
        yield from find(line)
        return
    for start in range(0, len(line), _WINDOW - _OVERLAP):
        for found in find(line[start : start + _WINDOW]):
            yield found._replace(start=start + found.start, end=start + found.end)


def _merged(line: str, spans: Iterator[Found]) -> list[Found]:
    """The spans in order, what overlaps as one; without those that touch what is masked already, and never beginning
    with the mark of a diff's line."""
    masks = iter([match.span() for match in _MASK.finditer(line)] if "[masked" in line else [])
    begin, end = next(masks, (len(line), len(line)))
    merged: list[Found] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        start = 1 if span.start == 0 and line[0] in "+- " else span.start
        while end <= start and end < len(line):
            begin, end = next(masks, (len(line), len(line)))
        if start >= span.end or begin < span.end:
            continue
        if merged and start < merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(span.end, merged[-1].end))
        else:
            merged.append(span._replace(start=start))
    return merged


def _mask_keys(lines: list[str], kinds: list[str]) -> None:
    """Mask private keys whole, in place: from their first line to their last, also where one of the two was cut off."""
    for index, line in enumerate(lines):
        at = 0
        while "-----" in line[at:]:
            begin, end = _BEGIN.search(line, at), _END.search(line, at)
            if begin is not None and (end is None or begin.start() < end.start()):
                start = begin.start()
                end = _END.search(line, begin.end())
                if end is None:
                    _mask_below(lines, index + 1, _mark(line[:start]))
            elif end is not None:
                start = at or len(_mark(line[: end.start()]))
                _mask_above(lines, index, _mark(line[: end.start()]))
            else:
                break
            kinds.append(PRIVATE_KEY)
            head = f"{line[:start]}[masked: {PRIVATE_KEY}]"
            line = head + (line[end.end() :] if end is not None else "")
            lines[index] = line
            at = len(head)


def _mask_below(lines: list[str], first: int, mark: str) -> None:
    """Mask what follows a key's first line, up to its last; or, if there is none, as far as it looks like a key."""
    end = next((i for i in range(first, min(len(lines), first + _KEY_LINES)) if _END.search(lines[i])), None)
    for index in range(first, len(lines) if end is None else end + 1):
        line = lines[index]
        if end is None and not _MATERIAL.match(line[:1_000]):
            return
        last = _END.search(line) if index == end else None
        if line.strip("+- \t\r"):
            lines[index] = f"{_kept(line, mark)}[masked]{line[last.end() :] if last else ''}"


def _mask_above(lines: list[str], last: int, mark: str) -> None:
    """Mask what stands above a key's last line and looks like a key."""
    for index in range(last - 1, max(-1, last - 1 - _KEY_LINES), -1):
        line = lines[index]
        if len(line) < 16 or not _MATERIAL.match(line[:1_000]):
            return
        lines[index] = f"{_kept(line, mark)}[masked]"


def _mark(before: str) -> str:
    """What stands before a key's first or last line: a diff's mark and blanks."""
    match = _MARK.match(before)
    return match.group() if match else ""


def _kept(line: str, mark: str) -> str:
    """What is kept of a line of a key. Its first character is a diff's mark only if the key's first line has one: a
    line of base64 may begin with a plus sign."""
    return line[:1] if mark[:1] in ("+", "-", " ") and line[:1] in ("+", "-", " ") else ""


@cache
def _find() -> Callable[[str], Iterator[Found]]:
    # The library, and requests with it, is loaded when something is masked first: without Slack, never.
    from intercom.operators.slack.detectors import find

    return find
