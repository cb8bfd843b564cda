"""The cards of downstreams whose tools have changed: a person lets agents have the new ones, or keeps them withheld.

A downstream's actor withholds what is not pinned, with or without a card. The card is made from what is offered now, so
it needs no row of its own. A rejected offer is remembered by its hash, and not asked about again.

Nobody accepts what they cannot see: `diff` has every changed text whole, which ctl shows and Slack gets as a file. What
is too long for that cannot be accepted there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import trio
from attrs import define, evolve, field, frozen

from intercom.gateway import pins
from intercom.gateway.downstream_tasks import ToolsChanged
from intercom.gateway.pins import Changes
from intercom.gateway.stored_state import CARD_PREFIX, StoredState, card_id
from intercom.model.card import Card, CardKind, CardState, end_of, subject
from intercom.model.decision import Decided, Signature, Verdict
from intercom.model.errors import AlreadyDecided, InvalidState

#: Checks the signature of a decision: returns it, None if none is needed, or raises SignatureRefused.
Admit = Callable[[Verdict, Card, datetime], Signature | None]
#: How many closed cards are remembered, so that a repeated or late decision is told how they ended.
REMEMBERED: Final = 256
#: The longest text that chats show whole, in bytes.
CHAT_BYTES: Final = 500_000


@frozen
class _Open:
    """A card that waits for a person, what it is about, and whether it shows all of that."""

    card: Card
    changes: Changes
    is_whole: bool


@define(eq=False)
class ToolCards:
    """The cards of one server's downstreams. `show` tells every channel of a card, `allow` (name, hash) tells the
    downstream's actor that its offer is accepted. `others` returns the names of all other downstreams' tools."""

    stored: StoredState
    now: Callable[[], datetime]
    show: Callable[[Card], object]
    allow: Callable[[str, str], Awaitable[object]]
    others: Callable[[str], tuple[str, ...]] = lambda _name: ()
    #: The shown cards by downstream; the closed ones by their own id.
    _open: dict[str, _Open] = field(factory=dict, init=False)
    _closed: OrderedDict[str, Card] = field(factory=OrderedDict, init=False)
    _deciding: trio.Lock = field(factory=trio.Lock, init=False)

    def cards(self) -> tuple[Card, ...]:
        """Return the cards that wait for a person, oldest first."""
        return tuple(sorted((shown.card for shown in self._open.values()), key=lambda card: card.created_at))

    def find(self, prefix: str) -> Card | None:
        """Return the card whose id is `prefix`, or the only one that begins with it; None if there is none."""
        if not prefix.startswith(CARD_PREFIX):
            return None
        known = {card.id: card for card in (*self._closed.values(), *self.cards())}
        found = [card for id, card in known.items() if id.startswith(prefix)]
        return known.get(prefix) or (found[0] if len(found) == 1 else None)

    async def changed(self, told: ToolsChanged) -> None:
        """Show a card for what a downstream offers now, or close the one that no longer fits."""
        name, changes = told.name, told.changes
        offered = pins.changes_hash(changes)
        shown = self._open.get(name)
        if shown is not None and shown.card.detail == offered:
            return
        if shown is not None:
            self._close(shown.card, "the downstream offers something else now")
        # Tools that are gone give agents nothing, so nobody is asked.
        if changes.changed or changes.added or changes.refused:
            if await self.stored.is_rejected(name, offered):
                return
            # Megabytes take seconds.
            made = await trio.to_thread.run_sync(_open_of, name, changes, self.now(), self.others(name))
            self._open[name] = made
            # The same offer may have had a card before.
            self._closed.pop(made.card.id, None)
            self.show(made.card)

    def gone(self, name: str) -> None:
        """Close the card of a downstream that is no longer configured."""
        shown = self._open.get(name)
        if shown is not None:
            self._close(shown.card, "the downstream is no longer configured")

    async def decide(self, card: Card, verdict: Verdict, admit: Admit) -> Card:
        """Let agents have what the card shows, or keep it withheld. The first verdict wins, and the same one again is
        answered alike. Raises AlreadyDecided, InvalidState if it is accepted where it cannot be seen whole, and
        SignatureRefused from `admit`."""
        async with self._deciding:
            # Another verdict may have won while this one waited.
            return await self._decide(self._closed.get(card.id, card), verdict, admit)

    async def _decide(self, card: Card, verdict: Verdict, admit: Admit) -> Card:
        state = end_of(CardKind.TOOLS, verdict.decision)
        if card.decided is not None and card.decided.verdict_id == verdict.id:
            return card
        name = next((name for name, shown in self._open.items() if shown.card.id == card.id), None)
        # The id has only a part of the hash of what is offered, so all that the card shows is compared.
        if name is None or subject(self._open[name].card) != subject(card):
            raise AlreadyDecided(f"the change {card.id} was decided, or the downstream offers something else now")
        shown = self._open[name]
        accepted = state is CardState.APPLIED
        if accepted:
            _require_seen(shown, name, verdict.channel)
        now = self.now()
        decided = Decided.of(verdict, now, admit(verdict, card, now))
        offered = pins.changes_hash(shown.changes)
        if accepted:
            await self.stored.allow(name, shown.changes, decided, card.id)
            await self.allow(name, offered)
        else:
            await self.stored.reject(name, offered, decided, card.id)
        return self._end(evolve(card, state=CardState(state.value), decided=decided))

    def _close(self, card: Card, note: str) -> None:
        self._end(evolve(card, state=CardState.CLOSED, note=note))

    def _end(self, card: Card) -> Card:
        for name in [name for name, shown in self._open.items() if shown.card.id == card.id]:
            del self._open[name]
        self._closed[card.id] = card
        while len(self._closed) > REMEMBERED:
            self._closed.popitem(last=False)
        self.show(card)
        return card


def _require_seen(shown: _Open, name: str, channel: str) -> None:
    """Raise InvalidState if a person cannot have seen all that they accept."""
    if not shown.is_whole:
        raise InvalidState(
            f"the changed tools of {name} are too long to be shown whole, so they cannot be accepted: reject them, and"
            f" ask who makes {name} for shorter ones"
        )
    if channel == "slack" and len((shown.card.diff or "").encode()) > CHAT_BYTES:
        raise InvalidState(
            f"the changed tools of {name} are too long for a chat, which does not show them whole: read them with"
            f" agent-intercom-ctl show {shown.card.id}, and accept them with agent-intercom-ctl approve {shown.card.id}"
        )


def card_of(name: str, changes: Changes, at: datetime, others: tuple[str, ...] = ()) -> Card:
    """Return the card of what a downstream offers now instead of what is pinned."""
    return _open_of(name, changes, at, others).card


def _open_of(name: str, changes: Changes, at: datetime, others: tuple[str, ...]) -> _Open:
    offered = pins.changes_hash(changes)
    described = pins.describe(changes, name, others)
    names = [*(each.name for each in changes.changed), *(each.name for each in changes.added)]
    what = f"{len(names)} tools" if len(names) != 1 else f"the tool {names[0][:80]}"
    note = "agents cannot call them until somebody accepts"
    card = Card(
        id=card_id(name, offered),
        kind=CardKind.TOOLS,
        session_id="",
        workspace_root="",
        title=f"{name} offers other tools than were allowed: {what}" if names else f"{name} offers unusable tools",
        created_at=at,
        body=described.summary,
        detail=offered,
        diff=f"{described.text}\n",
        note=note if described.is_whole else f"{note}, which nobody can: they are too long to be shown whole",
    )
    return _Open(card, changes, described.is_whole)
