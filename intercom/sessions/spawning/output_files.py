"""What an agent wrote, as its keeper keeps it: the newest of each stream, in files named by where they begin."""

from __future__ import annotations

import shutil
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from intercom.local.places import private_directory
from intercom.masking import Masker
from intercom.sessions.spawning.keeper import segment_name, segment_starts

#: How many bytes before a piece are looked at for a secret that reaches into it. No key is longer.
LEAD = 64 * 1024


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@frozen
class Piece:
    """A piece of a stream: its bytes from `start` up to `end`, which is where to go on. `start` is later than what was
    asked for where that is gone."""

    data: bytes
    start: int
    end: int


def directory_of(root: Path, session_id: str) -> Path:
    """Where the output of this session's agent is kept."""
    return root / session_id


def read_from(directory: Path, stream: Stream, start: int, limit: int) -> Piece:
    """At most `limit` bytes from byte `start` of the stream on. Blocks on the disk; never raises for what is gone."""
    starts = segment_starts(str(directory), stream.value)
    if not starts:
        return Piece(b"", start, start)
    at = max(start, starts[0])
    data = b""
    for begin, following in zip(starts, [*starts[1:], None], strict=True):
        if following is not None and at + len(data) >= following:
            continue
        if at + len(data) < begin:
            # Lost on a full disk: what came before is a piece of its own.
            break
        data += _bytes(directory / segment_name(stream.value, begin), at + len(data) - begin, limit - len(data))
        if len(data) >= limit:
            break
    if not data and (later := [begin for begin in starts if begin > at]):
        return read_from(directory, stream, later[0], limit)
    return Piece(data, at, at + len(data))


def read_tail(directory: Path, stream: Stream, lines: int, limit: int) -> Piece:
    """The last `lines` lines of the stream, and at most `limit` bytes of them."""
    end = end_of(directory, stream)
    piece = read_from(directory, stream, max(0, end - limit), limit)
    kept = piece.data.splitlines(keepends=True)[-lines:] if lines else []
    data = b"".join(kept)
    return Piece(data, piece.end - len(data), piece.end)


def end_of(directory: Path, stream: Stream) -> int:
    """How many bytes the stream has had so far."""
    starts = segment_starts(str(directory), stream.value)
    if not starts:
        return 0
    try:
        return starts[-1] + (directory / segment_name(stream.value, starts[-1])).stat().st_size
    except OSError:
        return starts[-1]


def last_words(directory: Path, streams: tuple[Stream, ...], lines: int = 8, limit: int = 1200) -> str:
    """The last lines of the first of these streams that has any, as text without secrets: it is told to people."""
    for stream in streams:
        tail = read_tail(directory, stream, lines, limit)
        text = masked_after(lead(directory, stream, tail.start), tail.data).strip()
        if text:
            return text[-limit:]
    return ""


def lead(directory: Path, stream: Stream, start: int) -> bytes:
    """What stands in the stream before byte `start`: as much as any secret is long."""
    begin = max(0, start - LEAD)
    piece = read_from(directory, stream, begin, start - begin)
    # What is gone, or what a piece lost on a full disk parts from it, does not lead up to it.
    return piece.data if piece.start + len(piece.data) == start else b""


def masked_after(before: bytes, data: bytes) -> str:
    """`data` as text without secrets, also without those that begin in what stands `before` it. If that ends within a
    line, all of that line is in the result."""
    text = (before + data).decode(errors="replace")
    return Masker().mask(text).lines(before.count(b"\n") + 1).text


def forget(directory: Path) -> None:
    """Remove all of it; nothing if it is gone."""
    shutil.rmtree(directory, ignore_errors=True)


def make(directory: Path) -> None:
    """Make the directory, and those above it, for this user alone. Raises OSError, and IpcError when one that is there
    is not this user's alone."""
    private_directory(str(directory))


def _bytes(file: Path, offset: int, size: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            return opened.read(size)
    except OSError:
        return b""
