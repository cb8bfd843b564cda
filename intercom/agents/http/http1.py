"""HTTP/1.1 only: the web server's connection without HTTP/2.

With HTTP/2 one connection can open and reset thousands of streams before the access rules see a header. Each of them
already has a task and buffers. No client needs HTTP/2 here. The preface gets 505 and its connection closes, as for any
unsupported version. `Upgrade: h2c` is ignored, as RFC 9110 (7.8) allows: clients that offer it continue with HTTP/1.1.
"""

from __future__ import annotations

from http import HTTPStatus

import h11
from hypercorn.events import Closed, Event
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from intercom.agents.http.refusal import Refusal

_SPOKEN = (b"1.0", b"1.1")
_OTHER_VERSION = Refusal(
    HTTPStatus.HTTP_VERSION_NOT_SUPPORTED,
    "invalid_arguments",
    "this server speaks HTTP/1.1: send the request with that",
)
_AMBIGUOUS = Refusal(
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
            raise _OTHER_VERSION
        names = {name for name, _ in event.headers}
        if b"transfer-encoding" in names and (b"content-length" in names or event.http_version != b"1.1"):
            # A proxy may see another end of this request (RFC 9112, 6.1). What it takes for the body would be read here
            # as the next request.
            raise _AMBIGUOUS


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
