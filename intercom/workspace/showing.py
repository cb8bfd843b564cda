"""A file of the workspace as text for people: limited in size, masked, without following links."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from intercom.masking import Masked, Masker
from intercom.model.errors import FileError, InvalidArguments, NotFound
from intercom.workspace.descriptors import opened_parent, opened_root
from intercom.workspace.lines import encoding_of
from intercom.workspace.paths import relative
from intercom.workspace.reading import read_at

#: The largest file that is shown, and the most text that is shown of it, in bytes.
MAX_READ_BYTES = 16 * 1024 * 1024
MAX_SHOWN_BYTES = 1_000_000

#: Files up to this many characters are masked whole; in larger ones, how many are masked around the shown lines.
_MASKED_WHOLE = 2_000_000
_SURROUNDINGS = 256_000

#: How many bytes are examined to recognise text, and the share of control characters that text may have.
_LOOKED_AT = 8192
_ODD_SHARE = 0.1
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")


@frozen
class FileText:
    r"""Lines of a file, without secrets.

    `path` is canonical. `text` holds the lines from `first` to `last`, counted from 1 and inclusive (0 and 0 for an
    empty file), separated by "\n". `masked` are the kinds of secrets removed. `size` (bytes) and `line_count` are of
    the whole file.
    """

    path: str
    text: str
    masked: tuple[str, ...]
    first: int
    last: int
    line_count: int
    size: int
    modified: datetime

    @property
    def is_whole(self) -> bool:
        return self.first <= 1 and self.last == self.line_count


def show(root: Path, path: str, lines: tuple[int, int | None] | None = None) -> FileText:
    """Return the text of the file `path` in the workspace `root`, or its `lines` (first, last or None for the end).

    The file is masked before lines are taken from it, because the middle of a key would not be recognised.

    Raises PathViolation if the path leads outside, NotFound if there is no file, InvalidArguments if the lines do not
    exist. Raises FileError if the file is a directory, not regular, binary, too large or unreadable.
    """
    rel = relative(root, path)
    name = rel.rsplit("/", 1)[-1]
    try:
        with opened_root(root) as top, opened_parent(top, rel) as parent:
            if _is_directory(parent, name):
                raise FileError(f"{rel} is a directory; list it with list-files")
            read = read_at(parent, name, rel, MAX_READ_BYTES)
            modified = _modified(parent, name)
    except FileNotFoundError:
        read = None
    if read is None:
        raise NotFound(f"there is no file {path!r} in the workspace")
    if is_binary(read.data):
        raise FileError(f"{rel} is no text ({len(read.data)} bytes); only text can be shown")
    encoding = encoding_of(read.data)
    text = read.data.decode(encoding.codec, "replace").removeprefix("\ufeff")
    every = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not every[-1]:
        every.pop()
    first, last = _range(rel, len(every), lines)
    if len("\n".join(every[max(first - 1, 0) : last]).encode()) > MAX_SHOWN_BYTES:
        raise FileError(f"this is more than {MAX_SHOWN_BYTES} bytes of {rel}; name fewer lines with --lines 1:200")
    shown = _masked(every, max(first, 1), last)
    return FileText(rel, shown.text, shown.kinds, first, last, len(every), len(read.data), modified)


def _masked(every: list[str], first: int, last: int) -> Masked:
    """Return the lines from `first` to `last`, masked together with all lines that a secret may extend over."""
    start, end = first - 1, last
    if sum(map(len, every)) <= _MASKED_WHOLE:
        start, end = 0, len(every)
    else:
        start, end = _wider(every, start, -1), _wider(every, end, 1)
    return Masker().mask("\n".join(every[start:end])).lines(first - start, last - start)


def _wider(every: list[str], at: int, step: int) -> int:
    """Return the line so far from line `at`, in the direction of `step`, that any secret fits between them."""
    room = _SURROUNDINGS
    while room > 0 and 0 <= at - (step < 0) < len(every):
        room -= len(every[at - (step < 0)]) + 1
        at += step
    return at


def is_binary(data: bytes) -> bool:
    """Whether bytes are not text: they have a NUL that no wide encoding explains, or many control characters."""
    if encoding_of(data).codec.startswith(("utf-16", "utf-32")):
        return False
    start = data[:_LOOKED_AT]
    if b"\0" in data:
        return True
    odd = sum((byte < 32 and byte not in _TEXT_CONTROLS) or byte == 127 for byte in start)
    return odd > len(start) * _ODD_SHARE


def read_range(text: str) -> tuple[int, int | None]:
    """Parse `A:B`, `A:` (to the end), `:B` (from the start) or `A`, counted from 1. Raises InvalidArguments."""
    first, colon, last = text.partition(":")
    if all(part == "" or (part.isascii() and part.isdecimal() and len(part) < 10) for part in (first, last)) and (
        first or last
    ):
        begin = int(first or 1)
        end = (int(last) if last else None) if colon else begin
        if begin >= 1 and (end is None or end >= begin):
            return begin, end
    raise InvalidArguments(f"lines are named A:B, counted from 1, as in 10:50, not {text[:40]!r}")


def _range(rel: str, count: int, lines: tuple[int, int | None] | None) -> tuple[int, int]:
    if lines is None:
        return min(1, count), count
    first, last = lines
    if first > count:
        raise InvalidArguments(f"{rel} has {count} lines; line {first} is beyond its end")
    return first, min(last or count, count)


def _is_directory(parent: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _modified(parent: int, name: str) -> datetime:
    try:
        return datetime.fromtimestamp(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        # Deleted since it was read, or dated beyond datetime's range: the time is not worth a refusal.
        return datetime.fromtimestamp(0, UTC)
