"""The actor `http`: holds the port, and serves who comes until it is stopped."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import trio
from attrs import frozen
from hypercorn.config import Config as WebConfig
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from mcp.server import Server
from starlette.middleware.cors import CORSMiddleware

from actors import Actor, Name
from intercom.agents.http import guard, site
from intercom.agents.http.classic import Classic
from intercom.agents.http.connection import FIRST_SECONDS, Connection
from intercom.agents.http.kin import Kin
from intercom.agents.http.standing import Guestbook, Standing
from intercom.agents.http.streamable import Streamable
from intercom.agents.http.visits import Guests
from intercom.local.places import private_directory
from intercom.model.card import Notice
from intercom.model.errors import IpcError
from intercom.model.measure import Measured
from intercom.model.page import Page

log = logging.getLogger("intercom.http")

#: Seconds between two attempts to open a port that another program holds: at first, and at most.
_RETRY_SECONDS = (1.0, 30.0)
#: How long a client may keep a connection without a request on it, in seconds: longer than proxies and clients do, so
#: that none sends one into a connection that closes.
KEEP_ALIVE_SECONDS = 90.0
#: How long calls that are under way may take to end when the server stops, in seconds.
LEAVING_SECONDS = 3.0
#: The most connections at once; and how many that have made no request yet and have had the time to, so many seconds,
#: are kept.
MOST_CONNECTIONS = 8192
MOST_STRANGERS = 256
STRANGER_SECONDS = 2.0
_LONGEST_HEAD = 32 * 1024
_BACKLOG = 512


@frozen
class Surroundings:
    """What serving needs of the server: the MCP server, what doors need, the standing to keep, the pages besides, whom
    to tell of trouble, the clock, where an agent's processes are noted, what gives the token to ask for (it raises
    IpcError; None where nothing is asked), and what is told of errors."""

    server: Server[Any]
    guests: Guests
    standing: Standing
    pages: Sequence[Page]
    operators: Name
    now: Callable[[], datetime]
    came: Callable[[str, frozenset[int]], None]
    left: Callable[[str, bool], None]
    token: Callable[[], str] | None
    address_file: str
    measured: Measured


class HttpListener(Actor):
    """Registered as `http`. Its port may be taken, or its token unusable: it says so to operators, and tries again."""

    def __init__(self, at: Surroundings) -> None:
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
        _, self._at.standing.port = listener.socket.getsockname()[:2]
        self._at.standing.fault = None
        log.info("MCP over HTTP at %s", self._at.standing.url)
        _write(self._at.address_file, f"{self._at.standing.base}\n")
        async with listener:
            await Serving(self._at).run(listener)

    async def _opened(self) -> trio.SocketListener:
        config = self._at.guests.config
        host, port = config.http_host, config.http_port or 0
        pause, longest = _RETRY_SECONDS
        while True:
            try:
                # Before the port: nobody is served without it.
                self._at.standing.token = None if self._at.token is None else self._at.token()
                opened = _listen(host, port)
            except IpcError as error:
                self._tell_of(error.message)
            except OSError as error:
                self._tell_of(f"port {port} on {host} can not be opened ({_why(error)})")
            else:
                if self._at.standing.fault is not None:
                    self._notice(f"agents can connect over HTTP now: port {port} on {host} is open", "info")
                return opened
            await trio.sleep(pause)
            pause = min(longest, pause * 2)

    def _tell_of(self, why: str) -> None:
        fault = (
            f"agents can not connect over HTTP: {why}; it is tried again, and agents over stdio are served meanwhile"
        )
        if fault != self._at.standing.fault:
            self._at.standing.fault = fault
            log.error("%s", fault)
            self._notice(fault, "error")

    def _notice(self, text: str, level: str) -> None:
        self._at.operators.tell(Notice(text, level, self._at.now()))

    def _closed(self) -> None:
        self._at.standing.port = None
        self._at.standing.guests = Guestbook
        try:
            os.unlink(self._at.address_file)
        except OSError:
            # Never written, or its directory is gone.
            pass


class Serving:
    """One opening of the port: its connections, and all that is kept for them."""

    def __init__(self, at: Surroundings) -> None:
        self._at = at
        self._connections: dict[tuple[str, int], Connection] = {}
        self._strangers: dict[int, Connection] = {}
        self._count = 0
        self._context = WorkerContext(None)
        self._streamable = Streamable(at.server, at.guests)
        self._classic = Classic(at.server, at.guests, self._streamable.visits)
        self._kin = Kin(at.came, at.left)
        standing = at.standing
        assert standing.port is not None, "the port is open"
        # The web server's own types for ASGI and Starlette's do not agree.
        application: Any = site.Site(
            guard.rules(at.guests.config, standing.port, standing.token),
            {"/mcp": self._streamable, "/sse": self._classic.stream, "/message": self._classic.message},
            site.by_path(at.pages),
            self._connections,
            self._kin.look,
            at.measured,
        )
        if origins := at.guests.config.http_allowed_origins:
            # Without a word of ours a browser does not let its page read what we answer.
            application = CORSMiddleware(
                application,
                # As browsers write them, and as the guard reads them.
                allow_origins=[origin.lower() for origin in origins],
                allow_methods=("GET", "POST", "DELETE"),
                allow_headers=("*",),
                expose_headers=("mcp-session-id", "www-authenticate"),
            )
        self._app = wrap_app(application, 0, "asgi")
        self._web = _web_config()
        standing.guests = self._guests

    def _guests(self) -> Guestbook:
        visits = self._streamable.visits
        return Guestbook(len(self._connections), len(visits.sessions), len(visits.named), len(visits.live))

    async def run(self, listener: trio.SocketListener) -> None:
        """Serve until cancelled; calls that wait are answered first then."""
        serving = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            ready = trio.Event()
            accepting = trio.CancelScope()
            nursery.start_soon(self._serve, listener, serving, accepting, ready)
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await self._leave(accepting)
                serving.cancel()

    async def _serve(
        self,
        listener: trio.SocketListener,
        serving: trio.CancelScope,
        accepting: trio.CancelScope,
        ready: trio.Event,
    ) -> None:
        visits = self._streamable.visits
        with serving:
            try:
                async with self._streamable.manager.run(), trio.open_nursery() as nursery:
                    nursery.start_soon(visits.keep)
                    nursery.start_soon(self._turn_out)
                    with accepting:
                        await trio.serve_listeners(self._converse, [listener], handler_nursery=nursery)
                    await trio.sleep_forever()
            finally:
                visits.close()

    async def _leave(self, accepting: trio.CancelScope) -> None:
        """Let nobody in, tell who waits, and give the answers time to leave."""
        accepting.cancel()
        await self._context.terminated.set()
        self._streamable.visits.hurry()
        with trio.move_on_after(LEAVING_SECONDS):
            await self._streamable.visits.quiet()
        for connection in tuple(self._connections.values()):
            await connection.abort()

    async def _converse(self, stream: trio.SocketStream) -> None:
        """Serve one connection. Nothing that goes wrong with it is anybody else's."""
        self._count += 1
        try:
            connection = Connection(stream, self._count)
        except OSError:
            # Gone before it could be looked at.
            await trio.aclose_forcefully(stream)
            return
        await self._make_room(connection)
        self._connections[connection.peer] = connection
        self._strangers[connection.number] = connection
        try:
            await TCPServer(self._app, self._web, self._context, ConnectionState({}), connection)  # type: ignore[arg-type]
        except* Exception:
            log.exception("a connection from %s failed", connection.peer[0])
        finally:
            self._strangers.pop(connection.number, None)
            if self._connections.get(connection.peer) is connection:
                del self._connections[connection.peer]
            self._kin.closed(connection)

    async def _turn_out(self) -> None:
        """Close connections on which no request has come in time; runs for ever."""
        while True:
            await trio.sleep(1.0)
            late = trio.current_time() - FIRST_SECONDS
            for number, stranger in tuple(self._strangers.items()):
                if stranger.came_at > late and not stranger.welcome:
                    break
                del self._strangers[number]
                if not stranger.welcome:
                    await stranger.abort()

    async def _make_room(self, connection: Connection) -> None:
        """Of those who make no request the one that came first goes when there are too many: who means it makes one at
        once."""
        if len(self._connections) >= MOST_CONNECTIONS:
            await connection.abort()
        if len(self._strangers) < MOST_STRANGERS:
            return
        for number, stranger in tuple(self._strangers.items()):
            if stranger.welcome:
                del self._strangers[number]
            elif connection.came_at - stranger.came_at > STRANGER_SECONDS:
                del self._strangers[number]
                await stranger.abort()
                return
            else:
                return


def _web_config() -> WebConfig:
    web = WebConfig()
    web.errorlog = logging.getLogger("intercom.http.web")
    web.keep_alive_timeout = KEEP_ALIVE_SECONDS
    web.keep_alive_max_requests = 1_000_000
    web.h11_max_incomplete_size = _LONGEST_HEAD
    web.include_server_header = False
    return web


def _listen(host: str, port: int) -> trio.SocketListener:
    """Open the port. Raises OSError."""
    address = "127.0.0.1" if host == "localhost" else host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of an earlier server that linger do not keep the port; one that listens does.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        opened.bind((address, port))
        opened.listen(_BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(opened))
    except BaseException:
        opened.close()
        raise


def _why(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there: stop it, or set another http_port"
    if error.errno == errno.EACCES:
        return "only root may listen there: set an http_port above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address: correct http_host"
    return (error.strerror or str(error)).lower()


def _write(path: str, text: str) -> None:
    """Say where the server is; who asks finds the whole line or none."""
    draft = f"{path}.{os.getpid()}.new"
    try:
        private_directory(os.path.dirname(path))
        with open(draft, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(draft, path)
    except (OSError, IpcError) as error:
        log.warning("where HTTP is served could not be written to %s: %s", path, error)
