"""The listener: the actor that holds ctl's socket, and the token file that clients read."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import trio

from intercom.local import own_files
from intercom.local.places import private_directory
from intercom.local.server_socket import Check, LocalListener, Renewal, listen, peer
from intercom.local.wire import Peer
from intercom.model.card import Card, Notice
from intercom.model.errors import IpcError
from intercom.operators.authorization import Agents, NoAgents
from intercom.operators.channel_actor import ChannelActor, utc_now
from intercom.operators.ctl.connection import CtlDeps, Limits, Watchers, serve
from intercom.operators.router_messages import Channel
from intercom.sessions.operator_service import OperatorService


def new_token() -> str:
    """Return a random token of 64 hex digits."""
    return secrets.token_hex(32)


def write_token(path: str, token: str) -> None:
    """Write `token` to `path` with mode 0600, atomically; an earlier file is replaced. Raises IpcError if the directory
    is not private to this user or cannot be written."""
    try:
        private_directory(os.path.dirname(path))
        # No reader sees half a token, and a link at `path` is replaced, not followed.
        own_files.replace(Path(path), f"{token}\n".encode("ascii"))
    except OSError as error:
        raise IpcError(f"cannot write the token file {path} ({error.strerror}): check its directory") from None


def keep_token(path: str, token: str) -> str | None:
    """Write the token again if its file was removed, changed, or is not private to this user. Returns a sentence about
    it; None if nothing had to be done. Raises IpcError as `write_token`."""
    found = _token_at(path)
    if found == token:
        return None
    write_token(path, token)
    what = "was gone" if found is None else "did not hold this server's token"
    return f"the token file {path} {what}; it was written again"


def _token_at(path: str) -> str | None:
    """Read the token file; None if there is none, "" if it is not a private regular file of this user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return ""
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return ""
        return file.read(1024).strip()


log = logging.getLogger(__name__)

Listen = Callable[[str], trio.abc.Listener[trio.SocketStream]]
PeerOf = Callable[[trio.SocketStream], Peer]


class CtlListener(ChannelActor):
    """Listens on the local socket; registered as `ctl`.

    A crash closes the connections; ctl asks again under the same verdict id. The socket at `socket_path` and the token
    file at `token_path` have mode 0600. `token` is the server's secret; default: a new one. With
    `trust_agent_processes` an agent's own processes may decide. `agents` tracks the agent processes; default: none.
    `card_router` is the name of the router, `now` the wall clock. `transport` makes a listener from a path, and
    `peer_of` identifies the peer of a stream. Another pair of them serves another kind of socket.
    """

    def __init__(
        self,
        service: OperatorService,
        socket_path: str,
        token_path: str,
        *,
        token: str | None = None,
        trust_agent_processes: bool = False,
        agents: Agents | None = None,
        now: Callable[[], datetime] = utc_now,
        card_router: str = "card_router",
        limits: Limits | None = None,
        transport: Listen = listen,
        peer_of: PeerOf = peer,
    ) -> None:
        super().__init__(service, Channel.CTL, card_router, now)
        self._socket_path = socket_path
        self._token_path = token_path
        self._transport = transport
        self._peer_of = peer_of
        self._listener: trio.abc.Listener[trio.SocketStream] | None = None
        self._watchers = Watchers()
        self._deps = CtlDeps(
            service=service,
            token=token or new_token(),
            watchers=self._watchers,
            open_cards=lambda: tuple(self.open_cards.values()),
            uid=os.geteuid(),
            limits=limits or Limits(),
            trust_agent_processes=trust_agent_processes,
            agents=agents or NoAgents(),
            tell=self.announce,
        )

    def on_start(self) -> None:
        # The socket first: if another server holds it, that server's token must stay.
        self._listener = self._transport(self._socket_path)
        write_token(self._token_path, self._deps.token)
        self.spawn(self._accept, self._listener)
        self.spawn(self._keep, self._listener)
        self.spawn(self._deps.authorization.keep_telling)
        self.subscribe_soon()

    def publish(self, shown: Card | Notice) -> None:
        self._watchers.publish(shown)

    async def on_stop(self) -> None:
        if self._listener is not None:
            await self._listener.aclose()
            self._listener = None

    async def on_failure(self, *crash: object) -> None:
        await self.on_stop()

    async def _keep(self, listener: trio.abc.Listener[trio.SocketStream]) -> None:
        """Restore the socket and the token file whenever they are missing."""
        checks: list[Check] = [partial(keep_token, self._token_path, self._deps.token)]
        if isinstance(listener, LocalListener):
            # The socket first, as in `on_start`.
            checks.insert(0, listener.renew)
        await Renewal(self.announce, *checks).keep()

    async def _accept(self, listener: trio.abc.Listener[trio.SocketStream]) -> None:
        await trio.serve_listeners(self._greet, [listener])

    async def _greet(self, stream: trio.SocketStream) -> None:
        """Serve one connection; its errors affect no other connection."""
        try:
            try:
                who = self._peer_of(stream)
            except OSError:
                await trio.aclose_forcefully(stream)
                return
            await serve(stream, who, self._deps)
        except Exception:
            log.exception("a connection to the local socket failed")
