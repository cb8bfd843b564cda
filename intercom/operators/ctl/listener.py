"""The listener: the actor that holds ctl's socket, and the token file that clients read."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import trio

from actors import Actor, Busy, Down, DownEvent, NotRunning
from intercom.local import own_files
from intercom.local.places import private_directory
from intercom.local.server_socket import Check, LocalListener, Renewal, listen, peer
from intercom.local.wire import Peer
from intercom.model.card import Card, CardState, Notice
from intercom.model.errors import IntercomError, IpcError
from intercom.operators.card_router import Subscribed, subscribe
from intercom.operators.ctl.connection import Agents, CtlDeps, Limits, NoAgents, Watchers, serve
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

_REMEMBERED = 10_000


class CtlListener(Actor):
    """Listens on the local socket; registered as `ctl`.

    A crash closes the connections; ctl asks again under the same verdict id. The socket at `socket_path` and the token
    file at `token_path` have mode 0600. `token` is the server's secret; default: a new one. With
    `trust_agent_processes` an agent's own processes may decide. `agents` tracks the agent processes; default: none.
    `card_router` is the name of the router, `now` the wall clock. `transport` makes a listener from a path, and
    `peer_of` identifies the peer of a stream. Another pair of them serves another kind of socket.
    """

    mailbox_size = 10_000
    overflow = "drop_oldest"

    def __init__(
        self,
        service: OperatorService,
        socket_path: str,
        token_path: str,
        *,
        token: str | None = None,
        trust_agent_processes: bool = False,
        agents: Agents | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        card_router: str = "card_router",
        limits: Limits | None = None,
        transport: Listen = listen,
        peer_of: PeerOf = peer,
    ) -> None:
        super().__init__()
        self._socket_path = socket_path
        self._token_path = token_path
        self._card_router = card_router
        self._transport = transport
        self._peer_of = peer_of
        self._open: dict[str, Card] = {}
        self._told: set[str] | None = None
        self._listener: trio.abc.Listener[trio.SocketStream] | None = None
        self._watchers = Watchers()
        self._deps = CtlDeps(
            service=service,
            token=token or new_token(),
            watchers=self._watchers,
            open_cards=lambda: tuple(self._open.values()),
            uid=os.geteuid(),
            limits=limits or Limits(),
            trust_agent_processes=trust_agent_processes,
            agents=agents or NoAgents(),
            tell=self._tell,
        )
        self._now = now

    def on_start(self) -> None:
        # The socket first: if another server holds it, that server's token must stay.
        self._listener = self._transport(self._socket_path)
        write_token(self._token_path, self._deps.token)
        self.spawn(self._accept, self._listener)
        self.spawn(self._keep, self._listener)
        self.spawn(self._deps.authorization.keep_telling)
        self._subscribe_soon()

    def on_receive(self, message: object) -> None:
        match message:
            case Card():
                if self._told is not None:
                    self._told.add(message.id)
                self._take(message)
            case Notice():
                self._watchers.publish(message)
            case Subscribed():
                self._catch_up(message)
            case DownEvent():
                self._subscribe_soon()

    async def on_stop(self) -> None:
        if self._listener is not None:
            await self._listener.aclose()
            self._listener = None

    async def on_failure(self, *crash: object) -> None:
        await self.on_stop()

    def _tell(self, text: str, level: str = "warning") -> None:
        self.system.named(self._card_router).tell(Notice(text, level, self._now()))

    def _take(self, card: Card) -> None:
        if card.state is CardState.PENDING:
            self._open[card.id] = card
            self._deps.service.seen(card)
            while len(self._open) > _REMEMBERED:
                del self._open[next(iter(self._open))]
        else:
            self._open.pop(card.id, None)
        self._watchers.publish(card)

    def _subscribe_soon(self) -> None:
        self._told = set()
        self.spawn(self._subscribe, frozenset(self._open))

    async def _subscribe(self, known: frozenset[str]) -> None:
        """Subscribe to the router, which may be restarting. `known` are the ids of the cards shown as open."""
        answer = await subscribe(self.system, self._card_router, self.name or "ctl", Channel.CTL)
        cards = answer.cards
        closed = [await self._closed(gone) for gone in known - {card.id for card in cards}]
        self.actor_ref.tell(Subscribed(answer.router, (*cards, *(card for card in closed if card is not None))))

    async def _closed(self, card_id: str) -> Card | None:
        """Look up a card that closed without a message; None if the operator service does not know it."""
        try:
            return await self._deps.service.card(card_id)
        except (IntercomError, Down, NotRunning, Busy):
            return None

    def _catch_up(self, message: Subscribed) -> None:
        # A card that arrived meanwhile is newer than the answer.
        told, self._told = self._told or set(), None
        for card in message.cards:
            if card.id not in told and self._open.get(card.id) != card:
                self._take(card)
        self.monitor(message.router)

    async def _keep(self, listener: trio.abc.Listener[trio.SocketStream]) -> None:
        """Restore the socket and the token file whenever they are missing."""
        checks: list[Check] = [partial(keep_token, self._token_path, self._deps.token)]
        if isinstance(listener, LocalListener):
            # The socket first, as in `on_start`.
            checks.insert(0, listener.renew)
        await Renewal(self._tell, *checks).keep()

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
