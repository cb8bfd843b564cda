"""The actor of the Slack channel: it writes what Slack is to show into the outbox, which sends it.

It holds only what is not drawn yet, with the latest state of each card. It may miss messages while it is down or too
busy. So it compares every card that may still change with the store. It does this every few minutes, and whenever the
router or the socket comes back.
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

#: Seconds between two comparisons, and until the next one after a failure.
LOOK_SECONDS = 300.0
AGAIN_SECONDS = 5.0
#: How long the store may take, in seconds.
STORE_SECONDS = 30.0

#: Errors that are expected to pass.
_PASSING = (IntercomError, Refused, Down, NotRunning, Busy, trio.TooSlowError)


#: How many drawings may wait. The next comparison finds a dropped card; a dropped line is one of thousands.
MOST_DUE = 10_000


@frozen
class Look:
    """A message to itself: compare what Slack shows with the store."""


class SlackChannel(Actor):
    """Draws cards and notices for Slack; registered as `slack/channel`.

    The router named `operators` tells it `Card` and `Notice`. The action handlers tell it `Redraw`, and the connection
    `SocketUp` and `SocketDown`. Agents ask it `ReadRecent`.
    """

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
        # Cards by id and lines by number, each with a flag that forces a redraw.
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
        """Queue a drawing. A queued card keeps its place and gets the newer state; None means: look it up."""
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
        """Run `work`. If another actor is down, schedule a comparison instead."""
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
        # In a worker thread: the search for secrets in a long diff takes time.
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
        """Redraw cards whose messages were missed: the open ones, and the ones that were open when last drawn."""
        for card in open_cards:
            # The current state is looked up, because a decision may have arrived before this answer.
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
        """Close the message of an unknown card, because its buttons must not stay."""
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
        """Return the place for messages of this session; None if no channel is set."""
        session, there = await self._reader.read(partial(_session_and_top, id=session_id))
        if session is None:
            channel = self._config.slack.channel_id
            return None if channel is None else Place(channel)
        # A session stays in the channel of its thread, even after a change of the configuration.
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
        # A task, not a timer: the message of a timer may be dropped, and the timer would end.
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
    """Return the session and its thread's root row; None for each that does not exist."""
    session = sessions.get(db, id) if id else None
    return session, None if session is None else outbox.by_key(db, thread_key(session.id))
