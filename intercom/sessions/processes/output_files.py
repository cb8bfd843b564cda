"""An agent's output as its process monitor stores it: the newest of each stream, in files named by offset."""

from __future__ import annotations

import shutil
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from intercom.local.places import private_directory
from intercom.masking import Masker
from intercom.sessions.processes.monitor import segment_name, segment_starts

#: How many bytes before a piece are searched for a secret that reaches into it. No key is longer.
LEAD = 64 * 1024


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@frozen
class Piece:
    """A piece of a stream: its bytes from `start` up to `end`, where reading continues. `start` is later than requested
    if that part is gone."""

    data: bytes
    start: int
    end: int


def directory_of(root: Path, session_id: str) -> Path:
    """Return the directory of this session's output."""
    return root / session_id


def read_from(directory: Path, stream: Stream, start: int, limit: int) -> Piece:
    """Return at most `limit` bytes of the stream from byte `start` on. Blocks. Never raises for missing parts."""
    starts = segment_starts(str(directory), stream.value)
    if not starts:
        return Piece(b"", start, start)
    at = max(start, starts[0])
    data = b""
    for begin, following in zip(starts, [*starts[1:], None], strict=True):
        if following is not None and at + len(data) >= following:
            continue
        if at + len(data) < begin:
            # A part was lost on a full disk: what came before is a piece of its own.
            break
        data += _bytes(directory / segment_name(stream.value, begin), at + len(data) - begin, limit - len(data))
        if len(data) >= limit:
            break
    if not data and (later := [begin for begin in starts if begin > at]):
        return read_from(directory, stream, later[0], limit)
    return Piece(data, at, at + len(data))


def read_tail(directory: Path, stream: Stream, lines: int, limit: int) -> Piece:
    """Return the last `lines` lines of the stream, at most `limit` bytes of them."""
    end = end_of(directory, stream)
    piece = read_from(directory, stream, max(0, end - limit), limit)
    kept = piece.data.splitlines(keepends=True)[-lines:] if lines else []
    data = b"".join(kept)
    return Piece(data, piece.end - len(data), piece.end)


def end_of(directory: Path, stream: Stream) -> int:
    """Return how many bytes the stream has had so far."""
    starts = segment_starts(str(directory), stream.value)
    if not starts:
        return 0
    try:
        return starts[-1] + (directory / segment_name(stream.value, starts[-1])).stat().st_size
    except OSError:
        return starts[-1]


def last_words(directory: Path, streams: tuple[Stream, ...], lines: int = 8, limit: int = 1200) -> str:
    """Return the last lines of the first non-empty stream, as text with secrets masked: people are shown it."""
    for stream in streams:
        tail = read_tail(directory, stream, lines, limit)
        text = masked_after(lead(directory, stream, tail.start), tail.data).strip()
        if text:
            return text[-limit:]
    return ""


def lead(directory: Path, stream: Stream, start: int) -> bytes:
    """Return what precedes byte `start` of the stream: at most `LEAD` bytes."""
    begin = max(0, start - LEAD)
    piece = read_from(directory, stream, begin, start - begin)
    # If a part in between is gone, what precedes it does not lead up to the piece.
    return piece.data if piece.start + len(piece.data) == start else b""


def masked_after(before: bytes, data: bytes) -> str:
    """Return `data` as text with secrets masked, also those that begin `before` it. If `before` ends within a line, the
    result holds all of that line."""
    text = (before + data).decode(errors="replace")
    return Masker().mask(text).lines(before.count(b"\n") + 1).text


def forget(directory: Path) -> None:
    """Remove the directory, if it exists."""
    shutil.rmtree(directory, ignore_errors=True)


def make(directory: Path) -> None:
    """Create the directory and its parents for this user alone. Raises OSError, and IpcError if an existing one is open
    to others."""
    private_directory(str(directory))


def _bytes(file: Path, offset: int, size: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(size)
    except OSError:
        return b""
