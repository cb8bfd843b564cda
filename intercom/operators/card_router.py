"""The router: the one actor that sessions tell what waits for a person, and that tells every channel of it.

It holds no state that could be lost. After a crash it reads the open cards again, and the channels subscribe again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import trio
from attrs import frozen

from actors import Actor, Busy, Down, DownEvent, NotRunning, System, ask
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.session import SessionMode
from intercom.operators.router_messages import Channel, Subscribe

#: Which channels each mode notifies. The mode never limits who may answer: any channel may.
NOTIFIED: dict[SessionMode, frozenset[Channel]] = {
    # A person has subscribed that one browser, on whichever machine it is: so push messages come in each mode.
    SessionMode.REMOTE: frozenset({Channel.SLACK, Channel.EMBED, Channel.PUSH}),
    SessionMode.LOCAL: frozenset({Channel.CTL, Channel.WEB, Channel.EMBED, Channel.PUSH, Channel.ELICITATION}),
    SessionMode.HYBRID: frozenset(Channel),
}

#: How many cards the router remembers; it forgets the oldest first. The store still has them.
REMEMBERED = 10_000
#: For how many closed cards the router remembers the channels that show them, for later updates.
CLOSED = 500
#: How long (in seconds) and how many notices for everybody are kept for channels that subscribe later.
EARLY_SECONDS = 60.0
EARLY = 20

OpenCards = Callable[[], Awaitable[Sequence[Card]]]
ModeOf = Callable[[str], Awaitable[SessionMode | None]]


def recipients(
    card: Card, mode: SessionMode | None, channels: Mapping[str, Channel], shown: frozenset[str] | None
) -> frozenset[str]:
    """Return the subscribers that are told of a card.

    The session's mode selects them. Subscribers that have shown the card are told too, so no channel keeps a card that
    looks open. `mode` None is a card of no session: it concerns everybody, as restores do. `shown` None means that the
    earlier recipients are not known. Then the end of a card goes to all; a channel that never showed it ignores it.
    """
    if mode is None or card.kind is CardKind.RESTORE or (shown is None and card.state is not CardState.PENDING):
        # A restore is a question of a person, not of the agent: every channel shows it.
        return frozenset(channels)
    notified = {name for name, channel in channels.items() if channel in NOTIFIED[mode]}
    return frozenset(notified | ((shown or frozenset()) & channels.keys()))


class CardRouter(Actor):
    """The router; registered as `card_router`.

    `open_cards` reads the pending cards, oldest first. `mode_of` reads a session's mode, None for an unknown session. A
    session that changes its mode sends a notice afterwards. `remembered` bounds the cards in memory. `found` are
    notices from startup that concern everybody (a restart, a damaged database): each channel gets them with its first
    subscription.
    """

    mailbox_size = 10_000

    def __init__(
        self,
        open_cards: OpenCards,
        mode_of: ModeOf,
        remembered: int = REMEMBERED,
        found: Sequence[Notice] = (),
    ) -> None:
        super().__init__()
        self._early = deque(((trio.current_time(), notice) for notice in found), maxlen=EARLY)
        self._known: set[str] = set()
        self._open_cards = open_cards
        self._mode_of = mode_of
        self._remembered = remembered
        self._channels: dict[str, Channel] = {}
        self._open: OrderedDict[str, Card] = OrderedDict()
        self._shown: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._closed: OrderedDict[str, None] = OrderedDict()
        self._modes: OrderedDict[str, SessionMode] = OrderedDict()

    async def on_start(self) -> None:
        for card in await self._open_cards():
            self._remember(card)

    async def on_receive(self, message: object) -> Any:
        match message:
            case Card():
                await self._route_card(message)
            case Notice():
                await self._route_notice(message)
            case Subscribe():
                return await self._subscribe(message)
            case DownEvent():
                self._channels.pop(message.name, None)
        return None

    async def _route_card(self, card: Card) -> None:
        mode = await self._mode(card.session_id)
        told = recipients(card, mode, self._channels, self._shown.get(card.id))
        # If this router did not see a card's first showing, its recipients stay unknown, so its end goes to all.
        if card.id in self._shown or card.id not in self._open:
            self._shown[card.id] = self._shown.get(card.id, frozenset()) | told
        self._remember(card)
        self._tell(told, card)

    async def _route_notice(self, notice: Notice) -> None:
        notified = frozenset(Channel)
        if notice.session_id is not None:
            before = self._modes.get(notice.session_id)
            mode = await self._mode(notice.session_id, afresh=True)
            if mode is not None:
                # Channels that are no longer notified get this notice, then no more.
                notified = NOTIFIED[mode] | (NOTIFIED[before] if before is not None else frozenset())
        told = [name for name, channel in self._channels.items() if channel in notified]
        self._tell(told, notice)
        if notice.session_id is None:
            self._early.append((trio.current_time(), notice))

    async def _mode(self, session_id: str, *, afresh: bool = False) -> SessionMode | None:
        """Return the session's mode. If it has changed, show the open cards to the newly notified channels. The mode is
        read once, and again (`afresh`) with each notice of the session, because a notice announces each change."""
        if not afresh and session_id in self._modes:
            return self._modes[session_id]
        mode = await self._mode_of(session_id)
        before = self._modes.get(session_id, mode)
        if mode is not None:
            self._modes[session_id] = mode
            while len(self._modes) > self._remembered:
                self._modes.popitem(last=False)
        if mode != before:
            self._show_again(session_id, mode)
        return mode

    def _show_again(self, session_id: str, mode: SessionMode | None) -> None:
        for card in self._open.values():
            shown = self._shown.get(card.id)
            if card.session_id == session_id:
                new = recipients(card, mode, self._channels, shown) - (shown or frozenset())
                if shown is not None:
                    self._shown[card.id] = shown | new
                self._tell(new, card)

    async def _subscribe(self, wish: Subscribe) -> tuple[Card, ...]:
        modes = {card.session_id: await self._mode(card.session_id) for card in tuple(self._open.values())}
        if wish.subscriber not in self._channels:
            self.monitor(self.system.named(wish.subscriber))
        self._channels[wish.subscriber] = wish.channel
        if wish.subscriber not in self._known:
            self._known.add(wish.subscriber)
            for at, notice in self._early:
                if trio.current_time() - at <= EARLY_SECONDS:
                    self._tell((wish.subscriber,), notice)
        concerned = []
        for card in self._open.values():
            mode = modes[card.session_id]
            if mode is None or card.kind is CardKind.RESTORE or wish.channel in NOTIFIED[mode]:
                concerned.append(card)
                if card.id in self._shown:
                    self._shown[card.id] |= {wish.subscriber}
        return tuple(concerned)

    def _remember(self, card: Card) -> None:
        if card.state is CardState.PENDING:
            self._open[card.id] = card
            # A decision may have been taken back.
            self._closed.pop(card.id, None)
        else:
            self._open.pop(card.id, None)
            self._closed[card.id] = None
        for kept in (self._open, self._shown):
            while len(kept) > self._remembered:
                kept.popitem(last=False)
        while len(self._closed) > CLOSED:
            self._shown.pop(self._closed.popitem(last=False)[0], None)

    def _tell(self, names: Iterable[str], message: Card | Notice) -> None:
        for name in names:
            self.system.named(name).tell(message)


#: Seconds until a busy router is asked again.
_BUSY_WAIT = 0.5


@frozen
class Subscribed:
    """The open cards for the channel, and the router's incarnation: the subscription ends with it."""

    router: Any
    cards: tuple[Card, ...]


async def subscribe(system: System, router: str, subscriber: str, channel: Channel) -> Subscribed:
    """Subscribe `subscriber` to the router of this name, which may be restarting; waits until that succeeds."""
    name = system.named(router)
    ref = name.ref
    while True:
        if ref is None:
            ref = await system.next_incarnation(name, None)
        try:
            return Subscribed(ref, await ask(ref, Subscribe(subscriber, channel)))
        except Busy:
            await trio.sleep(_BUSY_WAIT)
        except (Down, NotRunning):
            ref = await system.next_incarnation(name, ref)
