"""Showing a file of the workspace to people: as text, bounded, through the walk that follows no link."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

from attrs import frozen

from intercom.model.errors import FileError, InvalidArguments, NotFound
from intercom.workspace.lines import encoding_of
from intercom.workspace.paths import open_parent, relative
from intercom.workspace.reading import read_at

#: The largest file that is opened for showing, and the most text that is shown of it, in bytes.
MAX_READ_BYTES = 16 * 1024 * 1024
MAX_SHOWN_BYTES = 1_000_000

#: How much of a file is looked at to tell text from other things, and the share of control characters text may have.
_LOOKED_AT = 8192
_ODD_SHARE = 0.1
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")


@frozen
class FileText:
    """`path` is canonical; `text` the lines from `first` to `last`, both counted from 1 and included (0 and 0 of an
    empty file), with "\\n" between lines; `size` in bytes and `line_count` are of the whole file."""

    path: str
    text: str
    first: int
    last: int
    line_count: int
    size: int
    modified: datetime

    @property
    def is_whole(self) -> bool:
        return self.first <= 1 and self.last == self.line_count


def show(root: Path, path: str, lines: tuple[int, int | None] | None = None) -> FileText:
    """The text of the file `path` in the workspace `root`; of `lines` (first, last or None for the end) only those.

    Raises PathViolation for a path that leads outside, NotFound for no such file, FileError for a directory, what is
    no regular file, binary, too large or not to be read, InvalidArguments for lines that the file has not.
    """
    rel = relative(root, path)
    name = rel.rsplit("/", 1)[-1]
    try:
        parent = open_parent(root, rel, create=False)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path!r} in the workspace") from None
    try:
        if _is_directory(parent, name):
            raise FileError(f"{rel} is a directory; list it with list-files")
        read = read_at(parent, name, rel, MAX_READ_BYTES)
        if read is None:
            raise NotFound(f"there is no file {path!r} in the workspace")
        modified = _modified(parent, name)
    finally:
        os.close(parent)
    if is_binary(read.data):
        raise FileError(f"{rel} is no text ({len(read.data)} bytes); only text can be shown")
    encoding = encoding_of(read.data)
    text = read.data.decode(encoding.codec, "replace").removeprefix("\ufeff")
    every = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not every[-1]:
        every.pop()
    first, last = _range(rel, len(every), lines)
    part = "\n".join(every[max(first - 1, 0) : last])
    if len(part.encode()) > MAX_SHOWN_BYTES:
        raise FileError(f"this is more than {MAX_SHOWN_BYTES} bytes of {rel}; name fewer lines with --lines 1:200")
    return FileText(rel, part, first, last, len(every), len(read.data), modified)


def is_binary(data: bytes) -> bool:
    """Whether bytes are no text: a NUL that no wide encoding explains, or many control characters."""
    if encoding_of(data).codec.startswith(("utf-16", "utf-32")):
        return False
    start = data[:_LOOKED_AT]
    if b"\0" in data:
        return True
    odd = sum((byte < 32 and byte not in _TEXT_CONTROLS) or byte == 127 for byte in start)
    return odd > len(start) * _ODD_SHARE


def read_range(text: str) -> tuple[int, int | None]:
    """`A:B`, `A:` (to the end), `:B` (from the start) or `A` (that line), counted from 1. Raises InvalidArguments."""
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
        # Gone since it was read, or dated beyond the calendar: when it changed is not worth a refusal.
        return datetime.fromtimestamp(0, UTC)
