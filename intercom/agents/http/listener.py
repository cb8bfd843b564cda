"""The actor `http`: opens the port, serves its paths, and closes it."""

from __future__ import annotations

import logging
import math
import os
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
from intercom.agents.agent_process_records import KnownProcesses
from intercom.agents.http import access_rules
from intercom.agents.http.access_rules import Rules, rpc_form
from intercom.agents.http.http_sessions import ConnectionFactory
from intercom.agents.http.sse import SseTransport
from intercom.agents.http.status import HttpStatus, SessionCounts
from intercom.agents.http.streamable import Streamable
from intercom.agents.rooms import http as rooms_http
from intercom.agents.rooms import mcp as rooms_mcp
from intercom.agents.rooms.http import RoomsApp, is_rooms_path
from intercom.agents.rooms.room_call import RoomsDeps
from intercom.local import own_files
from intercom.local.places import private_directory
from intercom.local.server_socket import Renewal
from intercom.masking import KNOWN
from intercom.model.card import Notice
from intercom.model.errors import IntercomError, IpcError
from intercom.model.metrics import HttpFailed, Measured, Page
from intercom.store.store_and_reader import StoreUnavailable
from intercom.web_server.acceptor import Acceptor, ConnectionProcesses, open_port, why_not_open
from intercom.web_server.http_request import Refusal, answer, too_many, unknown_path, wrong_method
from intercom.web_server.server import Connection, HttpServer

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
                await _first(refused).send(sent, rpc_form)
        except* Exception:
            log.exception("a request to %s failed", scope["path"][:200])
            if not begun:
                await _FAILED.send(sent, rpc_form)

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


@define(eq=False)
class ClientRecords:
    """Finds the process behind each connection. `agents` records that it is an agent's."""

    agents: KnownProcesses
    _processes: ConnectionProcesses = field(factory=ConnectionProcesses, init=False)

    async def look(self, connection: Connection) -> None:
        """Find and record the processes of a connection; none for another user's or another machine's. Raises Refusal
        if the search takes too long, or the processes cannot be recorded. No request may be answered then, and the next
        request searches again."""
        try:
            # A client inside this process is the program that embeds the server.
            found = await self._processes.find(connection) - {os.getpid()}
            if found:
                await self.agents.came(_name(connection), found)
        except (IntercomError, StoreUnavailable, trio.TooSlowError) as failed:
            log.warning("the process behind a connection over HTTP could not be found or recorded: %r", failed)
            raise too_many(
                "the process of this connection could not be found just now", HTTPStatus.SERVICE_UNAVAILABLE
            ) from None
        connection.processes = found

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


class Serving:
    """One run of the open port, with its connections."""

    def __init__(self, at: HttpDeps) -> None:
        self._at = at
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
            access_rules.rules(at.factory.config, status.port, status.token),
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
        self._server = HttpServer(application, rpc_form)
        most = MOST_CONNECTIONS if self._rooms is None else MOST_WITH_ROOMS
        self._acceptor = Acceptor(self._server, most, self._clients.closed)
        status.counts = self._counts

    def _hides(self, connection: Connection) -> bool:
        """Whether this connection may reach the rooms only."""
        if self._at.only_rooms:
            return True
        rooms = self._at.rooms
        return rooms is not None and rooms.settings.only_rooms_off_loopback and not connection.is_local

    def _counts(self) -> SessionCounts:
        sessions = self._streamable.sessions
        connections = len(self._acceptor.connections)
        return SessionCounts(connections, len(sessions.sessions), len(sessions.named), len(sessions.live))

    async def run(self, listener: trio.SocketListener) -> None:
        """Serve until cancelled, and then answer the requests in service."""
        serving = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, listener, serving)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await self._shut_down(listener)
                serving.cancel()

    async def _serve(self, listener: trio.SocketListener, serving: trio.CancelScope) -> None:
        sessions = self._streamable.sessions
        with serving:
            try:
                rooms: AbstractAsyncContextManager[None] = nullcontext() if self._rooms is None else self._rooms.run()
                async with self._streamable.manager.run(), rooms, trio.open_nursery() as nursery:
                    nursery.start_soon(sessions.expire)
                    await self._acceptor.serve(listener)
            finally:
                sessions.close()

    async def _shut_down(self, listener: trio.SocketListener) -> None:
        """Close the port, end waiting calls, and answer the requests in service, as far as there is time."""
        with trio.move_on_after(SHUTDOWN_SECONDS):
            await self._acceptor.stop_accepting(listener)
            await self._acceptor.abort(lambda connection: connection.is_idle)
            self._streamable.sessions.stop_waiting()
            if self._rooms is not None:
                await self._rooms.waits.stop()
            await self._streamable.sessions.quiet()
            await self._acceptor.abort(lambda connection: connection.is_listening)
            await self._server.quiet()
        await self._acceptor.abort(lambda _connection: True)


def _rooms(at: HttpDeps, deps: RoomsDeps, port: int) -> RoomsApp:
    config = at.factory.config
    return RoomsApp(deps, rooms_http.rules(config, port, deps), at.measured, config.http_max_request_bytes)


#: The first and the longest pause between two attempts to open a port in use, in seconds.
_RETRY_SECONDS = (1.0, 30.0)


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
                opened = open_port(host, port)
            except IpcError as error:
                self._tell_of(error.message)
            except OSError as error:
                why = why_not_open(error, port="http_port", host="http_host")
                self._tell_of(f"port {port} on {host} cannot be opened ({why})")
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


def _write(path: str, text: str) -> None:
    """Write the address file. The replacement is atomic, so readers see the whole line or none."""
    try:
        private_directory(os.path.dirname(path))
        own_files.replace(Path(path), text.encode("ascii"))
    except (OSError, IpcError) as error:
        log.warning("where HTTP is served could not be written to %s: %s", path, error)
