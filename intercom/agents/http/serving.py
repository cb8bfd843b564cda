"""Serves the open port: its connections, their limits and their shutdown."""

from __future__ import annotations

import logging
from typing import Any

import trio
from hypercorn.config import Config as WebConfig
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from starlette.middleware.cors import CORSMiddleware

from intercom.agents.http import guard, site
from intercom.agents.http.classic import Classic
from intercom.agents.http.connection import FIRST_SECONDS, Connection
from intercom.agents.http.http1 import Http1Server
from intercom.agents.http.kin import Kin
from intercom.agents.http.standing import Guestbook
from intercom.agents.http.streamable import Streamable
from intercom.agents.http.surroundings import Surroundings

log = logging.getLogger("intercom.http")

#: How long a connection may stay without a request, in seconds. This exceeds the limits of proxies and clients, so none
#: sends a request into a closing connection.
KEEP_ALIVE_SECONDS = 90.0
#: How long calls in progress may take to end when the server stops, in seconds.
LEAVING_SECONDS = 3.0
#: The most connections at once.
MOST_CONNECTIONS = 8192
#: Limits of connections without a token. Above MOST_STRANGERS, the oldest one closes if it had STRANGER_SECONDS. Above
#: MOST_NEW_STRANGERS, it closes at once: a client with a token shows it immediately.
MOST_STRANGERS = 256
MOST_NEW_STRANGERS = 1024
STRANGER_SECONDS = 2.0
_LONGEST_HEAD = 32 * 1024


class Serving:
    """One run of the open port, with its connections."""

    def __init__(self, at: Surroundings) -> None:
        self._at = at
        self._connections: dict[tuple[str, int], Connection] = {}
        self._strangers: dict[int, Connection] = {}
        self._count = 0
        self._context = WorkerContext(None)
        self._streamable = Streamable(at.server, at.guests)
        self._classic = Classic(at.server, at.guests, self._streamable.visits)
        self._kin = Kin(at.processes)
        standing = at.standing
        assert standing.port is not None, "the port is open"
        # The ASGI types of the web server and of Starlette do not match.
        application: Any = site.Site(
            guard.rules(at.guests.config, standing.port, standing.token),
            {"/mcp": self._streamable, "/sse": self._classic.stream, "/message": self._classic.message},
            site.by_path(at.pages),
            self._connections,
            self._kin.look,
            at.measured,
        )
        if origins := at.guests.config.http_allowed_origins:
            # Without CORS headers, a browser does not let its page read our responses.
            application = CORSMiddleware(
                application,
                # In the case that browsers send and the access rules compare.
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
        """Serve until cancelled, and then answer waiting calls."""
        serving = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            accepting = trio.CancelScope()
            nursery.start_soon(self._serve, listener, serving, accepting)
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
        """Stop accepting, end waiting calls, and give their answers time to be sent."""
        accepting.cancel()
        await self._context.terminated.set()
        self._streamable.visits.hurry()
        with trio.move_on_after(LEAVING_SECONDS):
            await self._streamable.visits.quiet()
        for connection in tuple(self._connections.values()):
            await connection.abort()

    async def _converse(self, stream: trio.SocketStream) -> None:
        """Serve one connection. Its errors do not affect others."""
        self._count += 1
        try:
            connection = Connection(stream, self._count)
        except OSError:
            # The client disconnected already.
            await trio.aclose_forcefully(stream)
            return
        await self._make_room(connection)
        self._connections[connection.peer] = connection
        self._strangers[connection.number] = connection
        try:
            await Http1Server(self._app, self._web, self._context, ConnectionState({}), connection)  # type: ignore[arg-type]
        except* Exception:
            log.exception("a connection from %s failed", connection.peer[0])
        finally:
            self._strangers.pop(connection.number, None)
            if self._connections.get(connection.peer) is connection:
                del self._connections[connection.peer]
            self._kin.closed(connection)

    async def _turn_out(self) -> None:
        """Close connections without a request in time, forever."""
        while True:
            await trio.sleep(1.0)
            late = trio.current_time() - FIRST_SECONDS
            for number, stranger in tuple(self._strangers.items()):
                if stranger.welcome:
                    del self._strangers[number]
                elif stranger.came_at <= late and not stranger.answered:
                    del self._strangers[number]
                    await stranger.abort()

    async def _make_room(self, connection: Connection) -> None:
        """Close the oldest connection without a token if there are too many. Connections that have shown a token are
        never closed for others."""
        if len(self._connections) >= MOST_CONNECTIONS:
            await connection.abort()
        if len(self._strangers) < MOST_STRANGERS:
            return
        for number, stranger in tuple(self._strangers.items()):
            if stranger.welcome:
                del self._strangers[number]
                continue
            had_time = connection.came_at - stranger.came_at > STRANGER_SECONDS
            if had_time or len(self._strangers) >= MOST_NEW_STRANGERS:
                del self._strangers[number]
                await stranger.abort()
            return


def _web_config() -> WebConfig:
    web = WebConfig()
    web.errorlog = logging.getLogger("intercom.http.web")
    web.keep_alive_timeout = KEEP_ALIVE_SECONDS
    web.keep_alive_max_requests = 1_000_000
    web.h11_max_incomplete_size = _LONGEST_HEAD
    web.include_server_header = False
    return web
