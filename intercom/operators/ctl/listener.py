"""The actor that listens on the local socket of ctl."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import trio

from actors import Actor, Busy, Down, DownEvent, NotRunning
from intercom.local.dial import Peer
from intercom.local.listen import LocalListener, listen
from intercom.local.peers import peer
from intercom.local.renewal import RENEWAL_SECONDS, Check, Renewal
from intercom.model.card import Card, CardState, Notice
from intercom.model.errors import IntercomError
from intercom.operators.ctl.authorization import Agents, NoAgents
from intercom.operators.ctl.connection import Door, Limits, serve
from intercom.operators.ctl.token import keep_token, new_token, write_token
from intercom.operators.ctl.watchers import Watchers
from intercom.operators.desk import Desk
from intercom.operators.messages import Channel
from intercom.operators.subscription import Subscribed, subscribe

log = logging.getLogger(__name__)

Listen = Callable[[str], trio.abc.Listener[Any]]
PeerOf = Callable[[Any], Peer]

_REMEMBERED = 10_000


class CtlListener(Actor):
    """Listens on the local socket; registered as `ctl`.

    A crash closes the connections; ctl asks again under the same verdict id. The socket at `socket_path` and the token
    file at `token_path` have mode 0600. `token` is the server's secret; default: a new one. With
    `trust_agent_processes` an agent's own processes may decide. `agents` tracks the agent processes; default: none.
    `operators` is the name of the router, `now` the wall clock. `transport` makes a listener from a path, and `peer_of`
    identifies the peer of a stream. Another pair of them serves another kind of socket.
    """

    mailbox_size = 10_000
    overflow = "drop_oldest"

    def __init__(
        self,
        desk: Desk,
        socket_path: str,
        token_path: str,
        *,
        token: str | None = None,
        trust_agent_processes: bool = False,
        agents: Agents | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        operators: str = "operators",
        limits: Limits | None = None,
        transport: Listen = listen,
        peer_of: PeerOf = peer,
    ) -> None:
        super().__init__()
        self._socket_path = socket_path
        self._token_path = token_path
        self._operators = operators
        self._transport = transport
        self._peer_of = peer_of
        self._open: dict[str, Card] = {}
        self._told: set[str] | None = None
        self._listener: trio.abc.Listener[Any] | None = None
        self._watchers = Watchers()
        self._door = Door(
            desk=desk,
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
        write_token(self._token_path, self._door.token)
        self.spawn(self._accept, self._listener)
        self.spawn(self._keep, self._listener)
        self.spawn(self._door.authorization.keep_telling)
        self._subscribe_soon()

    def on_receive(self, message: Any) -> None:
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
        self.system.named(self._operators).tell(Notice(text, level, self._now()))

    def _take(self, card: Card) -> None:
        if card.state is CardState.PENDING:
            self._open[card.id] = card
            self._door.desk.seen(card)
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
        answer = await subscribe(self.system, self._operators, self.name or "ctl", Channel.CTL)
        cards = answer.cards
        closed = [await self._closed(gone) for gone in known - {card.id for card in cards}]
        self.actor_ref.tell(Subscribed(answer.router, (*cards, *(card for card in closed if card is not None))))

    async def _closed(self, card_id: str) -> Card | None:
        """Look up a card that closed without a message; None if the operator service does not know it."""
        try:
            return await self._door.desk.card(card_id)
        except (IntercomError, Down, NotRunning, Busy):
            return None

    def _catch_up(self, message: Subscribed) -> None:
        # A card that arrived meanwhile is newer than the answer.
        told, self._told = self._told or set(), None
        for card in message.cards:
            if card.id not in told and self._open.get(card.id) != card:
                self._take(card)
        self.monitor(message.router)

    async def _keep(self, listener: trio.abc.Listener[Any]) -> None:
        """Restore the socket and the token file whenever they are missing."""
        checks: list[Check] = [partial(keep_token, self._token_path, self._door.token)]
        if isinstance(listener, LocalListener):
            # The socket first, as in `on_start`.
            checks.insert(0, listener.renew)
        renewal = Renewal(self._tell, *checks)
        while True:
            await trio.sleep(RENEWAL_SECONDS)
            renewal.run()

    async def _accept(self, listener: trio.abc.Listener[Any]) -> None:
        await trio.serve_listeners(self._greet, [listener])

    async def _greet(self, stream: Any) -> None:
        """Serve one connection; its errors affect no other connection."""
        try:
            try:
                who = self._peer_of(stream)
            except OSError:
                await trio.aclose_forcefully(stream)
                return
            await serve(stream, who, self._door)
        except Exception:
            log.exception("a connection to the local socket failed")
