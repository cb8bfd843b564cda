"""The web server's connections: HTTP/1.1 only, and bounded in time.

With HTTP/2 one connection can open and reset thousands of streams before the access rules see a header. Each of them
already has a task and buffers. No client needs HTTP/2 here. The preface gets 505 and its connection closes, as for any
unsupported version. `Upgrade: h2c` is ignored, as RFC 9110 (7.8) allows: clients that offer it continue with HTTP/1.1.

The web server waits without limit for a client to send its request and to read its answer. It shields the latter, so a
client that does not read would block even a shutdown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from http import HTTPStatus

import h11
import trio
from hypercorn.events import Closed, Event
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from intercom.agents.http.request import Refusal
from intercom.local import peers
from intercom.model import crash_points

_SPOKEN = (b"1.0", b"1.1")
# A new one each time: an exception object that is raised again collects traceback frames.
_other_version = partial(
    Refusal,
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
    "invalid_arguments",
    "this server speaks HTTP/1.1: send the request with that",
)
_ambiguous = partial(
    Refusal,
    HTTPStatus.BAD_REQUEST,
    "invalid_arguments",
    "the request says its length twice, by Content-Length and by Transfer-Encoding: send one of them, in HTTP/1.1",
)


class Http1Protocol(H11Protocol):
    """The web server's HTTP/1.1 protocol, which never switches to another."""

    async def handle(self, event: Event) -> None:
        """Process received data. A request refused by its head never reaches the application."""
        try:
            await super().handle(event)
        except Refusal as refused:
            body = refused.body()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            told = h11.Response(status_code=int(refused.status), headers=[*headers, (b"connection", b"close")])
            for part in (told, h11.Data(data=body), h11.EndOfMessage()):
                await self._send_h11_event(part)
            await self.send(Closed())

    async def _check_protocol(self, event: h11.Request) -> None:
        # hypercorn switches to HTTP/2 here, for the preface and for an upgrade.
        if event.http_version not in _SPOKEN:
            raise _other_version()
        names = {name for name, _ in event.headers}
        if b"transfer-encoding" in names and (b"content-length" in names or event.http_version != b"1.1"):
            # A proxy may see another end of this request (RFC 9112, 6.1). What it takes for the body would be read here
            # as the next request.
            raise _ambiguous()


class Http1Server(TCPServer):
    """One plain connection. Without TLS there is no ALPN, so no client can choose HTTP/2 that way."""

    async def run(self) -> None:
        """Serve until either side ends the connection, and then close the stream."""
        socket = self.stream.socket
        try:
            client = parse_socket_addr(socket.family, socket.getpeername())
            server = parse_socket_addr(socket.family, socket.getsockname())
            async with TaskGroup() as task_group:
                self._task_group = task_group
                self.protocol = Http1Protocol(  # type: ignore[assignment] # it offers what the wrapper does
                    self.app,
                    self.config,
                    self.context,
                    task_group,
                    ConnectionState(self.state),
                    False,
                    client,
                    server,
                    self.protocol_send,
                )
                await self.protocol.initiate()
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                await self._read_data()
                # hypercorn keeps an ended connection until its idle limit: many short connections would use up all
                # places.
                await self.idle_task.stop()
        except OSError:
            pass  # the client is gone
        finally:
            await self._close()


#: How long a new connection may take until its first accepted request, in seconds.
FIRST_SECONDS = 10.0
#: How long a client may not read what is sent to it, in seconds.
STALLED_SECONDS = 60.0
#: How long to wait for the end of a client that may still be sending after the last answer, in seconds.
LINGER_SECONDS = 1.0
_LINGER_BYTES = 8 * 2**20


class Connection:
    """The part of a stream that hypercorn uses.

    `broken` is set once a send failed. `authenticated` is set once a request was accepted: from then on the client may
    pause between two. `answered` is set once a page without a token was served. `ended` is set once the client sends no
    more; `on_end` is called then. `peer` is the client's address. `number` identifies the connection for good.
    """

    def __init__(self, stream: trio.SocketStream, number: int) -> None:
        self.socket = stream.socket
        self.peer: tuple[str, int] = stream.socket.getpeername()[:2]
        self.here: tuple[str, int] = stream.socket.getsockname()[:2]
        self.number = number
        self.broken = False
        self._sent = 0
        self.authenticated = False
        self.answered = False
        self.processes: frozenset[int] | None = None
        self._stream = stream
        self.came_at = trio.current_time()
        self.ended = False
        self.on_end: Callable[[], object] | None = None
        self._lingers = False

    @cached_property
    def is_local(self) -> bool:
        """Whether the client is on this machine."""
        return peers.is_local(self.peer[0], self.here[0])

    async def receive_some(self, most: int | None = None) -> bytes:
        if self._lingers:
            # The web server's reading task asks for more while another task closes.
            return b""
        try:
            data = bytes(await self._stream.receive_some(most))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._note_end()
            raise
        if not data:
            self._note_end()
        return data

    def _note_end(self) -> None:
        self.ended = True
        if self.on_end is not None:
            self.on_end()

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
        if not self.ended and not self.broken and self.socket.fileno() != -1:
            await self._linger()
        await self._stream.aclose()

    @contextmanager
    def reaching(self, reached: Callable[[], None]) -> Iterator[None]:
        """Call `reached` if the `with` block sent something and all of it left. The web server ends a request when its
        last byte has left. That may cancel the code that sent the byte, so this also works when cancelled."""
        before = self._sent
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
