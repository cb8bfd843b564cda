"""The acceptor: accepts connections on a port for an `HttpServer`, limits them, and finds the processes behind them."""

from __future__ import annotations

import errno
import logging
import math
import os
import resource
import select
import socket
import sys
from collections.abc import Callable

import trio
from attrs import define, field

from intercom.local import peer_processes
from intercom.local.peer_processes import TcpClients
from intercom.web_server.server import FIRST_SECONDS, Connection, HttpServer

log = logging.getLogger("intercom.http")

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
#: The shortest time between two log lines about that, in seconds.
_LOGGED_SECONDS = 60.0
#: How often the loop turns until a request is read that came before the server stops.
_TURNS = 5
_BACKLOG = 512
#: The time limit of a search for the process of a connection, in seconds.
SEARCH_SECONDS = 5.0


# --- opening ---------------------------------------------------------------------------------------------------------


def open_port(host: str, port: int) -> trio.SocketListener:
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


def why_not_open(error: OSError, *, port: str, host: str) -> str:
    """Return why a port could not be opened. `port` and `host` name their settings."""
    if error.errno == errno.EADDRINUSE:
        return f"another program listens there: stop it, or set another {port}"
    if error.errno == errno.EACCES:
        return f"only root may listen there: set an {port} above 1023"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no such address: correct {host}"
    return (error.strerror or str(error)).lower()


def most_files() -> int:
    """Return how many connections the system's limit of open files leaves room for."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    return most - min(RESERVED_FILES, most // 2)


# --- the connections -------------------------------------------------------------------------------------------------


def _nothing(_connection: Connection) -> None:
    """The default of `Acceptor.closed`."""


@define(eq=False)
class Acceptor:
    """One run of an open port, with its connections: at most `most`, and as many as the system has files for. `closed`
    is called for each connection that has ended."""

    server: HttpServer
    most: int
    closed: Callable[[Connection], None] = _nothing
    connections: set[Connection] = field(init=False, factory=set)
    _unauthenticated: dict[int, Connection] = field(init=False, factory=dict)
    _count: int = field(init=False, default=0)
    _most_files: int = field(init=False, factory=lambda: most_files())
    _exhausted_at: float = field(init=False, default=-math.inf)
    _accepting: trio.CancelScope = field(init=False, factory=trio.CancelScope)

    async def serve(self, listener: trio.SocketListener) -> None:
        """Accept connections and serve them, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._close_silent)
            nursery.start_soon(self.server.run)
            with self._accepting:
                await self._accept(listener, nursery)
            await trio.sleep_forever()

    async def stop_accepting(self, listener: trio.SocketListener) -> None:
        """Close the port. Clients that have connected already may have sent a request, which is served."""
        for _ in range(2 * _BACKLOG):
            if not _is_readable(listener.socket):
                break
            await trio.lowlevel.checkpoint()
        self._accepting.cancel()
        self.server.is_stopping = True
        for _ in range(_TURNS):
            await trio.lowlevel.checkpoint()

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
        if now - self._exhausted_at >= _LOGGED_SECONDS:
            self._exhausted_at = now
            log.error(
                "no connection can be accepted (%s) beside %d open ones: raise the limit of open files (LimitNOFILE,"
                " ulimit -n)",
                os.strerror(error.errno or 0),
                len(self.connections),
            )
        await self._close_oldest()
        await trio.sleep(EXHAUSTED_SECONDS)

    async def abort(self, chosen: Callable[[Connection], bool]) -> None:
        """Close these connections. Each is asked about at its turn: one that was idle may have a request by then."""
        for connection in tuple(self.connections):
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
            self.connections.add(connection)
            self._unauthenticated[connection.number] = connection
            await self.server.serve(connection)
        except* Exception:
            log.exception("a connection from %s failed", connection.peer[0])
        finally:
            self._unauthenticated.pop(connection.number, None)
            self.connections.discard(connection)
            self.closed(connection)

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
        if len(self.connections) >= min(self.most, self._most_files):
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


def _is_readable(listening: trio.socket.SocketType) -> bool:
    """Whether a client has connected that was not accepted yet."""
    poll = select.poll()
    poll.register(listening.fileno(), select.POLLIN)
    return bool(poll.poll(0))


# --- the processes behind them ---------------------------------------------------------------------------------------


@define(eq=False)
class ConnectionProcesses:
    """Finds the processes of connections from this machine, in the system's tables."""

    _clients: TcpClients = field(factory=TcpClients, init=False)
    _searching: trio.Lock = field(factory=trio.Lock, init=False)

    async def find(self, connection: Connection) -> frozenset[int]:
        """Return the processes of this user that hold the client's end; none for another user's or another machine's.
        Raises trio.TooSlowError if the search takes too long."""
        client, server = connection.peer, connection.here
        if not peer_processes.is_local(client[0], server[0]):
            return frozenset()
        if found := self._clients.recent(client, server):
            return found
        # One at a time: the next client may be the same process.
        async with self._searching:
            if found := self._clients.recent(client, server):
                return found
            with trio.fail_after(SEARCH_SECONDS):
                holders = await trio.to_thread.run_sync(self._clients.search, client, server, abandon_on_cancel=True)
            return self._clients.remember(holders)
