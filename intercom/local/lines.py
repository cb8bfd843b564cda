"""JSON lines: one value per line, UTF-8, ended by a line feed, with a size limit. No I/O."""

from __future__ import annotations

import json
from typing import Any

MEBIBYTE = 1024 * 1024


class LineTooLong(ValueError):
    """A line exceeded the limit. The part received so far is dropped, and its rest will be skipped."""


class LineBuffer:
    """Splits a stream of bytes into lines.

    `limit` is the maximum number of bytes in a line, without its line feed. Add received bytes with `feed`, then call
    `next_line` until it returns None.
    """

    __slots__ = ("_buffer", "_limit", "_scanned", "_skipping")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._skipping = False

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next_line(self) -> bytes | None:
        """Return the next complete line without its end, or None if there is none yet.

        Blank lines are skipped. Raises LineTooLong once for each line over the limit; the next call continues after it.
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
        """The bytes after the last complete line."""
        return b"" if self._skipping else bytes(self._buffer)


def encode(value: object) -> bytes:
    """Encode one value as a line.

    Raises ValueError for what JSON cannot represent: not-a-number, infinities, and text with half a surrogate pair.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except UnicodeEncodeError:
        raise ValueError("a text holds half a surrogate pair") from None
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def decode(line: bytes) -> Any:
    """Decode one line. Raises ValueError with a message for invalid JSON, which includes NaN and Infinity."""
    try:
        return json.loads(line, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
