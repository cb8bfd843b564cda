"""Reads server-sent events from bytes, as the HTML standard has them. Pure.

It takes linear time for any chunks, and never keeps more than the limit for one event. Texts stay bytes: the data of an
event is a JSON text, and its reader decodes it.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

#: Longer ids of events are ignored: they would have to fit into a header.
LONGEST_ID: Final = 1024
_BOM: Final = b"\xef\xbb\xbf"
_ENDS: Final = (b"\n", b"\r")


class EventTooLong(Exception):
    """An event is longer than the limit."""


@frozen
class Event:
    """An event that has data. `name` is `message` unless the server names it."""

    name: bytes
    data: bytes


class EventReader:
    """Reads one stream after another of the same server.

    `longest` is the most bytes of an event. `last_id` is the id of the latest event, as `Last-Event-ID` needs it, or
    None. `retry_seconds` is how long the server wants clients to wait before they connect again, or None. `count` is
    the number of events with data so far.
    """

    def __init__(self, longest: int) -> None:
        self.last_id: str | None = None
        self.retry_seconds: float | None = None
        self.count = 0
        self._longest = longest
        self.restart()

    def restart(self) -> None:
        """Begin a new stream. The last id and the time to wait are kept."""
        self._line = bytearray()
        self._data = bytearray()
        self._name = b""
        self._id: str | None = self.last_id
        self._is_first = True
        self._ended_with_cr = False

    def feed(self, chunk: bytes) -> list[Event]:
        """Take received bytes and return the events that they complete. Raises EventTooLong."""
        if self._ended_with_cr and chunk[:1] == b"\n":
            chunk = chunk[1:]
        if chunk:
            self._ended_with_cr = chunk[-1:] == b"\r"
        found = []
        # Of bytes, only these three are line ends: LF, CR, and CR LF.
        for piece in chunk.splitlines(keepends=True):
            if len(self._line) + len(self._data) + len(piece) > self._longest:
                raise EventTooLong
            self._line += piece
            if piece.endswith(_ENDS):
                line = bytes(self._line).rstrip(b"\r\n")
                self._line = bytearray()
                event = self._take(line)
                if event is not None:
                    found.append(event)
        return found

    def _take(self, line: bytes) -> Event | None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data += value
            self._data += b"\n"
        elif field == b"event":
            self._name = value
        elif field == b"id":
            self._take_id(value)
        elif field == b"retry" and value.isdigit() and len(value) < 10:
            self.retry_seconds = int(value) / 1000
        return None

    def _take_id(self, value: bytes) -> None:
        text = value.decode("latin-1")
        if len(text) <= LONGEST_ID and text.isascii() and text.isprintable():
            self._id = text or None

    def _dispatch(self) -> Event | None:
        self.last_id = self._id
        name, self._name = self._name, b""
        if len(self._data) < 2:  # no data, or an empty line of it
            self._data.clear()
            return None
        data = bytes(memoryview(self._data)[:-1])
        self._data = bytearray()
        self.count += 1
        return Event(name or b"message", data)
