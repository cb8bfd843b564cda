"""One TCP connection, as the web server sees it: a stream that nobody can hold it up by.

The web server waits without end for a client to send its request and to take its answer, and shields the latter, so
that not even a shutdown gets past a client that does not read. Here both have an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from intercom.model import crash_points

#: How long a new connection may take until it has made a request that was let in, in seconds.
FIRST_SECONDS = 10.0
#: How long a client may leave what it is sent untaken.
STALLED_SECONDS = 60.0
#: How long, after the last word to a client that may still be sending, its end is waited for.
LINGER_SECONDS = 1.0
_LINGER_BYTES = 8 * 2**20


class Connection:
    """What hypercorn uses of a stream. `broken` once something could not be sent, `welcome` once a request was let in,
    `answered` once a page was shown that needs no token; `peer` is the client's address, `number` names the connection
    for good."""

    def __init__(self, stream: trio.SocketStream, number: int) -> None:
        self.socket = stream.socket
        self.peer: tuple[str, int] = stream.socket.getpeername()[:2]
        self.here: tuple[str, int] = stream.socket.getsockname()[:2]
        self.number = number
        self.broken = False
        self._sent = 0
        self.welcome = False
        self.answered = False
        self.processes: frozenset[int] | None = None
        self._stream = stream
        self.came_at = trio.current_time()
        self._ended = False
        self._lingers = False

    async def receive_some(self, most: int | None = None) -> bytes:
        if self._lingers:
            # The web server's task that reads comes back for more while another one closes.
            return b""
        data = bytes(await self._stream.receive_some(most))
        self._ended = not data
        return data

    async def send_all(self, data: bytes) -> None:
        try:
            with trio.fail_after(STALLED_SECONDS):
                await self._stream.send_all(data)
            self._sent += 1
        except (trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError):
            self.broken = True
            # What is left of an answer must not be taken for the beginning of another.
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the client does not take what it is sent") from None

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        if not self._ended and not self.broken and self.socket.fileno() != -1:
            await self._linger()
        await self._stream.aclose()

    @contextmanager
    def reaching(self, reached: Callable[[], None]) -> Iterator[None]:
        """Call `reached` if something was sent meanwhile, and all of it left.

        The web server tells its application that a request is over as soon as the last byte has left, so what sends
        that byte may be cancelled by its own success."""
        before = self._sent
        crash_points.reach("answer.leaving")
        try:
            yield
        finally:
            if self._sent > before and not self.broken:
                crash_points.reach("answer.left")
                reached()

    async def abort(self) -> None:
        """Close at once, whatever is under way."""
        self.broken = True
        await trio.aclose_forcefully(self._stream)

    def let_in(self) -> None:
        """A request of this client was let in: from now on it may take its time between two."""
        self.welcome = True

    async def _linger(self) -> None:
        """Take in what the client is still sending: a socket that is closed with something unread loses the answer."""
        left = _LINGER_BYTES
        self._lingers = True
        with trio.move_on_after(LINGER_SECONDS, shield=True):
            try:
                while left > 0 and (data := await self._stream.receive_some(65536)):
                    left -= len(data)
            except (trio.BusyResourceError, trio.BrokenResourceError, trio.ClosedResourceError):
                # The web server is reading itself, or there is nothing to be read any more.
                return
