"""Lines of a byte stream, read under Trio."""

from __future__ import annotations

import trio

#: The longest line of either side, in bytes: a proposal of a few large files fits.
LONGEST_LINE = 64 * 2**20


class Lines:
    """The lines of a stream. `longest` is the limit of one line in bytes; it can be changed between two lines."""

    def __init__(self, stream: trio.abc.ReceiveStream, longest: int = LONGEST_LINE) -> None:
        self.longest = longest
        self._stream = stream
        self._buffer = bytearray()
        self._searched = 0

    async def next(self) -> bytes | None:
        """Return the next line without its end; None at the end. Raises ClosedResourceError for a line over the
        limit."""
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if len(self._buffer) > self.longest:
                raise trio.ClosedResourceError("a line is too long")
            data = await self._stream.receive_some(65536)
            if not data:
                return None
            self._buffer += data
