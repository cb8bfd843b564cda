"""The channel's own actor: it writes down what Slack is to show, and leaves the sending to the outbox.

It keeps nothing but what is yet to be drawn, one state of each card: where many come, all but the last go unseen. What
it was not told while it was down (or too busy) it finds by looking: every card that may still
change is compared with the store whenever the router or the socket comes back, and every few minutes besides.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import trio
from attrs import frozen

from actors import Actor, Busy, Down, DownEvent, Name, NotRunning, Refused, Reply, ask
from intercom.model.card import Card, Notice
from intercom.model.config import Config
from intercom.model.errors import IntercomError, NotFound, SlackError
from intercom.model.outbox import Row
from intercom.model.session import Session
from intercom.operators.desk import Desk
from intercom.operators.messages import Channel
from intercom.operators.slack import farewell, history, placing
from intercom.operators.slack.drawing import Drawing
from intercom.operators.slack.messages import Redraw, SocketDown, SocketUp, Wake
from intercom.operators.slack.placing import Place, card_key
from intercom.operators.slack.web import WebApi
from intercom.operators.subscription import Subscribed, subscribe
from intercom.sessions.chat import ReadRecent, channel_of, thread_key
from intercom.store import outbox, sessions
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader

log = logging.getLogger(__name__)

#: Seconds between two looks at everything that may still change, and until the next after one that failed.
LOOK_SECONDS = 300.0
AGAIN_SECONDS = 5.0
#: Seconds the store may take.
STORE_SECONDS = 30.0

#: What may go wrong below and be better in a moment.
_PASSING = (IntercomError, Refused, Down, NotRunning, Busy, trio.TooSlowError)


#: How much may wait to be drawn. What is dropped is found by the next look; a line that is dropped is one of thousands.
MOST_DUE = 10_000


@frozen
class Look:
    """Told by the actor itself: compare what Slack shows with what is so."""


class SlackChannel(Actor):
    """Registered as `slack/channel`. Told `Card` and `Notice` by the router named `operators`, `Redraw` by whoever
    handles people's acts, `SocketUp` and `SocketDown` by the connection; asked `ReadRecent` by agents."""

    mailbox_size = 10_000
    overflow = "drop_oldest"
    refusals = (Refused, IntercomError)

    def __init__(
        self,
        *,
        config: Config,
        desk: Desk,
        reader: Reader,
        store: Name,
        outbox: Name,
        web: WebApi,
        drawing: Drawing,
        now: Callable[[], datetime],
        operators: str = "operators",
    ) -> None:
        super().__init__()
        self._config = config
        self._desk = desk
        self._reader = reader
        self._store = store
        self._outbox = outbox
        self._web = web
        self._drawing = drawing
        self._now = now
        self._operators = operators
        self._looking: trio.CancelScope | None = None
        self._is_up = False
        # Cards by their id, and whether they are to be drawn although nothing has changed; lines by a number.
        self._due: OrderedDict[str, tuple[Card | Notice | None, bool]] = OrderedDict()
        self._lines = 0
        self._news = trio.Event()

    def on_start(self) -> None:
        self.spawn(self._draw)
        self._look()
        self.spawn(self._look_now_and_then)

    async def on_stop(self) -> None:
        channel = self._config.slack.channel_id
        if self._is_up and channel is not None:
            try:
                pending = len(await self._desk.pending())
            except _PASSING:
                return
            await farewell.say(self._store, self._outbox, channel, pending, self._now)

    async def on_receive(self, message: Any) -> None:
        match message:
            case Card():
                self._await_turn(message.id, message)
            case Notice():
                self._lines += 1
                self._await_turn(f"line/{self._lines}", message)
            case Redraw():
                self._await_turn(message.card_id, None, anew=True)
            case Subscribed():
                self.monitor(message.router)
                await self._try(self._compare, message.cards)
            case SocketUp():
                log.info("connected to slack")
                self._is_up = True
                self._outbox.tell(message)
                self._look()
            case Look() | DownEvent():
                self._look()
            case SocketDown():
                self._is_up = False
                log.warning("slack does not reach us: %s", message.why)
            case ReadRecent():
                self.spawn(self._read_recent, message, self.defer())

    def _await_turn(self, key: str, what: Card | Notice | None, *, anew: bool = False) -> None:
        """Have it drawn after what came before; a card that waits already, as it is by then (None: to be looked up)."""
        self._due[key] = what, anew or self._due.get(key, (None, False))[1]
        if len(self._due) > MOST_DUE:
            self._due.popitem(last=False)
        self._news.set()

    async def _draw(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._due:
                key, (what, anew) = self._due.popitem(last=False)
                match what:
                    case Card():
                        await self._try(partial(self._card, anew=anew), what)
                    case Notice():
                        await self._try(self._notice, what)
                    case None:
                        await self._try(partial(self._redraw, anew=anew), key)

    async def _try(self, work: Callable[[Any], Any], what: Any) -> None:
        """Do it; where a neighbour is down, look at everything again soon instead."""
        try:
            await work(what)
        except _PASSING as failed:
            log.warning("slack is not up to date, and is looked at again shortly: %s", failed)
            self.set_timer("look", AGAIN_SECONDS, Look())

    # --- cards -------------------------------------------------------------------------------------------------------

    async def _card(self, card: Card, *, anew: bool) -> None:
        self._desk.seen(card)
        place = await self._place(card.session_id)
        if place is None:
            return
        # In a worker thread: a long diff takes a while to be searched for secrets.
        drawn = await trio.to_thread.run_sync(self._drawing.card, card)
        await self._transact(partial(placing.put_card, card=card, place=place, drawn=drawn, at=self._now(), anew=anew))
        self._outbox.tell(Wake())

    async def _redraw(self, card_id: str, *, anew: bool) -> None:
        try:
            card = await self._desk.card(card_id)
        except NotFound:
            await self._close(card_key(card_id))
        else:
            await self._card(card, anew=anew)

    async def _compare(self, open_cards: tuple[Card, ...]) -> None:
        """Make right what has come about unheard: cards that are open, and cards that were when they were drawn."""
        for card in open_cards:
            # As it is by now: that it was decided may have been told before this was.
            self._await_turn(card.id, None)
        told = {card_key(card.id) for card in open_cards}
        for row in await self._reader.read(outbox.open_rows):
            if row.key not in told:
                await self._look_at(row)

    async def _look_at(self, row: Row) -> None:
        kind, _, id = row.key.partition("/")
        if kind == "card":
            self._await_turn(id, None)
        elif kind == "thread":
            place = await self._place(id)
            if place is not None and place.session is not None:
                await self._transact(partial(placing.put_top, place=place, at=self._now()))
                self._outbox.tell(Wake())

    async def _close(self, key: str) -> None:
        """A card that nobody knows any more: its buttons must not stay."""
        await self._transact(partial(placing.put_closed, key=key, at=self._now()))
        self._outbox.tell(Wake())

    # --- lines -------------------------------------------------------------------------------------------------------

    async def _notice(self, notice: Notice) -> None:
        if notice.key is None:
            place = await self._place(notice.session_id)
            if place is None:
                return
            content = await trio.to_thread.run_sync(self._drawing.notice, notice)
            await self._transact(partial(placing.put_line, notice=notice, place=place, content=content, at=self._now()))
        self._outbox.tell(Wake())

    # --- rows --------------------------------------------------------------------------------------------------------

    async def _place(self, session_id: str | None) -> Place | None:
        """Where what concerns this session goes; None where no channel is set."""
        session, there = await self._reader.read(partial(_session_and_top, id=session_id))
        if session is None:
            channel = self._config.slack.channel_id
            return None if channel is None else Place(channel)
        # A session stays in the channel where its thread is, whatever the configuration says since.
        channel = channel_of(self._config, session) if there is None else there.channel
        if channel is None:
            return None
        return Place(channel, session, await trio.to_thread.run_sync(self._drawing.root, session))

    async def _transact(self, work: Callable[[Database], Any]) -> None:
        await ask(self._store, Transact(work), timeout=STORE_SECONDS, retry=True)

    # --- the router and Slack ----------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self.spawn(self._subscribe)

    async def _look_now_and_then(self) -> None:
        # A task and no timer: its message may be dropped, and the next comes all the same.
        while True:
            await trio.sleep(LOOK_SECONDS)
            self.actor_ref.tell(Look())

    async def _subscribe(self) -> None:
        answer = await subscribe(self.system, self._operators, self.name or "slack/channel", Channel.SLACK)
        self.actor_ref.tell(answer)

    async def _read_recent(self, asked: ReadRecent, reply: Reply[Any]) -> None:
        try:
            reply.set(await history.recent(self._web, asked.channel_id, asked.limit))
        except SlackError as refused:
            reply.fail(refused)


def _session_and_top(db: Database, id: str | None) -> tuple[Session | None, Row | None]:
    """The session of this id, and the row that its thread hangs from, None where there is none."""
    session = sessions.get(db, id) if id else None
    return session, None if session is None else outbox.by_key(db, thread_key(session.id))
