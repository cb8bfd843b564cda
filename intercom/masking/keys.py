"""Masking of multi-line private keys: PEM, OpenSSH, PGP, PuTTY, and these in base64. Each line is masked separately."""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import takewhile
from typing import Final

KIND: Final = "private key"

_LABEL = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?"
_BEGIN = re.compile(rf"-----BEGIN {_LABEL}-----|---- BEGIN {_LABEL} ----")
_END = re.compile(rf"-----END {_LABEL}-----|---- END {_LABEL} ----")
_PUTTY = re.compile(r"^(?P<mark>[+\- ]?[ \t]*)Private-Lines: (?P<count>\d{1,4})\s*$")
_PUTTY_MAC = re.compile(r"^[+\- ]?[ \t]*Private-(?:MAC|Hash): (?P<value>[0-9a-f]{20,128})")
#: The first line of a PEM file that `base64` encoded and wrapped.
_WRAPPED = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{40,80}$")
_BASE64_LINE = re.compile(r"^[+\- ]?[ \t]*[A-Za-z0-9+/]{2,80}={0,2}\s*$")
_MARK = re.compile(r"^[+\- ]?[ \t]*")
#: A line of key material between the first and the last line, after a diff mark.
_MATERIAL = re.compile(
    r"^[+\- ]?\s*[\"']?(?:[A-Za-z0-9+/=]{1,200}"
    r"|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|(?:Key|X)-[A-Za-z-]{1,20}): .{0,200})?"
    r"(?:\\n|[\"',\\+ \t\r])*$"
)
#: Characters that no key contains, even on one line.
_CODE = re.compile(r"[(){}$`;|<>&]")
#: Possible key material within a line that also contains something else.
_PART = re.compile(r"[A-Za-z0-9+/=]{16,}")
#: The maximum number of lines of a key.
_KEY_LINES = 400
#: "PRIVATE KEY" in base64, in each of the three alignments.
_ALIGNMENTS = ("UFJJVkFURSBLR", "BSSVZBVEUgS0", "QUklWQVRFIEtF")


def mask(text: str, kinds: list[str]) -> str:
    """Mask every private key in `text`, from its first to its last line, also if one of the two is missing."""
    pem, putty = "PRIVATE KEY", "Private-"
    wrapped = "LS0tLS1CRUdJTi" in text
    if pem not in text and putty not in text and not wrapped:
        return text
    lines = text.split("\n")
    if pem in text:
        _mask_pem(lines, kinds)
    if putty in text:
        _mask_putty(lines, kinds)
    if wrapped:
        _mask_wrapped(lines, kinds)
    return "\n".join(lines)


def _mask_pem(lines: list[str], kinds: list[str]) -> None:
    ends = [index for index, line in enumerate(lines) if "----" in line and _END.search(line)]
    for index, line in enumerate(lines):
        at = 0
        while "----" in line[at:]:
            begin, end = _BEGIN.search(line, at), _END.search(line, at)
            if begin is not None and (end is None or begin.start() < end.start()):
                start = begin.start()
                end = _END.search(line, begin.end())
                if end is None:
                    _mask_below(lines, index + 1, _mark(line[:start]), ends)
            elif end is not None:
                start = at or len(_mark(line[: end.start()]))
                _mask_above(lines, index, _mark(line[: end.start()]))
            else:
                break
            kinds.append(KIND)
            head = f"{line[:start]}[masked: {KIND}]"
            if begin is not None and end is not None and _CODE.search(line, begin.end(), end.start()):
                # This line contains other text, which must stay visible.
                head += _PART.sub("[masked]", line[begin.end() : end.start()])
            tail = line[end.end() :] if end is not None else _after_begin(line[begin.end() :] if begin else "")
            line = head + tail
            lines[index] = line
            at = len(head)


def _after_begin(rest: str) -> str:
    """Return the part to keep of the line after a key's first marker, if its last marker is on another line."""
    return "" if len(rest) > 16 else rest if not rest.strip("\\n\"', +") else ""


def _mask_below(lines: list[str], first: int, mark: str, ends: list[int]) -> None:
    """Mask the lines after a key's first line, up to its last line (from `ends`). Without a last line, mask as far as
    the text looks like a key."""
    after = bisect_left(ends, first)
    end = ends[after] if after < len(ends) and ends[after] < first + _KEY_LINES else None
    if end is not None and not _END.search(lines[end]):
        # Already masked as part of another key.
        end = None
    for index in range(first, len(lines) if end is None else end + 1):
        line = lines[index]
        if end is None and not _MATERIAL.match(line[:1_000]):
            return
        last = _END.search(line) if index == end else None
        inner = line if last is None else line[: last.start()].rstrip(" \t/#;*-")
        if not _MATERIAL.match(inner[:1_000]):
            # This line is not key material. Text between a key's lines must stay visible to the person who decides.
            lines[index] = _PART.sub("[masked]", line) if last is None else _without_key(line, last)
        elif line.strip("+- \t\r"):
            lines[index] = f"{_diff_mark(line, mark)}[masked]{line[last.end() :] if last else ''}"


def _without_key(line: str, last: re.Match[str]) -> str:
    """Mask a key's last line, but keep the other text before its end marker."""
    return f"{_PART.sub('[masked]', line[: last.start()])}[masked]{line[last.end() :]}"


def _mask_above(lines: list[str], last: int, mark: str) -> None:
    """Mask the lines above a key's last line that look like a key."""
    for index in range(last - 1, max(-1, last - 1 - _KEY_LINES), -1):
        line = lines[index]
        if len(line) < 16 or not _MATERIAL.match(line[:1_000]):
            return
        lines[index] = f"{_diff_mark(line, mark)}[masked]"


def _mask_putty(lines: list[str], kinds: list[str]) -> None:
    for index, line in enumerate(lines):
        head = _PUTTY.match(line)
        if head is not None:
            following = range(index + 1, min(len(lines), index + 1 + int(head["count"])))
            material = list(takewhile(lambda each: _BASE64_LINE.match(lines[each][:200]), following))
            for each in material:
                lines[each] = f"{_diff_mark(lines[each], head['mark'])}[masked]"
            if material:
                kinds.append(KIND)
                lines[material[0]] = f"{_diff_mark(lines[material[0]], head['mark'])}[masked: {KIND}]"
        mac = _PUTTY_MAC.match(line)
        if mac is not None:
            kinds.append(KIND)
            lines[index] = f"{line[: mac.start('value')]}[masked: {KIND}]{line[mac.end('value') :]}"


def _mask_wrapped(lines: list[str], kinds: list[str]) -> None:
    for index, line in enumerate(lines):
        first = _WRAPPED.search(line) if len(line) < 400 else None
        if first is None:
            continue
        # The first two lines show the kind of the file.
        label = first.group() + "".join(
            line.strip("+- \t\r") for line in lines[index + 1 : index + 2] if len(line) < 400
        )
        if not any(alignment in label for alignment in _ALIGNMENTS):
            continue
        following = index + 1
        while following < min(len(lines), index + _KEY_LINES) and _BASE64_LINE.match(lines[following][:200]):
            following += 1
        kinds.append(KIND)
        mark = _mark(line[: first.start()])
        lines[index] = f"{line[: first.start()]}[masked: {KIND}]"
        for each in range(index + 1, following):
            lines[each] = f"{_diff_mark(lines[each], mark)}[masked]"


def _mark(before: str) -> str:
    """Return the text before a key's first or last line: a diff mark and blanks."""
    match = _MARK.match(before)
    return match.group() if match else ""


def _diff_mark(line: str, mark: str) -> str:
    """Return the part to keep of a key's line: its diff mark. The first character is a diff mark only if the key's
    first line has one, because a base64 line may start with a plus sign."""
    return line[:1] if mark[:1] in ("+", "-", " ") and line[:1] in ("+", "-", " ") else ""
