"""The actor `push`: sends people's browsers messages about new requests while the page is closed.

One message tells of all requests that came within a moment, and the next one comes after a pause. A message is made
when it is sent: a request that was decided meanwhile is not in it. Nothing waits for this actor: it is told of cards as
every channel is. What its memory held is gone with a crash; cards of the last minute are then told again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import trio
from attrs import define, field, frozen

from intercom.masking import Masker
from intercom.model.card import ANSWERED, Card, CardKind, CardState, Notice
from intercom.model.errors import IpcError
from intercom.model.json_types import Json, JsonObject
from intercom.model.visible_text import count, one_line
from intercom.operators.channel_actor import ChannelActor, utc_now
from intercom.operators.router_messages import Channel
from intercom.operators.web.push_encryption import PADDED
from intercom.operators.web.push_subscriptions import PushCalls
from intercom.sessions.operator_service import OperatorService
from intercom.store.store_and_reader import STORE_FAULTS

if TYPE_CHECKING:
    from intercom.operators.web.push_delivery import Attempt

log = logging.getLogger("intercom.web")

#: How long the first request waits for others, and the shortest time between two messages, in seconds.
GATHER_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = 20.0
#: The pauses before a message is tried again, in seconds. A push service may ask for a longer one, up to the longest.
RETRIES: Final = (2.0, 10.0, 60.0, 300.0)
LONGEST_RETRY: Final = 900.0
#: How many attempts go on at once.
_AT_ONCE: Final = 8
#: Cards that are older when the actor starts were told before.
_NEW: Final = timedelta(seconds=60)
#: Of how many cards it is kept whether they are open.
_REMEMBERED: Final = 20_000
_LISTED: Final = 3
_LISTED_IDS: Final = 8
_TITLE_CHARS: Final = 120

_KINDS: Final = {
    CardKind.PROMPT: "Question",
    CardKind.STANDBY: "Waits for work",
    CardKind.STALL: "Alert",
    CardKind.POLICY: "Policy",
    CardKind.APPLY: "Apply stopped half-way",
    CardKind.RESTORE: "Restore",
    CardKind.ROOM: "Room",
    CardKind.TOOLS: "Changed tools",
}


# --- what is told ----------------------------------------------------------------------------------------------------


def digest(cards: Sequence[Card], waiting: int, mask: Callable[[str], str]) -> JsonObject:
    """Return what a browser shows of these new cards, oldest first, of which `waiting` wait in all: their kinds and
    titles, without secrets. Its service worker reads it (`web/src/service-worker.ts`)."""
    ids: list[Json] = [card.id for card in cards[:_LISTED_IDS]]
    first = cards[0]
    path = f"/inbox/{first.id}" if len(cards) == 1 else "/inbox"
    if waiting <= 1:
        return {"tag": "waiting", "title": kind_of(first), "body": _title_of(first, mask), "path": path, "ids": ids}
    lines = [f"{kind_of(card)}: {_title_of(card, mask)}" for card in cards[:_LISTED]]
    if waiting > len(lines):
        lines.append(f"and {waiting - len(lines)} more")
    title = f"{count(waiting, 'request')} wait"
    return {"tag": "waiting", "title": title, "body": "\n".join(lines), "path": path, "ids": ids}


def kind_of(card: Card) -> str:
    """Return what a card is, as the page says it (`web/src/model/kinds.ts`)."""
    if card.kind is CardKind.APPROVAL:
        return "Change" if card.files else "Permission"
    return _KINDS.get(card.kind, card.kind.value)


def _title_of(card: Card, mask: Callable[[str], str]) -> str:
    title = one_line(mask(card.title))
    return title if len(title) <= _TITLE_CHARS else f"{title[: _TITLE_CHARS - 1]}…"


def message_of(told: JsonObject) -> bytes:
    """Return the text of a message. It fits: the titles are cut, and there are few."""
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    assert len(text) <= PADDED, "titles, ids and lines are limited"
    return text


# --- the actor -------------------------------------------------------------------------------------------------------


@frozen
class PushDeps:
    """The dependencies of the push messages. `contact` is what push services are told of this server's owner."""

    service: OperatorService
    calls: PushCalls
    contact: str | None = None
    now: Callable[[], datetime] = utc_now
    card_router: str = "card_router"
    masker: Masker = field(factory=Masker)


@define(eq=False)
class PushQueue:
    """What browsers are still to be told. `open_cards` are the cards as they are now, by their ids."""

    deps: PushDeps
    open_cards: Mapping[str, Card]
    _new: dict[str, None] = field(factory=dict, init=False)
    _news: trio.Event = field(factory=trio.Event, init=False)
    #: By the id of a subscription: the ids of cards. A task sends them as long as there are some.
    _untold: dict[str, dict[str, None]] = field(factory=dict, init=False)
    _limit: trio.CapacityLimiter = field(factory=lambda: trio.CapacityLimiter(_AT_ONCE), init=False)

    def add(self, card_id: str) -> None:
        """Have all browsers told of a new card. Never waits."""
        self._new[card_id] = None
        self._news.set()

    async def run(self) -> None:
        """Collect what is new, and send it."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._news.wait()
                await trio.sleep(GATHER_SECONDS)
                self._news = trio.Event()
                new, self._new = self._new, {}
                try:
                    known = await self.deps.calls.subscriptions()
                except STORE_FAULTS as fault:
                    log.warning("push messages are not sent yet: %s", fault)
                    self._new = {**new, **self._new}
                    self._news.set()
                    known = ()
                for each in known:
                    is_sending = each.id in self._untold
                    self._untold.setdefault(each.id, {}).update(new)
                    if not is_sending:
                        nursery.start_soon(self._send, each.id)
                await trio.sleep(PAUSE_SECONDS)

    async def _send(self, id: str) -> None:
        """Send a browser what it is to be told, until that is done, or cannot be."""
        from intercom.operators.web.push_delivery import Outcome

        name = f"push messages to {id[:8]}"
        try:
            for pause in (*RETRIES, None):
                while (attempt := await self._attempt(id)) is not None and attempt.outcome is Outcome.SENT:
                    pass
                if attempt is None:
                    return
                if attempt.outcome is Outcome.GONE:
                    log.info("%s end: its browser has unsubscribed", name)
                    await self.deps.calls.forget(id)
                    return
                if attempt.outcome is Outcome.REFUSED or pause is None:
                    log.warning("%s are not sent: %s", name, attempt.why)
                    return
                await trio.sleep(min(LONGEST_RETRY, max(pause, attempt.after)))
        except (*STORE_FAULTS, IpcError) as fault:
            log.warning("%s are not sent: %s", name, fault)
        finally:
            self._untold.pop(id, None)

    async def _attempt(self, id: str) -> Attempt | None:
        """Send a browser what it is to be told, once. Returns None if there is nothing, or no such browser any more."""
        from intercom.operators.web.push_delivery import Attempt, Outcome, send

        deps = self.deps
        try:
            subscription = next((each for each in await deps.calls.subscriptions() if each.id == id), None)
        except STORE_FAULTS as fault:
            return Attempt(Outcome.LATER, str(fault))
        key = await deps.calls.key()
        told = tuple(self._untold[id])
        cards = [self.open_cards[each] for each in told if each in self.open_cards]
        if subscription is None or not cards:
            return None
        waiting = sum(each.kind in ANSWERED for each in self.open_cards.values())
        text = message_of(digest(cards, waiting, lambda title: deps.masker.mask(title).text))
        async with self._limit:
            done = await send(subscription, text, key, deps.calls.destinations, deps.contact, deps.now())
        if done.outcome is Outcome.SENT:
            for each in told:
                self._untold[id].pop(each, None)
        return done


class PushSender(ChannelActor):
    """Tells subscribed browsers of new cards; registered as `push`."""

    def __init__(self, deps: PushDeps) -> None:
        super().__init__(deps.service, Channel.PUSH, deps.card_router, deps.now)
        self._queue = PushQueue(deps, self.open_cards)
        self._known: set[str] = set()
        self._since = self.now() - _NEW

    def on_start(self) -> None:
        self.subscribe_soon()
        self.spawn(self._queue.run)

    def publish(self, shown: Card | Notice) -> None:
        if isinstance(shown, Notice) or shown.kind not in ANSWERED:
            return
        if shown.state is not CardState.PENDING:
            self._known.discard(shown.id)
        elif shown.id not in self._known:
            self._known.add(shown.id)
            if len(self._known) > _REMEMBERED:
                self._known &= self.open_cards.keys()
            # Of what waited when it started, only the newest was not told.
            if self.is_caught_up.is_set() or shown.created_at >= self._since:
                self._queue.add(shown.id)
