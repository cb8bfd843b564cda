"""Applying the hunks of a patch to a file's bytes: exact context, nearest place, no guesses.

Patch and file may differ only in two ways. A patch with LF line ends fits a file with CRLF, and its added lines take
the file's ends. The patch may omit the file's byte order mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, takewhile

from attrs import define, frozen

from intercom.model.errors import PatchConflict
from intercom.workspace.file_patch import Hunk, HunkLine
from intercom.workspace.lines import BOM, UTF8, Encoding, encoding_of, split

#: The most line comparisons, to find where the hunks of one file fit; they take some seconds. A patch states the place
#: of its hunks, so one that needs more is far off, or crafted to waste time.
MAX_COMPARISONS = 5_000_000


@define
class _Effort:
    left: int

    def spend(self, lines: int, path: str) -> None:
        self.left -= lines
        if self.left < 0:
            raise PatchConflict(
                f"where the patch fits {path} takes too long to find; state the line of each hunk as it is in the file",
                path=path,
            )


@frozen
class _File:
    path: str
    encoding: Encoding
    raw: list[bytes]
    text: list[str]
    bare: bool
    effort: _Effort
    known: frozenset[str]


def apply(path: str, base: bytes, hunks: Sequence[Hunk]) -> bytes:
    """Apply `hunks`, in the order of the file, to `base` and return the result.

    Raises PatchConflict with every hunk that does not fit: its number and header, what it expects and what the file
    holds there. Raises it also if the file's encoding lacks a character of an added line.
    """
    encoding = encoding_of(base)
    raw = split(base, encoding)
    text = [encoding.decode(line) for line in raw]
    ends = [line.endswith("\r\n") for line in text if line.endswith("\n")]
    # If no line can be compared: in a file with CRLF throughout, a patch without CRs is assumed to mean CRLF.
    bare = bool(ends) and all(ends) and not any("\r" in line.text for hunk in hunks for line in hunk.lines)
    known = frozenset(_without_return(line) for line in [*text, *(line.removeprefix(BOM) for line in text[:1])])
    file = _File(path, encoding, raw, text, bare, _Effort(MAX_COMPARISONS), known)
    out: list[bytes] = []
    failures: list[tuple[int, Hunk, str]] = []
    at, drift, hidden = 0, 0, False
    for number, hunk in enumerate(hunks, 1):
        place = _find(file, hunk, at, drift)
        if isinstance(place, str):
            failures.append((number, hunk, place))
            continue
        out += raw[at:place]
        out += _changed(file, hunk, place)
        hidden = hidden or _hides_mark(file, hunk, place)
        drift = place - _stated(hunk)
        at = place + len(hunk.source)
    if failures:
        raise _conflict(path, failures)
    out += raw[at:]
    mark = encoding.encode(BOM) if hidden else b""
    if out and not out[0].startswith(mark):
        out[0] = mark + out[0]
    _check_ends(path, out, encoding)
    return b"".join(out)


def _stated(hunk: Hunk) -> int:
    return hunk.start if not hunk.source else max(hunk.start - 1, 0)


def _find(file: _File, hunk: Hunk, least: int, drift: int) -> int | str:
    """Return the index of the line nearest to the stated one where the hunk fits; else why there is none."""
    source = hunk.source
    stated = _stated(hunk) + drift
    last = len(file.text) - len(source)
    if not source:
        # There is nothing to compare, so only the stated place is possible.
        ok = least <= stated <= last
        return stated if ok else f"it adds lines after line {hunk.start}, but the file has {len(file.text)} lines"
    if any(_without_return(line.text) not in file.known for line in source):
        # A line that the file does not contain fits at no place.
        return _mismatch(file, source, stated, least)
    for distance in range(max(stated - last, least - stated, 0), max(stated - least, last - stated) + 1):
        fits = [i for i in {stated - distance, stated + distance} if least <= i <= last and _fits(file, source, i)]
        if len(fits) > 1:
            a, b = sorted(i + 1 for i in fits)
            return f"it fits equally well at lines {a} and {b}"
        if fits:
            return fits[0]
    return _mismatch(file, source, stated, least)


def _fits(file: _File, source: Sequence[HunkLine], at: int) -> bool:
    equal = sum(1 for _ in takewhile(lambda i: _same(file, source[i], at + i), range(len(source))))
    file.effort.spend(equal + 1, file.path)
    return equal == len(source)


def _same(file: _File, line: HunkLine, index: int) -> bool:
    there, here = file.text[index], line.text
    if index == 0 and there.startswith(BOM) and not here.startswith(BOM):
        there = there[1:]
    return there == here or _without_return(there) == _without_return(here)


def _without_return(line: str) -> str:
    return line[:-2] + "\n" if line.endswith("\r\n") else line


def _mismatch(file: _File, source: Sequence[HunkLine], stated: int, least: int) -> str:
    begin = max(stated, least)
    index, line = next(
        (begin + i, line)
        for i, line in enumerate(source)
        if begin + i >= len(file.text) or not _same(file, line, begin + i)
    )
    there = f"is {_quoted(file.text[index])}" if index < len(file.text) else f"the file ends at line {len(file.text)}"
    return f"line {index + 1} should be {_quoted(line.text)}, but {there}"


def _quoted(line: str) -> str:
    shown = line.removesuffix("\n").removesuffix("\r")
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return f'"{shown}"' + ("" if line.endswith("\n") else " (without a newline at the end of the file)")


def _changed(file: _File, hunk: Hunk, place: int) -> Iterator[bytes]:
    source = hunk.source
    seen = [(line.text, file.text[place + i]) for i, line in enumerate(source)]
    # If the line ends of the patch agree with the file's exactly, added lines are kept as they are.
    exact = [line.endswith("\r\n") == there.endswith("\r\n") for line, there in seen if there.endswith("\n")]
    convert = not all(exact) or (not exact and file.bare)
    index, first = place, True
    for line in hunk.lines:
        if line.mark == "+":
            text = _ended_as(line.text, _ends_near(file, index)) if convert else line.text
            yield _encoded(file, text)
            first = False
        elif line.mark == "-":
            index += 1
        else:
            moved = not first and index == 0 and _hides_mark(file, hunk, place)
            yield file.encoding.encode(file.text[0][1:]) if moved else file.raw[index]
            index, first = index + 1, False


def _hides_mark(file: _File, hunk: Hunk, place: int) -> bool:
    """Whether the hunk covers the file's byte order mark without showing it. The mark then stays."""
    source = hunk.source
    return place == 0 and bool(source) and file.text[0].startswith(BOM) and not source[0].text.startswith(BOM)


def _ends_near(file: _File, index: int) -> str:
    """Return the line end of the nearest line before the place of an added line, or else after it."""
    near = chain(range(index - 1, -1, -1), range(index, len(file.text)))
    ended = next(file.text[i] for i in near if file.text[i].endswith("\n"))
    return "\r\n" if ended.endswith("\r\n") else "\n"


def _ended_as(text: str, end: str) -> str:
    if not text.endswith("\n"):
        return text
    return text.removesuffix("\n").removesuffix("\r") + end


def _encoded(file: _File, text: str) -> bytes:
    try:
        return file.encoding.encode(text)
    except UnicodeEncodeError:
        raise PatchConflict(
            f"{file.path} is written in {file.encoding.name}, which can not hold the added line {_quoted(text)}; "
            "propose the whole file to change its encoding"
        ) from None


def _check_ends(path: str, lines: list[bytes], encoding: Encoding) -> None:
    end = encoding.encode("\n")
    for number, line in enumerate(lines[:-1], 1):
        if not line.endswith(end):
            raise PatchConflict(
                f"after the patch, line {number} of {path} would have no newline though lines follow it; "
                "the patch must show the missing newline with `\\ No newline at end of file`"
            )


def _conflict(path: str, failures: list[tuple[int, Hunk, str]]) -> PatchConflict:
    named = "; ".join(f"hunk {number} ({hunk.header}): {why}" for number, hunk, why in failures[:5])
    more = f"; and {len(failures) - 5} more" if len(failures) > 5 else ""
    return PatchConflict(
        f"the patch does not fit {path}: {named}{more}",
        path=path,
        hunks=tuple({"number": number, "header": hunk.header, "why": why} for number, hunk, why in failures[:50]),
    )


def created(path: str, hunks: Sequence[Hunk]) -> bytes:
    """Return the content of a new file: the added lines of its hunks. Raises PatchConflict for any other line."""
    for number, hunk in enumerate(hunks, 1):
        if hunk.source or number > 1:
            raise _conflict(path, [(number, hunk, "it expects lines of a file that is to be new")])
    lines = [line.text.encode(UTF8.codec) for hunk in hunks for line in hunk.lines]
    _check_ends(path, lines, UTF8)
    return b"".join(lines)
