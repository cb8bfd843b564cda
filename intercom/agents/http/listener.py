"""The actor `http`, which opens the port and serves it until it is stopped."""

from __future__ import annotations

import errno
import logging
import os
import socket

import trio

from actors import Actor
from intercom.agents.http.serving import Serving
from intercom.agents.http.standing import Guestbook
from intercom.agents.http.surroundings import Surroundings
from intercom.local.places import private_directory
from intercom.local.renewal import RENEWAL_SECONDS, Renewal
from intercom.masking import KNOWN
from intercom.model.card import Notice
from intercom.model.errors import IpcError

log = logging.getLogger("intercom.http")

#: The first and the longest pause between two attempts to open a port in use, in seconds.
_RETRY_SECONDS = (1.0, 30.0)
_BACKLOG = 512


class HttpListener(Actor):
    """The actor registered as `http`. If its port is taken or its token unusable, it tells the operators and tries
    again."""

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
        address = f"{self._at.standing.base}\n"
        _write(self._at.address_file, address)
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(self._keep, address)
            await Serving(self._at).run(listener)

    async def _keep(self, address: str) -> None:
        """Restore the token's file and the address file if they disappear while the port is open."""
        token = self._at.standing.token

        def keep_address() -> None:
            # No notice: only our own programs read it.
            if not os.path.exists(self._at.address_file):
                _write(self._at.address_file, address)

        def keep_token() -> str | None:
            return None if token is None or self._at.keep_token is None else self._at.keep_token(token)

        renewal = Renewal(self._notice, keep_address, keep_token)
        while True:
            await trio.sleep(RENEWAL_SECONDS)
            renewal.run()

    async def _opened(self) -> trio.SocketListener:
        config = self._at.guests.config
        host, port = config.http_host, config.http_port or 0
        pause, longest = _RETRY_SECONDS
        while True:
            try:
                # Before the port opens: without the token no request is served.
                self._at.standing.token = None if self._at.token is None else self._at.token()
                KNOWN.add(self._at.standing.token or "", "Intercom token")
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
    draft = f"{path}.{os.getpid()}.new"
    try:
        private_directory(os.path.dirname(path))
        with open(draft, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(draft, path)
    except (OSError, IpcError) as error:
        log.warning("where HTTP is served could not be written to %s: %s", path, error)
