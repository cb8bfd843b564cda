"""The base of the local channels' actors (ctl, web, push): their subscription to the router of cards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime

import trio

from actors import Actor, Busy, Down, DownEvent, NotRunning
from intercom.model.card import Card, CardState, Notice
from intercom.model.errors import IntercomError
from intercom.operators.card_router import Subscribed, subscribe
from intercom.operators.router_messages import Channel
from intercom.sessions.operator_service import OperatorService

_REMEMBERED = 10_000


def utc_now() -> datetime:
    return datetime.now(UTC)


class ChannelActor(Actor):
    """Knows the open cards of its channel, and publishes each change.

    After `subscribe_soon` the router, named `card_router`, tells it cards and notices. If the router restarts, it
    subscribes again, and publishes what it missed meanwhile.
    """

    mailbox_size = 10_000
    overflow = "drop_oldest"

    def __init__(
        self, service: OperatorService, channel: Channel, card_router: str, now: Callable[[], datetime] = utc_now
    ) -> None:
        super().__init__()
        self.service = service
        self.now = now
        self.open_cards: dict[str, Card] = {}
        self._channel = channel
        self._card_router = card_router
        #: Set once the router has told all open cards, for the first time.
        self.is_caught_up = trio.Event()
        self._told: set[str] | None = None

    @abstractmethod
    def publish(self, shown: Card | Notice) -> None:
        """Show this to everybody who watches. Must not wait."""

    def on_receive(self, message: object) -> object:
        match message:
            case Card():
                if self._told is not None:
                    self._told.add(message.id)
                self._take(message)
            case Notice():
                self.publish(message)
            case Subscribed():
                self._catch_up(message)
            case DownEvent():
                self.subscribe_soon()
        return None

    def announce(self, text: str, level: str = "warning") -> None:
        """Tell a line to every channel."""
        self.system.named(self._card_router).tell(Notice(text, level, self.now()))

    def subscribe_soon(self) -> None:
        self._told = set()
        self.spawn(self._subscribe, frozenset(self.open_cards))

    def _take(self, card: Card) -> None:
        if card.state is CardState.PENDING:
            self.open_cards[card.id] = card
            self.service.seen(card)
            while len(self.open_cards) > _REMEMBERED:
                del self.open_cards[next(iter(self.open_cards))]
        else:
            self.open_cards.pop(card.id, None)
        self.publish(card)

    async def _subscribe(self, known: frozenset[str]) -> None:
        """Subscribe to the router, which may be restarting. `known` are the ids of the cards shown as open."""
        answer = await subscribe(self.system, self._card_router, self.name or self._channel.value, self._channel)
        cards = answer.cards
        closed = [await self._closed(gone) for gone in known - {card.id for card in cards}]
        self.actor_ref.tell(Subscribed(answer.router, (*cards, *(card for card in closed if card is not None))))

    async def _closed(self, card_id: str) -> Card | None:
        """Look up a card that closed without a message; None if the operator service does not know it."""
        try:
            return await self.service.card(card_id)
        except (IntercomError, Down, NotRunning, Busy):
            return None

    def _catch_up(self, message: Subscribed) -> None:
        # A card that arrived meanwhile is newer than the answer.
        told, self._told = self._told or set(), None
        for card in message.cards:
            if card.id not in told and self.open_cards.get(card.id) != card:
                self._take(card)
        self.is_caught_up.set()
        self.monitor(message.router)
