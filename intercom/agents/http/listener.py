"""The actor `http`: opens the port, serves its paths, and closes it."""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import select
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import trio
from attrs import define, field, frozen
from mcp.server import Server
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from actors import Actor, Name
from intercom.agents.http import request
from intercom.agents.http.request import Refusal, Rules, answer, too_many, unknown_path, wrong_method
from intercom.agents.http.sessions import ConnectionFactory
from intercom.agents.http.sse import SseTransport
from intercom.agents.http.status import HttpStatus, SessionCounts
from intercom.agents.http.streamable import Streamable
from intercom.agents.http.web_server import FIRST_SECONDS, Connection, HttpServer
from intercom.agents.known_agent_processes import KnownProcesses
from intercom.agents.rooms import http as rooms_http
from intercom.agents.rooms import mcp as rooms_mcp
from intercom.agents.rooms.http import RoomsApp, is_rooms_path
from intercom.agents.rooms.room_call import RoomsDeps
from intercom.local import own_files, peer_processes
from intercom.local.peer_processes import TcpClients
from intercom.local.places import private_directory
from intercom.local.server_socket import Renewal
from intercom.masking import KNOWN
from intercom.model.card import Notice
from intercom.model.errors import IntercomError, IpcError
from intercom.model.metrics import HttpFailed, Measured, Page
from intercom.store.client import StoreUnavailable

log = logging.getLogger("intercom.http")

#: The shortest time between two log lines about requests refused for the same reason, in seconds.
LOGGED_SECONDS = 60.0
#: Finds the processes of a connection, before its first request is served.
Look = Callable[[Connection], Awaitable[None]]

_FAILED = Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "mcp", "the server failed on this request; the fault is in its log")


@define(eq=False)
class Site:
    """The ASGI application of the whole port. `agents` are the applications of the agents' paths, and `pages` all other
    pages. `measured` gets every error response. `rooms` serves the rooms' paths by its own access rules, except that
    its MCP is one of `agents`. `hides` says whether a connection must not reach the other paths."""

    rules: Rules
    agents: Mapping[str, ASGIApp]
    pages: Mapping[str, Page]
    look: Look
    measured: Measured
    rooms: RoomsApp | None = None
    hides: Callable[[Connection], bool] = lambda _connection: False
    _logged: dict[str, tuple[float, int]] = field(factory=dict, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.rooms is not None and is_rooms_path(scope["path"]) and scope["path"] != rooms_mcp.PATH:
            await self.rooms(scope, receive, send, scope["state"]["connection"], self._log_refused)
            return
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
                self.measured(HttpFailed(message["status"]))
            await send(message)

        try:
            await self._serve(scope, receive, sent)
        except* Refusal as refused:
            if not begun:
                await _first(refused).send(sent)
        except* Exception:
            log.exception("a request to %s failed", scope["path"][:200])
            if not begun:
                await _FAILED.send(sent)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        page = self.pages.get(path)
        connection: Connection = scope["state"]["connection"]
        is_open = page is not None and page.open
        if self.rooms is not None and (is_open or path == rooms_mcp.PATH):
            refused = self.rooms.rules.refuse(dict(scope["headers"]), open=is_open)
        elif self.hides(connection):
            raise unknown_path(path, (rooms_http.INSTRUCTIONS, rooms_mcp.PATH))
        else:
            refused = self.rules.refuse(scope["headers"], open=is_open)
        if refused is not None:
            self._log_refused(path, refused.code)
            raise refused
        if is_open:
            # Such a page does not prove a token, so the connection stays limited.
            connection.answered = True
        else:
            connection.authenticated = True
        if page is not None:
            await _show(page, scope, send)
            return
        application = self.agents.get(path)
        if application is None:
            raise unknown_path(path, (*self.agents, *self.pages))
        if connection.processes is None:
            await self.look(connection)
        # The stream of the server's messages has no end.
        connection.is_listening = scope["method"] == "GET"
        await application(scope, receive, send)

    def _log_refused(self, path: str, code: str) -> None:
        """Log a refused request, with a rate limit: otherwise any client could push older lines out of the limited
        log."""
        now = trio.current_time()
        at, more = self._logged.get(code, (-math.inf, 0))
        if now - at < LOGGED_SECONDS:
            self._logged[code] = (at, more + 1)
            return
        self._logged[code] = (now, 0)
        shown = path[:200].encode("unicode_escape").decode()
        log.warning("a request to %s was refused: %s%s", shown, code, f"; {more} more before it" if more else "")


async def _show(page: Page, scope: Scope, send: Send) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise wrong_method(page.path, "GET", "HEAD")
    said = await page.answer()
    await answer(send, said.status, said.media_type.encode(), said.body)


def _first(group: BaseExceptionGroup[BaseException]) -> Refusal:
    one: BaseException = group
    while isinstance(one, BaseExceptionGroup):
        one = one.exceptions[0]
    assert isinstance(one, Refusal)
    return one


@frozen
class HttpDeps:
    """The dependencies of the HTTP service.

    `factory` makes agent connections. `status` is the status to update. `pages` are the pages besides MCP. The
    `card_router` gets notices. `processes` records agents' processes. `token` returns the required token or raises
    IpcError; it is None if none is required. `keep_token` restores the token's file. `measured` gets errors. `rooms`
    are served on the same port, if there are any; with `only_rooms`, nothing else is but the open pages.
    """

    server: Server[Any]
    factory: ConnectionFactory
    status: HttpStatus
    pages: Sequence[Page]
    card_router: Name
    now: Callable[[], datetime]
    processes: KnownProcesses
    token: Callable[[], str] | None
    keep_token: Callable[[str], str | None] | None
    address_file: str
    measured: Measured
    rooms: RoomsDeps | None = None
    only_rooms: bool = False


#: The time limit of a search in the system's tables, in seconds.
_SECONDS = 5.0


@define(eq=False)
class ClientRecords:
    """Finds the process behind each connection. `agents` records that it is an agent's."""

    agents: KnownProcesses
    _clients: TcpClients = field(factory=TcpClients, init=False)
    _searching: trio.Lock = field(factory=trio.Lock, init=False)

    async def look(self, connection: Connection) -> None:
        """Find and record the processes of a connection; none for another user's or another machine's. Raises Refusal
        if the search takes too long, or the processes cannot be recorded. No request may be answered then, and the next
        request searches again."""
        try:
            # A client inside this process is the program that embeds the server.
            found = await self._find(connection) - {os.getpid()}
            if found:
                await self.agents.came(_name(connection), found)
        except (IntercomError, StoreUnavailable, trio.TooSlowError) as failed:
            log.warning("the process behind a connection over HTTP could not be found or recorded: %r", failed)
            raise too_many(
                "the process of this connection could not be found just now", HTTPStatus.SERVICE_UNAVAILABLE
            ) from None
        connection.processes = found

    async def _find(self, connection: Connection) -> frozenset[int]:
        client, server = connection.peer, connection.here
        if not peer_processes.is_local(client[0], server[0]):
            return frozenset()
        if found := self._clients.recent(client, server):
            return found
        # One at a time: the next client may be the same process.
        async with self._searching:
            if found := self._clients.recent(client, server):
                return found
            with trio.fail_after(_SECONDS):
                holders = await trio.to_thread.run_sync(self._clients.search, client, server, abandon_on_cancel=True)
            return self._clients.remember(holders)

    def closed(self, connection: Connection) -> None:
        """Note that the connection is closed. Its processes count as an agent's until they end."""
        self.agents.left(_name(connection))


def _name(connection: Connection) -> str:
    return f"http/{connection.number}"


#: How long requests in service may take to be answered when the server stops, in seconds.
SHUTDOWN_SECONDS = 3.0
#: The most connections at once.
MOST_CONNECTIONS = 8192
#: The same for a server with rooms, in which ten thousand calls may wait.
MOST_WITH_ROOMS = 15_000
#: Limits of connections without a token. Above MOST_UNAUTHENTICATED, the oldest one closes if it had
#: UNAUTHENTICATED_SECONDS. Above MOST_NEW_UNAUTHENTICATED, it closes at once: a client with a token shows it at once.
MOST_UNAUTHENTICATED = 256
MOST_NEW_UNAUTHENTICATED = 1024
UNAUTHENTICATED_SECONDS = 2.0
#: How many open files are kept for other things than connections; at most half of those that the system allows.
RESERVED_FILES = 64
#: The errors of a system without room for another connection, and the pause after one of them, in seconds.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_SECONDS = 0.1
#: How often the loop turns until a request is read that came before the server stops.
_TURNS = 5


def _most_files() -> int:
    """Return how many connections the system's limit of open files leaves room for."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return MOST_WITH_ROOMS
    return most - min(RESERVED_FILES, most // 2)


class Serving:
    """One run of the open port, with its connections."""

    def __init__(self, at: HttpDeps) -> None:
        self._at = at
        self._connections: set[Connection] = set()
        self._unauthenticated: dict[int, Connection] = {}
        self._count = 0
        self._most_files = _most_files()
        self._exhausted_at = -math.inf
        self._streamable = Streamable(at.server, at.factory)
        self._sse = SseTransport(at.server, at.factory, self._streamable.sessions)
        self._clients = ClientRecords(at.processes)
        status = at.status
        assert status.port is not None, "the port is open"
        agents: dict[str, ASGIApp] = {
            "/mcp": self._streamable,
            "/sse": self._sse.stream,
            "/message": self._sse.message,
        }
        self._rooms = None if at.rooms is None else _rooms(at, at.rooms, status.port)
        if self._rooms is not None:
            agents[rooms_mcp.PATH] = self._rooms.mcp
        application: ASGIApp = Site(
            request.rules(at.factory.config, status.port, status.token),
            agents,
            {page.path: page for page in at.pages},
            self._clients.look,
            at.measured,
            self._rooms,
            self._hides,
        )
        if origins := at.factory.config.http_allowed_origins:
            # Without CORS headers, a browser does not let its page read our responses.
            application = CORSMiddleware(
                application,
                # In the case that browsers send and the access rules compare.
                allow_origins=[origin.lower() for origin in origins],
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=("*",),
                expose_headers=("mcp-session-id", "www-authenticate"),
            )
        self._server = HttpServer(application)
        status.counts = self._counts

    def _hides(self, connection: Connection) -> bool:
        """Whether this connection may reach the rooms only."""
        if self._at.only_rooms:
            return True
        rooms = self._at.rooms
        return rooms is not None and rooms.settings.only_rooms_off_loopback and not connection.is_local

    def _counts(self) -> SessionCounts:
        sessions = self._streamable.sessions
        return SessionCounts(len(self._connections), len(sessions.sessions), len(sessions.named), len(sessions.live))

    async def run(self, listener: trio.SocketListener) -> None:
        """Serve until cancelled, and then answer the requests in service."""
        serving = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            accepting = trio.CancelScope()
            nursery.start_soon(self._serve, listener, serving, accepting)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await self._shut_down(listener, accepting)
                serving.cancel()

    async def _serve(
        self,
        listener: trio.SocketListener,
        serving: trio.CancelScope,
        accepting: trio.CancelScope,
    ) -> None:
        sessions = self._streamable.sessions
        with serving:
            try:
                rooms: AbstractAsyncContextManager[None] = nullcontext() if self._rooms is None else self._rooms.run()
                async with self._streamable.manager.run(), rooms, trio.open_nursery() as nursery:
                    nursery.start_soon(sessions.expire)
                    nursery.start_soon(self._close_silent)
                    nursery.start_soon(self._server.run)
                    with accepting:
                        await self._accept(listener, nursery)
                    await trio.sleep_forever()
            finally:
                sessions.close()

    async def _accept(self, listener: trio.SocketListener, nursery: trio.Nursery) -> None:
        """Accept connections until cancelled, and close the port."""
        async with listener:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in _EXHAUSTED:
                        raise
                    await self._exhausted(error)
                else:
                    nursery.start_soon(self._serve_connection, stream)

    async def _exhausted(self, error: OSError) -> None:
        """Make room on a system that has none for another connection: close the oldest one without a token."""
        now = trio.current_time()
        if now - self._exhausted_at >= LOGGED_SECONDS:
            self._exhausted_at = now
            log.error(
                "no connection can be accepted (%s) beside %d open ones: raise the limit of open files (LimitNOFILE,"
                " ulimit -n)",
                os.strerror(error.errno or 0),
                len(self._connections),
            )
        await self._close_oldest()
        await trio.sleep(EXHAUSTED_SECONDS)

    async def _shut_down(self, listener: trio.SocketListener, accepting: trio.CancelScope) -> None:
        """Close the port, end waiting calls, and answer the requests in service, as far as there is time."""
        with trio.move_on_after(SHUTDOWN_SECONDS):
            # Clients that have connected already may have sent a request.
            for _ in range(2 * _BACKLOG):
                if not _is_readable(listener.socket):
                    break
                await trio.lowlevel.checkpoint()
            accepting.cancel()
            self._server.is_stopping = True
            for _ in range(_TURNS):
                await trio.lowlevel.checkpoint()
            await self._abort(lambda connection: connection.is_idle)
            self._streamable.sessions.stop_waiting()
            if self._rooms is not None:
                await self._rooms.waits.stop()
            await self._streamable.sessions.quiet()
            await self._abort(lambda connection: connection.is_listening)
            await self._server.quiet()
        await self._abort(lambda _connection: True)

    async def _abort(self, chosen: Callable[[Connection], bool]) -> None:
        """Close these connections. Each is asked about at its turn: one that was idle may have a request by then."""
        for connection in tuple(self._connections):
            if chosen(connection):
                await connection.abort()

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        """Serve one connection. Its errors do not affect others."""
        self._count += 1
        try:
            connection = Connection(stream, self._count)
        except OSError:
            # The client disconnected already.
            await trio.aclose_forcefully(stream)
            return
        try:
            await self._make_room(connection)
            self._connections.add(connection)
            self._unauthenticated[connection.number] = connection
            await self._server.serve(connection)
        except* Exception:
            log.exception("a connection from %s failed", connection.peer[0])
        finally:
            self._unauthenticated.pop(connection.number, None)
            self._connections.discard(connection)
            self._clients.closed(connection)

    async def _close_silent(self) -> None:
        """Close connections without a request in time, forever."""
        while True:
            await trio.sleep(1.0)
            # In a method of its own, so that no variable keeps a connection meanwhile.
            await self._close_late(trio.current_time() - FIRST_SECONDS)

    async def _close_late(self, late: float) -> None:
        for number, other in tuple(self._unauthenticated.items()):
            if other.authenticated:
                del self._unauthenticated[number]
            elif other.came_at <= late and not other.answered:
                del self._unauthenticated[number]
                await other.abort()

    async def _make_room(self, connection: Connection) -> None:
        """Close the oldest connection without a token if there are too many, or the new one. Connections that have
        shown a token are never closed for others."""
        most = min(MOST_CONNECTIONS if self._rooms is None else MOST_WITH_ROOMS, self._most_files)
        if len(self._connections) >= most:
            if not await self._close_oldest():
                await connection.abort()
            return
        most_new = min(MOST_NEW_UNAUTHENTICATED, self._most_files // 2)
        if len(self._unauthenticated) >= most_new:
            await self._close_oldest()
        elif len(self._unauthenticated) >= MOST_UNAUTHENTICATED:
            await self._close_oldest(connection.came_at - UNAUTHENTICATED_SECONDS)

    async def _close_oldest(self, before: float = math.inf) -> bool:
        """Close the oldest connection without a token, if it came before this time. Return whether one was closed."""
        for number, other in tuple(self._unauthenticated.items()):
            if other.authenticated:
                del self._unauthenticated[number]
            elif other.came_at < before:
                del self._unauthenticated[number]
                await other.abort()
                return True
            else:
                return False
        return False


def _rooms(at: HttpDeps, deps: RoomsDeps, port: int) -> RoomsApp:
    config = at.factory.config
    return RoomsApp(deps, rooms_http.rules(config, port, deps), at.measured, config.http_max_request_bytes)


#: The first and the longest pause between two attempts to open a port in use, in seconds.
_RETRY_SECONDS = (1.0, 30.0)
_BACKLOG = 512


class HttpListener(Actor):
    """The actor registered as `http`. If its port is taken or its token unusable, it tells the operators and tries
    again."""

    def __init__(self, at: HttpDeps) -> None:
        super().__init__()
        self._at = at

    def on_start(self) -> None:
        self.spawn(self._hold)

    def on_stop(self) -> None:
        self._closed()

    def on_failure(self, *crash: object) -> None:
        self._closed()

    async def _hold(self) -> None:
        listener = await self._opened()
        _, self._at.status.port = listener.socket.getsockname()[:2]
        self._at.status.fault = None
        if self._at.only_rooms:
            log.info("rooms over HTTP at %s", self._at.status.base)
        else:
            log.info("MCP over HTTP at %s", self._at.status.url)
        address = f"{self._at.status.base}\n"
        _write(self._at.address_file, address)
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(self._keep, address)
            await Serving(self._at).run(listener)

    async def _keep(self, address: str) -> None:
        """Restore the token's file and the address file if they disappear while the port is open."""
        token = self._at.status.token

        def keep_address() -> None:
            # No notice: only our own programs read it.
            if not os.path.exists(self._at.address_file):
                _write(self._at.address_file, address)

        def keep_token() -> str | None:
            return None if token is None or self._at.keep_token is None else self._at.keep_token(token)

        await Renewal(self._notice, keep_address, keep_token).keep()

    async def _opened(self) -> trio.SocketListener:
        config = self._at.factory.config
        host, port = config.http_host, config.http_port or 0
        pause, longest = _RETRY_SECONDS
        while True:
            try:
                # Before the port opens: without the token no request is served.
                self._at.status.token = None if self._at.token is None else self._at.token()
                KNOWN.add(self._at.status.token or "", "Intercom token")
                opened = _listen(host, port)
            except IpcError as error:
                self._tell_of(error.message)
            except OSError as error:
                self._tell_of(f"port {port} on {host} cannot be opened ({_why(error)})")
            else:
                if self._at.status.fault is not None:
                    self._notice(f"agents can connect over HTTP now: port {port} on {host} is open", "info")
                return opened
            await trio.sleep(pause)
            pause = min(longest, pause * 2)

    def _tell_of(self, why: str) -> None:
        fault = f"agents cannot connect over HTTP: {why}; the server tries again, and serves agents over stdio"
        if fault != self._at.status.fault:
            self._at.status.fault = fault
            log.error("%s", fault)
            self._notice(fault, "error")

    def _notice(self, text: str, level: str) -> None:
        self._at.card_router.tell(Notice(text, level, self._at.now()))

    def _closed(self) -> None:
        self._at.status.port = None
        self._at.status.counts = SessionCounts
        try:
            os.unlink(self._at.address_file)
        except OSError:
            # It was never written, or its directory is gone.
            pass


def _listen(host: str, port: int) -> trio.SocketListener:
    """Open the port. Raises OSError."""
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Lingering connections of an earlier server do not block the port; a listening one does.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        opened.bind((address, port))
        opened.listen(_BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(opened))
    except BaseException:
        opened.close()
        raise


def _is_readable(listening: trio.socket.SocketType) -> bool:
    """Whether a client has connected that was not accepted yet."""
    poll = select.poll()
    poll.register(listening.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there: stop it, or set another http_port"
    if error.errno == errno.EACCES:
        return "only root may listen there: set an http_port above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address: correct http_host"
    return (error.strerror or str(error)).lower()


def _write(path: str, text: str) -> None:
    """Write the address file. The replacement is atomic, so readers see the whole line or none."""
    try:
        private_directory(os.path.dirname(path))
        own_files.replace(Path(path), text.encode("ascii"))
    except (OSError, IpcError) as error:
        log.warning("where HTTP is served could not be written to %s: %s", path, error)
