"""The web server: HTTP/1.1 for an ASGI application, on h11, with one Trio task for each connection.

`HttpServer.serve` reads a request, runs the application in the same task, and goes on with the next request. Head and
body of an answer leave in one write, up to 64 KiB. A call that waits needs no task beside it: `EndWatcher` notices that
its client is gone. So ten thousand waiting calls take little memory.

A client that closes its sending side while the application waits for its end counts as gone, and gets no answer. This
holds for waiting calls and for MCP. Other requests are answered.

Only HTTP/1.1 and 1.0 are spoken. With HTTP/2 one connection can open and reset thousands of streams before the access
rules see a header, and no client needs HTTP/2 here. Its preface gets 505, as any unsupported version does. `Upgrade` is
ignored, as RFC 9110 (7.8) allows: a client that offers another protocol continues with HTTP/1.1.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from email.utils import formatdate
from functools import lru_cache, partial
from http import HTTPStatus
from socket import MSG_PEEK
from urllib.parse import unquote

import h11
import trio
from attrs import define, field
from starlette.types import ASGIApp, Message, Scope

from intercom.local import peer_processes
from intercom.model import crash_points
from intercom.web_server.framing import (
    CLOSE,
    LONGEST_HEAD,
    ChunkScanner,
    refusal_of,
    require_unambiguous,
    resolve_target,
)
from intercom.web_server.http_request import Refusal, RefusalForm, plain_form

log = logging.getLogger("intercom.http.web")

#: How long a new connection may take until its first accepted request, in seconds.
FIRST_SECONDS = 10.0
#: How long a connection may stay without a request, in seconds. This exceeds the limits of proxies and clients, so none
#: sends a request into a closing connection.
KEEP_ALIVE_SECONDS = 90.0
#: How long a client may take to read the next 64 KiB of what is sent to it, in seconds.
STALLED_SECONDS = 60.0
#: What a client may still send after its answer, so that it gets to read that: the longest pause, and the most in all,
#: in seconds and bytes.
LINGER_SECONDS = 1.0
LINGER_SECONDS_IN_ALL = 10.0
_LINGER_BYTES = 64 * 2**20
#: How much is read at once, the longest answer that is copied into one write, and the part of an answer for which a
#: client has STALLED_SECONDS, in bytes.
_PART = 65536
#: How much a client may send behind a call that waits, in bytes. Its end cannot arrive behind a full buffer.
_MOST_BEHIND = LONGEST_HEAD
_HAS_EPOLL = hasattr(select, "epoll")
#: Only Linux has it. Elsewhere a client counts as gone once both sides are closed.
_POLLRDHUP = getattr(select, "POLLRDHUP", 0)


# --- one connection --------------------------------------------------------------------------------------------------


@define(eq=False)
class Connection:
    """One client's connection: its stream with time limits, and what is known of the client.

    `number` identifies it for good; `peer` is the client's address, and `here` the server's. `broken` is set once a
    send failed. `authenticated` is set once a request was accepted: from then on the client may pause between two.
    `answered` is set once a page without a token was served. `is_busy` is set from the head of a request to the end of
    its answer, and `is_listening` during a request whose answer is a stream without an end. `ended` is set once it is
    known that the client sends no more; `on_end` is called then. During a call the end is only noticed if `on_end` is
    set, or if a task waits for `end`.
    """

    _stream: trio.SocketStream
    number: int
    watcher: EndWatcher | None = None
    peer: tuple[str, int] = field(init=False)
    here: tuple[str, int] = field(init=False)
    came_at: float = field(init=False, factory=trio.current_time)
    broken: bool = field(init=False, default=False)
    authenticated: bool = field(init=False, default=False)
    answered: bool = field(init=False, default=False)
    is_busy: bool = field(init=False, default=False)
    is_listening: bool = field(init=False, default=False)
    ended: bool = field(init=False, default=False)
    processes: frozenset[int] | None = field(init=False, default=None)
    _sent: int = field(init=False, default=0)
    _is_closing: bool = field(init=False, default=False)
    _is_local: bool | None = field(init=False, default=None)
    _on_end: Callable[[], object] | None = field(init=False, default=None)
    _over: trio.Event | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        """Raises OSError if the client has disconnected already."""
        self.peer = self.socket.getpeername()[:2]
        self.here = self.socket.getsockname()[:2]

    @property
    def socket(self) -> trio.socket.SocketType:
        return self._stream.socket

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine."""
        if self._is_local is None:
            self._is_local = peer_processes.is_local(self.peer[0], self.here[0])
        return self._is_local

    @property
    def is_idle(self) -> bool:
        """Whether no request is being served, and no answer is on its way to the client."""
        return not self.is_busy and not self._is_closing

    @property
    def is_full(self) -> bool:
        """Whether the client has sent so much behind a waiting call that its end may not arrive."""
        unread = fcntl.ioctl(self.socket.fileno(), termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(unread, sys.byteorder) > _MOST_BEHIND

    @property
    def is_left(self) -> bool:
        """Whether the client has closed its side of the connection by now."""
        if self.ended or self.broken:
            return True
        poll = select.poll()
        poll.register(self.socket.fileno(), _POLLRDHUP)
        return bool(poll.poll(0))

    # --- the client's end ---

    @property
    def on_end(self) -> Callable[[], object] | None:
        """What is called once the client sends no more. It lasts until the end of the request."""
        return self._on_end

    @on_end.setter
    def on_end(self, call: Callable[[], object] | None) -> None:
        self._on_end = call
        self._watch()

    async def end(self) -> None:
        """Wait until the client sends no more, or until the request is over."""
        if not self.ended:
            if self._over is None:
                self._over = trio.Event()
            self._watch()
            await self._over.wait()

    def request_over(self) -> None:
        """Drop `on_end`, and return from `end`: the request is over."""
        self._on_end = None
        if self._over is not None:
            self._over.set()
            self._over = None
        self._watch()

    def note_end(self) -> None:
        """Note that the client sends no more."""
        self.ended = True
        if self._on_end is not None:
            self._on_end()
        if self._over is not None:
            self._over.set()

    def _watch(self) -> None:
        if self.watcher is not None:
            if self._on_end is None and self._over is None:
                self.watcher.forget(self)
            elif not self.ended:
                self.watcher.watch(self)

    # --- the stream ---

    async def receive_some(self, most: int | None = None) -> bytes:
        """Return what the client has sent; nothing at the end."""
        if self._is_closing:
            # Another task closes the connection, and reads all that comes.
            return b""
        try:
            data = bytes(await self._stream.receive_some(most))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            self.note_end()
        return data

    async def send_all(self, *parts: bytes) -> None:
        """Send these. If the client does not take them, close the connection and raise BrokenResourceError: the rest of
        an answer must not look like the beginning of another."""
        try:
            for part in parts:
                sent = self._write(part)
                if sent < len(part):
                    await self._send_slowly(memoryview(part)[sent:])
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.abort()
            raise trio.BrokenResourceError("the client does not take what it is sent") from None
        except BaseException:
            # Nobody knows how much of it left.
            self.broken = True
            raise
        self._sent += 1

    def _write(self, data: bytes) -> int:
        """Send what the system takes at once, and return how much. Nearly always it is all: no time limit is needed
        then, and no turn of the loop."""
        try:
            return os.write(self.socket.fileno(), data)
        except BlockingIOError:
            return 0

    async def _send_slowly(self, data: memoryview) -> None:
        """Send this in parts, each with its own time limit: a slow client that reads steadily gets all of it."""
        for at in range(0, len(data), _PART):
            with trio.fail_after(STALLED_SECONDS):
                await self._stream.send_all(data[at : at + _PART])

    @contextmanager
    def reaching(self, reached: Callable[[], None]) -> Iterator[None]:
        """Call `reached` if the `with` block sent something and all of it left, also if the block is cancelled then."""
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
        if self.watcher is not None:
            self.watcher.forget(self)
        if not self.ended:
            self.note_end()
        await trio.aclose_forcefully(self._stream)

    async def aclose(self) -> None:
        """Close the connection. First, read what the client is still sending: a socket that closes with unread data
        loses the answer."""
        if not self.ended and not self.broken:
            self._is_closing = True
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                await self._linger()
        await self.abort()

    async def _linger(self) -> None:
        left = _LINGER_BYTES
        with trio.move_on_after(LINGER_SECONDS_IN_ALL):
            await self._stream.send_eof()
            while left > 0:
                data = b""
                with trio.move_on_after(LINGER_SECONDS):
                    data = bytes(await self._stream.receive_some(_PART))
                if not data:
                    return
                left -= len(data)


@define(eq=False)
class EndWatcher:
    """Notices that the clients of waiting calls are gone. `run` must be active.

    All connections share one epoll, which reports the end of a stream also behind unread data. A client that sends
    without end behind its call loses its connection, because a full buffer hides the end. Where the system has no
    epoll, each watched connection has a task; that notices no end behind unread data.
    """

    _epoll: select.epoll | None = field(init=False, factory=lambda: select.epoll() if _HAS_EPOLL else None)
    _watched: dict[int, Connection] = field(init=False, factory=dict)
    _tasks: dict[int, trio.CancelScope] = field(init=False, factory=dict)
    _nursery: trio.Nursery | None = field(init=False, default=None)

    def watch(self, connection: Connection) -> None:
        """Call `note_end` of this connection once its client sends no more."""
        fd = connection.socket.fileno()
        if fd == -1 or fd in self._watched:
            return
        self._watched[fd] = connection
        if self._epoll is not None:
            self._epoll.register(fd, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        elif self._nursery is not None:
            scope = self._tasks[fd] = trio.CancelScope()
            self._nursery.start_soon(self._wait, connection, fd, scope)

    def forget(self, connection: Connection) -> None:
        """Watch this connection no more. Its socket must still be open."""
        fd = connection.socket.fileno()
        if self._watched.pop(fd, None) is None:
            return
        if self._epoll is not None:
            self._epoll.unregister(fd)
        elif fd in self._tasks:
            self._tasks.pop(fd).cancel()

    async def run(self) -> None:
        """Watch until cancelled."""
        if self._epoll is None:
            async with trio.open_nursery() as self._nursery:
                await trio.sleep_forever()
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            full: list[Connection] = []
            for fd, events in self._epoll.poll(0):
                if (connection := self._watched.get(fd)) is None:
                    continue
                if events & ~select.EPOLLIN:
                    self.forget(connection)
                    connection.note_end()
                elif connection.is_full:
                    full.append(connection)
            # Not before: a later event would belong to another connection with the same descriptor.
            for connection in full:
                await connection.abort()

    async def _wait(self, connection: Connection, fd: int, scope: trio.CancelScope) -> None:
        with scope:
            # The task may start only after the end of its watch: another may wait for the same descriptor then.
            await trio.lowlevel.checkpoint_if_cancelled()
            await trio.lowlevel.wait_readable(fd)
            try:
                data = await connection.socket.recv(1, MSG_PEEK)
            except OSError:
                data = b""
            if not data:
                connection.note_end()


# --- one request -----------------------------------------------------------------------------------------------------

_ASGI = {"version": "3.0", "spec_version": "2.3"}


@define(eq=False)
class RequestCycle:
    """One request and its answer: ASGI's `receive` and `send`, which any task may call.

    After the answer, and if the client is gone, `receive` returns `http.disconnect` and `send` does nothing. `fault` is
    why the rest of the request could not be read.
    """

    _server: HttpServer
    _connection: Connection
    _http: h11.Connection
    fault: Refusal | None = field(init=False, default=None)
    is_answered: bool = field(init=False, default=False)
    _is_body_due: bool = field(init=False, default=True)
    _has_body: bool = field(init=False, default=True)
    _chunks: ChunkScanner | None = field(init=False, default=None)
    _head: tuple[int, list[tuple[bytes, bytes]]] | None = field(init=False, default=None)

    async def begin(self) -> Scope | None:
        """Read the head of the request and return its scope; None if there is no request in time. Raises Refusal.

        `state` in the scope has the connection."""
        request = await _read_request(self._connection, self._http)
        if request is None:
            return None
        self._server.begun(self._connection)
        self._has_body = request.method != b"HEAD"
        target, headers = request.target, list(request.headers)
        if not target.startswith(b"/") or request.method == b"CONNECT":
            target, headers = resolve_target(request.method, target, headers)
        if any(name == b"transfer-encoding" for name, _ in headers):
            self._chunks = ChunkScanner()
        path, _, query = target.partition(b"?")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": request.http_version.decode(),
            "method": request.method.decode(),
            "scheme": "http",
            "path": unquote(path.decode()),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self._connection.peer,
            "server": self._connection.here,
            "state": {"connection": self._connection},
        }

    async def receive(self) -> Message:
        if self._is_body_due and not self.is_answered and not self._connection.broken:
            try:
                body = await self._read()
            except h11.RemoteProtocolError as error:
                self._is_body_due = False
                self.fault = refusal_of(error)
            except Refusal as refused:
                self._is_body_due = False
                self.fault = refused
            else:
                return {"type": "http.request", "body": body, "more_body": self._is_body_due}
        if not self.is_answered and self.fault is None:
            await self._connection.end()
        return {"type": "http.disconnect"}

    async def _read(self) -> bytes:
        """Return the next part of the body. Raises RemoteProtocolError or Refusal."""
        self._begin_chunks()
        parts: list[bytes] = []
        while True:
            event = self._http.next_event()
            if type(event) is h11.Data:
                parts.append(event.data)
                continue
            if type(event) is h11.EndOfMessage:
                self._is_body_due = False
            if parts or not self._is_body_due:
                return b"".join(parts)
            if self._http.they_are_waiting_for_100_continue:
                await self._transmit(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
            await self._receive_more()

    def _begin_chunks(self) -> None:
        """Check what came together with the head. Raises Refusal."""
        if self._chunks is not None and not self._chunks.has_begun:
            self._chunks.check(self._http.trailing_data[0])

    async def _receive_more(self) -> None:
        """Read more of the body. Raises Refusal."""
        data = await self._connection.receive_some(_PART)
        if self._chunks is not None:
            self._chunks.check(data)
        self._http.receive_data(data)

    async def send(self, message: Message) -> None:
        if self.is_answered or self._connection.broken:
            await trio.lowlevel.checkpoint()
        elif message["type"] == "http.response.start":
            if self._head is not None or self._has_begun:
                raise RuntimeError("an answer has one http.response.start")
            # It leaves with the first part of the body.
            self._head = (message["status"], list(message.get("headers", ())))
        else:
            await self._send_part(message.get("body", b""), is_last=not message.get("more_body", False))

    async def _send_part(self, body: bytes, *, is_last: bool) -> None:
        before: list[bytes] = []
        after: list[bytes] = []
        if self._head is not None:
            before += self._write(self._response(*self._head))
            self._head = None
        if body and self._has_body:
            written = self._write(h11.Data(data=body))
            at = written.index(body)
            before += written[:at]
            after += written[at + 1 :]
        else:
            body = b""
        if is_last:
            after += self._write(h11.EndOfMessage())
            self.is_answered = True
        if len(body) <= _PART:
            parts = [b"".join((*before, body, *after))]
        else:
            parts = [b"".join(before), body, b"".join(after)]
        if any(parts):
            await self._transmit(*filter(None, parts))
        if is_last:
            self._connection.request_over()
        else:
            # An application that sends without end must not stop all others.
            await trio.lowlevel.checkpoint()

    def _write(self, event: h11.Event) -> list[bytes]:
        return self._http.send_with_data_passthrough(event) or []

    def _response(self, status: int, headers: list[tuple[bytes, bytes]]) -> h11.Response:
        headers += [(b"date", _date(int(time.time()))), *self._server.headers]
        # After an answer instead of 100, what comes next may be the body or another request.
        if self._server.is_stopping or self._http.they_are_waiting_for_100_continue:
            headers.append(CLOSE)
        if status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self._has_body = False
        return h11.Response(status_code=status, headers=headers)

    async def _transmit(self, *parts: bytes) -> None:
        with suppress(trio.BrokenResourceError):
            await self._connection.send_all(*parts)

    @property
    def _has_begun(self) -> bool:
        return self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE)

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with an error, and let the connection close. Nothing of an answer may have been sent."""
        self._head = None
        await refusal.send(self.send, self._server.refusal_form)

    async def finish(self) -> bool:
        """End the cycle after the application has. Return whether the connection can have another request."""
        self._connection.request_over()
        if not self.is_answered and not self._connection.ended:
            if self._has_begun:
                # A part of an answer must not look like all of it.
                await self._connection.abort()
            else:
                await self.refuse(self.fault or _failed())
        self._server.done(self._connection)
        if self.fault is not None:
            return False
        if self._connection.broken or self._http.our_state is not h11.DONE or not await self._drop_rest():
            return False
        self._http.start_next_cycle()
        return True

    async def _drop_rest(self) -> bool:
        """Read what is left of a request that was answered early, if it comes soon. Return whether all of it came."""
        try:
            self._begin_chunks()
            left = _LINGER_BYTES - self._skip()
            if self._http.their_state is h11.SEND_BODY:
                with trio.move_on_after(LINGER_SECONDS_IN_ALL):
                    while self._http.their_state is h11.SEND_BODY and left > 0:
                        with trio.move_on_after(LINGER_SECONDS) as pause:
                            await self._receive_more()
                        if pause.cancelled_caught:
                            break
                        left -= self._skip()
        except (h11.RemoteProtocolError, Refusal):
            return False
        return self._http.their_state is h11.DONE

    def _skip(self) -> int:
        """Drop the part of the body that has come, and return its size. Raises RemoteProtocolError."""
        size = 0
        while self._http.their_state is h11.SEND_BODY and (event := self._http.next_event()) is not h11.NEED_DATA:
            if type(event) is h11.Data:
                size += len(event.data)
        return size


@lru_cache(maxsize=1)
def _date(now: int) -> bytes:
    return formatdate(now, usegmt=True).encode()


# --- requests that never reach the application -----------------------------------------------------------------------

_failed = partial(
    Refusal,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    "mcp",
    "the server failed on this request; the fault is in its log",
    (CLOSE,),
)


async def _read_request(connection: Connection, http: h11.Connection) -> h11.Request | None:
    """Return the next request, of which only the head has been read; None if there is none in time. Raises Refusal."""
    received, _ = http.trailing_data
    if received:
        # A client that sends many requests at once must not stop all others.
        await trio.lowlevel.checkpoint()
    event: object = None
    with trio.move_on_after(KEEP_ALIVE_SECONDS):
        try:
            while (event := http.next_event()) is h11.NEED_DATA:
                data = await connection.receive_some(_PART)
                received += data
                http.receive_data(data)
        except h11.RemoteProtocolError as error:
            if connection.ended:
                return None
            raise refusal_of(error) from None
    if type(event) is not h11.Request:
        return None
    require_unambiguous(event, received)
    return event


# --- the server ------------------------------------------------------------------------------------------------------


@define(eq=False)
class HttpServer:
    """Serves an ASGI application on connections. `run` must be active meanwhile. Once `is_stopping` is set, every
    connection ends with its next answer. `busy` is the number of requests that are being served. `refusal_form` makes
    the answers to requests that are refused before the application sees them. `headers` are those of every answer."""

    _application: ASGIApp
    refusal_form: RefusalForm = plain_form
    headers: Sequence[tuple[bytes, bytes]] = ()
    is_stopping: bool = field(init=False, default=False)
    busy: int = field(init=False, default=0)
    _quiet: trio.Event | None = field(init=False, default=None)
    _watcher: EndWatcher = field(init=False, factory=EndWatcher)

    async def run(self) -> None:
        """Notice clients that are gone, until cancelled."""
        await self._watcher.run()

    async def serve(self, connection: Connection) -> None:
        """Serve one connection until either side ends it, and close it. If cancelled, close it at once."""
        connection.watcher = self._watcher
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)
        try:
            while await self._serve_request(connection, RequestCycle(self, connection, http)):
                if self.is_stopping:
                    break
            await connection.aclose()
        finally:
            await connection.abort()

    def begun(self, connection: Connection) -> None:
        """Count a request, of which the head has been read."""
        connection.is_busy = True
        self.busy += 1

    def done(self, connection: Connection) -> None:
        """Note that the request of this connection is answered, if it has one."""
        if connection.is_busy:
            connection.is_busy = connection.is_listening = False
            self.busy -= 1
            if self._quiet is not None and not self.busy:
                self._quiet.set()

    async def quiet(self) -> None:
        """Wait until no request is being served."""
        self._quiet = trio.Event()
        if self.busy:
            await self._quiet.wait()

    async def _serve_request(self, connection: Connection, cycle: RequestCycle) -> bool:
        """Serve one request. Return whether the connection can have another."""
        try:
            try:
                scope = await cycle.begin()
            except Refusal as refused:
                await cycle.refuse(refused)
                return False
            if scope is None:
                return False
            try:
                await self._application(scope, cycle.receive, cycle.send)
            except Exception:
                log.exception("a request to %s failed", scope["path"][:200])
            return await cycle.finish()
        finally:
            self.done(connection)
