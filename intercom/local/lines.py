"""JSON lines: one value a line, UTF-8, ended by a line feed, with a limit. No I/O."""

from __future__ import annotations

import json
from typing import Any

MEBIBYTE = 1024 * 1024


class LineTooLong(ValueError):
    """A line went over the limit; what came of it so far is forgotten and its rest will be skipped."""


class LineBuffer:
    """Cuts a stream of bytes into lines.

    `limit` is the most bytes a line may have, without its line feed. Feed what arrives with `feed`, then take lines
    with `next_line` until it returns None.
    """

    __slots__ = ("_buffer", "_limit", "_scanned", "_skipping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._skipping = False

    def feed(self, data: bytes) -> None:
        """Take in what arrived."""
        self._buffer += data

    def next_line(self) -> bytes | None:
        """Take the next whole line, without its end; None when there is none yet.

        Blank lines are skipped. Raises LineTooLong once for a line over the limit; the lines behind it come after.
        """
        while True:
            end = self._buffer.find(b"\n", self._scanned)
            if end < 0:
                self._keep_looking()
                return None
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            self._scanned = 0
            if self._skipping:
                self._skipping = False
                continue
            if len(line) > self._limit:
                raise LineTooLong(f"a line has more than {self._limit} bytes")
            line = line.removesuffix(b"\r")
            if line and not line.isspace():
                return line

    def _keep_looking(self) -> None:
        if self._skipping:
            self._buffer.clear()
        self._scanned = len(self._buffer)
        if self._scanned > self._limit:
            self._buffer.clear()
            self._scanned = 0
            self._skipping = True
            raise LineTooLong(f"a line has more than {self._limit} bytes")

    @property
    def partial(self) -> bytes:
        """What stands behind the last whole line taken."""
        return b"" if self._skipping else bytes(self._buffer)


def encode(value: object) -> bytes:
    """Write one value as a line.

    Raises ValueError for what JSON can not carry: not-a-number, infinities, and text with half a surrogate pair.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair") from None
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def decode(line: bytes) -> Any:
    """Read one line; raises ValueError, with a sentence, for what is no JSON (including NaN and Infinity)."""
    try:
        return json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
