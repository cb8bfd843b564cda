"""A TCP connection for the web server, with time limits for slow clients.

The web server waits without limit for a client to send its request and to read its answer. It shields the latter, so a
client that does not read would block even a shutdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from intercom.model import crash_points

#: How long a new connection may take until its first accepted request, in seconds.
FIRST_SECONDS = 10.0
#: How long a client may not read what is sent to it, in seconds.
STALLED_SECONDS = 60.0
#: How long to wait for the end of a client that may still be sending after the last answer, in seconds.
LINGER_SECONDS = 1.0
_LINGER_BYTES = 8 * 2**20


class Connection:
    """The part of a stream that hypercorn uses. `broken` is set once a send failed, `welcome` once a request was
    accepted, and `answered` once a page without a token was served. `peer` is the client's address. `number` identifies
    the connection for good."""

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
            # The web server's reading task asks for more while another task closes.
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
            # The rest of an answer must not look like the beginning of another.
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
        """Call `reached` if the `with` block sent something and all of it left. The web server ends a request when its
        last byte has left. That may cancel the code that sent the byte, so this also works when cancelled."""
        before = self._sent
        crash_points.reach("answer.leaving")
        try:
            yield
        finally:
            if self._sent > before and not self.broken:
                crash_points.reach("answer.left")
                reached()

    async def abort(self) -> None:
        """Close the connection at once, also in the middle of an answer."""
        self.broken = True
        await trio.aclose_forcefully(self._stream)

    def let_in(self) -> None:
        """Note an accepted request: from now on the client may pause between two requests."""
        self.welcome = True

    async def _linger(self) -> None:
        """Read what the client is still sending: a socket that closes with unread data loses the answer."""
        left = _LINGER_BYTES
        self._lingers = True
        with trio.move_on_after(LINGER_SECONDS, shield=True):
            try:
                while left > 0 and (data := await self._stream.receive_some(65536)):
                    left -= len(data)
            except (trio.BusyResourceError, trio.BrokenResourceError, trio.ClosedResourceError):
                # The web server reads at the same time, or there is no more to read.
                return
