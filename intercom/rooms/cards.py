"""The cards of rooms that the loop guard has paused: a person lets the room go on, or leaves it paused.

The database knows which rooms are paused and since when, so a card needs no row of its own. That a person dismissed one
is a setting of the rooms' database, under the card's id.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from functools import partial

import trio
from attrs import define, evolve, field

from intercom.model.card import Card, CardKind, CardState, end_of
from intercom.model.decision import Decided, Decision, Signature, Verdict
from intercom.model.errors import AlreadyDecided
from intercom.model.room import Message, Room, RoomEvent, RoomId
from intercom.rooms import transactions
from intercom.rooms.room_actors import RoomActors
from intercom.rooms.transactions import LOOP_GUARD, person
from intercom.store import rooms
from intercom.store.room_database import RoomsDatabase

#: Checks the signature of a decision: returns it, None if none is needed, or raises SignatureRefused.
Admit = Callable[[Verdict, Card, datetime], Signature | None]
#: How many closed cards are remembered, so that a repeated or late decision is told how they ended.
REMEMBERED = 256
_PREFIX = "room-"


@define(eq=False)
class RoomCards:
    """The cards of one server's rooms. `show` tells every channel of a card."""

    room_actors: RoomActors
    now: Callable[[], datetime]
    show: Callable[[Card], object]
    #: The shown cards by the room's id, and the closed ones by their own.
    _open: dict[RoomId, Card] = field(factory=dict, init=False)
    _closed: OrderedDict[str, Card] = field(factory=OrderedDict, init=False)
    _deciding: trio.Lock = field(factory=trio.Lock, init=False)

    async def pending(self) -> tuple[Card, ...]:
        """Return the cards that wait for a person, oldest first."""

        def read(db: RoomsDatabase) -> tuple[Room, ...]:
            return tuple(
                room for room in rooms.paused_by(db, LOOP_GUARD) if rooms.setting(db, _setting(card_id(room))) is None
            )

        self._open = {room.id: card_of(room) for room in await self.room_actors.read(read)}
        return tuple(self._open.values())

    async def find(self, prefix: str) -> Card | None:
        """Return the card whose id is `prefix`, or the only one that begins with it; None if there is none."""
        if not prefix.startswith(_PREFIX):
            return None
        known = {card.id: card for card in (*self._closed.values(), *await self.pending())}
        found = [card for id, card in known.items() if id.startswith(prefix)]
        return known.get(prefix) or (found[0] if len(found) == 1 else None)

    def known(self) -> tuple[Card, ...]:
        """Return the open cards that have been shown: those of `pending`, but without a look into the database."""
        return tuple(self._open.values())

    async def show_pending(self) -> None:
        """Show the cards of pauses that an earlier server run has left."""
        for card in await self.pending():
            self.show(card)

    def changed(self, room: Room, message: Message) -> None:
        """Show the card of a pause, or close it when the pause is over: what this message of the feed says."""
        event = message.content.get("event")
        if event == RoomEvent.PAUSED and message.content.get("by") == LOOP_GUARD and room.is_paused:
            self._open[room.id] = card_of(room)
            self.show(self._open[room.id])
        elif event in (RoomEvent.RESUMED, RoomEvent.CONCLUDED) and room.id in self._open:
            note = f"{'resumed' if event == RoomEvent.RESUMED else 'concluded'} by {message.content.get('by')}"
            self._end(room.id, evolve(self._open[room.id], state=CardState.CLOSED, note=note))

    async def decide(self, card: Card, verdict: Verdict, admit: Admit) -> Card:
        """Let the room go on, or dismiss its card. The first verdict wins, and the same one again is answered alike."""
        async with self._deciding:
            # Another verdict may have won while this one waited.
            return await self._decide(self._closed.get(card.id, card), verdict, admit)

    async def _decide(self, card: Card, verdict: Verdict, admit: Admit) -> Card:
        state = end_of(CardKind.ROOM, verdict.decision)
        if card.decided is not None and card.decided.verdict_id == verdict.id:
            return card
        if card.state is not CardState.PENDING:
            raise AlreadyDecided(f"the pause {card.id} is over, or was dismissed; nothing was changed")
        now, room_id = self.now(), RoomId(str(card.detail))
        decided = Decided.of(verdict, now, admit(verdict, card, now))
        # Before the change, whose message would close the card without a decision.
        self._open.pop(room_id, None)
        if verdict.decision is Decision.RESUME:
            act = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{card.id}/{verdict.id}"))
            work = partial(transactions.resume, room_id=room_id, author=person(verdict.by), now=now, act=act)
            await self.room_actors.change(room_id, work)
        else:
            said = f"{verdict.by} ({verdict.channel})"
            await self.room_actors.transact(room_id, partial(rooms.set_setting, name=_setting(card.id), value=said))
        return self._end(room_id, evolve(card, state=CardState(state.value), decided=decided))

    def _end(self, room_id: RoomId, card: Card) -> Card:
        self._open.pop(room_id, None)
        self._closed[card.id] = card
        while len(self._closed) > REMEMBERED:
            self._closed.popitem(last=False)
        self.show(card)
        return card


def card_id(room: Room) -> str:
    """Return the id of the card of this pause. Another pause of the same room has another card."""
    assert room.paused_at is not None, "the room is paused"
    return f"{_PREFIX}{uuid.uuid5(uuid.NAMESPACE_OID, f'{room.id}/{room.paused_at.isoformat()}').hex[:16]}"


def card_of(room: Room) -> Card:
    """Return the card of a room that the loop guard has paused."""
    assert room.paused_at is not None, "the room is paused"
    body = (
        f"{room.pause_reason}. The teams cannot post until somebody lets them go on:"
        f" agent-intercom-ctl rooms tail {room.id[:8]} shows what they said."
    )
    return Card(
        id=card_id(room),
        kind=CardKind.ROOM,
        session_id="",
        workspace_root="",
        title=f"The room {room.title} talks without progress",
        created_at=room.paused_at,
        body=body,
        detail=room.id,
    )


def _setting(card_id: str) -> str:
    return f"dismissed/{card_id}"
