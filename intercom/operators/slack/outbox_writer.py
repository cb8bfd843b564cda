"""The outbox writer: the actor that writes to the outbox what Slack is to show.

It holds only what is not drawn yet, with the latest state of each card. It may miss messages while it is down or too
busy. So it compares every card that may still change with the store. It does this every few minutes, and whenever the
router or the socket comes back.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import trio
from attrs import frozen

from actors import Actor, DownEvent, Name, Refused, Reply
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.config import Config
from intercom.model.errors import IntercomError, NotFound, SlackError
from intercom.model.session import Session, SessionStatus
from intercom.operators.card_router import Subscribed, subscribe
from intercom.operators.router_messages import Channel
from intercom.operators.slack.buttons import unescape
from intercom.operators.slack.draw import cards as draw_cards
from intercom.operators.slack.draw.blocks import Mask
from intercom.operators.slack.draw.cards import CALL, processing
from intercom.operators.slack.slack_messages import Redraw, SocketDown, SocketUp, Wake
from intercom.operators.slack.web_api import Api, Json, SlackApiError
from intercom.sessions.chat_messages import channel_of, thread_key
from intercom.sessions.lookups import UNANSWERED
from intercom.sessions.messages import History, Message, ReadRecent
from intercom.sessions.operator_service import OperatorService
from intercom.store import outbox
from intercom.store import sessions as store_sessions
from intercom.store.outbox import Content, Row, RowKind, RowState, Urgency
from intercom.store.store_and_reader import STORE_FAULTS, Reader, Store
from intercom.store.writer_messages import Database

log = logging.getLogger(__name__)

# --- cards and lines as rows of the outbox ---------------------------------------------------------------------------

#: The kinds of cards that are in their session's thread. They need no answer; a request is in the channel.
_IN_THREAD = frozenset({CardKind.STEER, CardKind.TASK})


@frozen
class CardDrawn:
    """The contents for a card: its message, a diff too long for it as a file, and the line of an escalated alert."""

    message: Content
    diff: Content | None = None
    call: Content | None = None


@frozen
class Drawing:
    """Draws contents, with secrets masked by `mask`. Pure; a long diff takes time."""

    mask: Mask

    def card(self, card: Card) -> CardDrawn:
        """Draw the current state of a card."""
        waits = card.state is CardState.PENDING
        message = draw_cards.card(card, self.mask, first=waits).content()
        diff = draw_cards.diff_file(card, self.mask)
        escalated = waits and card.kind is CardKind.STALL and card.escalated
        return CardDrawn(
            message,
            None if diff is None else diff.content(),
            draw_cards.escalation(card, self.mask).content() if escalated else None,
        )

    def notice(self, notice: Notice) -> Content:
        """Draw one notice as a line."""
        return draw_cards.notice(notice, self.mask).content()

    def root(self, session: Session) -> Content:
        """Draw the root message of a session's thread."""
        return draw_cards.thread_root(session, self.mask).content()


#: The final states of a card.
_FINAL = frozenset({CardState.APPLIED, CardState.REJECTED, CardState.EXPIRED, CardState.INTERRUPTED, CardState.CLOSED})


def may_change(card: Card) -> bool:
    """Return whether the card may still change, so it must be compared again."""
    if card.state is CardState.DELIVERED:
        # An approval will still be applied or expire; other answers end with their delivery.
        return card.kind is CardKind.APPROVAL
    if card.state is CardState.REJECTED and card.kind is CardKind.APPROVAL:
        # Its agent will still hear of it.
        return not card.delivered
    return card.state not in _FINAL


def card_key(card_id: str) -> str:
    """Return the key of the row that shows this card."""
    return f"card/{card_id}"


@frozen
class Place:
    """The destination of a card or line. `session` is the session whose thread it belongs to, `top` the root message of
    that thread."""

    channel: str
    session: Session | None = None
    top: Content | None = None

    def put(self, db: Database, key: str, content: Content, at: datetime, urgency: Urgency, **options: Any) -> None:
        """Put a row into the outbox, in the session's thread."""
        if self.session is not None:
            options = {"session_id": self.session.id, "thread": thread_key(self.session.id)} | options
        outbox.put(db, key, content, at, channel=self.channel, urgency=urgency, **options)

    def put_top(self, db: Database, at: datetime) -> None:
        """Put the root message of the session's thread into the outbox."""
        if self.session is not None and self.top is not None:
            is_open = self.session.status is not SessionStatus.TERMINATED
            # As urgent as a card: a session's first card is below its root message.
            self.put(db, thread_key(self.session.id), self.top, at, Urgency.CARD, thread=None, open=is_open)


def put_card(db: Database, card: Card, place: Place, drawn: CardDrawn, at: datetime, *, fresh: bool) -> None:
    """Put a card into the outbox, with its file and its escalation line if it has them. With `fresh` the line in place
    of its buttons is removed. A closed card that was never shown is not put there.

    A request is a message of the channel itself, because a thread alone may go unnoticed. A reply in a session's thread
    that is sent to the channel too would be shown twice, and notify everyone twice."""
    key = card_key(card.id)
    there = outbox.by_key(db, key)
    if there is None and card.state not in (CardState.PENDING, CardState.QUEUED):
        # The card was opened and closed while Slack was not notified.
        return
    place.put_top(db, at)
    urgency = Urgency.ALERT if card.kind is CardKind.STALL else Urgency.CARD
    own = {} if card.kind in _IN_THREAD else {"thread": None}
    place.put(db, key, drawn.message, at, urgency, open=may_change(card), **own)
    if fresh:
        outbox.restore(db, key)
    if drawn.diff is not None and there is None:
        place.put(db, f"diff/{card.id}", drawn.diff, at, urgency, kind=RowKind.FILE, thread=key)
    if drawn.call is not None and there is not None and CALL not in there.content["text"]:
        # An update makes no sound, so the escalation is announced by a new message, once.
        place.put(db, f"call/{card.id}", drawn.call, at, urgency, thread=None)


def put_closed(db: Database, key: str, at: datetime) -> None:
    """Remove the buttons from the message of an unknown card."""
    row = outbox.by_key(db, key)
    if row is not None and row.open:
        Place(row.channel).put(db, key, processing(row.content, "this is no longer open"), at, row.urgency)


def put_line(db: Database, notice: Notice, place: Place, content: Content, at: datetime) -> None:
    """Put one line into the outbox."""
    place.put_top(db, at)
    urgency = Urgency.LINE if notice.level in ("warning", "error") else Urgency.LOG
    place.put(
        db, f"line/{uuid.uuid4()}", content, at, urgency, **({} if notice.thread is None else {"thread": notice.thread})
    )


# --- the actor -------------------------------------------------------------------------------------------------------

#: Seconds until the shutdown notice must be posted, and between two checks.
SHUTDOWN_SECONDS = 1.5
_CHECK_SECONDS = 0.05

#: Seconds between two comparisons, and until the next one after a failure.
LOOK_SECONDS = 300.0
AGAIN_SECONDS = 5.0

#: Errors that are expected to pass.
_PASSING = (IntercomError, Refused, *UNANSWERED)

#: How many drawings may wait. The next comparison finds a dropped card; a dropped line is one of thousands.
MOST_DUE = 10_000


@frozen
class Look:
    """A message to itself: compare what Slack shows with the store."""


class OutboxWriter(Actor):
    """Draws cards and notices for Slack; registered as `slack/outbox_writer`.

    The actor `card_router` tells it `Card` and `Notice`. The action handlers tell it `Redraw`, and the connection
    `SocketUp` and `SocketDown`. Agents ask it `ReadRecent`.
    """

    mailbox_size = 10_000
    overflow = "drop_oldest"
    refusals = (Refused, IntercomError)

    def __init__(
        self,
        *,
        config: Config,
        service: OperatorService,
        reader: Reader,
        store: Store,
        outbox: Name,
        web: Api,
        drawing: Drawing,
        now: Callable[[], datetime],
        card_router: str = "card_router",
    ) -> None:
        super().__init__()
        self._config = config
        self._service = service
        self._reader = reader
        self._store = store
        self._outbox = outbox
        self._web = web
        self._drawing = drawing
        self._now = now
        self._card_router = card_router
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
        """Post that the server stops while requests wait. Returns once that is posted or has failed."""
        channel = self._config.slack.channel_id
        if not self._is_up or channel is None:
            return
        key = f"shutdown/{uuid.uuid4()}"
        try:
            content = draw_cards.shutdown(len(await self._service.pending())).content()
            with trio.move_on_after(SHUTDOWN_SECONDS):
                put = partial(Place(channel).put, key=key, content=content, at=self._now(), urgency=Urgency.CARD)
                await self._store.transact(put, retry=False)
                self._outbox.tell(Wake())
                while True:
                    if not await self._store.transact(partial(_is_on_its_way, key=key), retry=False):
                        return
                    await trio.sleep(_CHECK_SECONDS)
            with trio.move_on_after(SHUTDOWN_SECONDS):
                await self._store.transact(partial(outbox.abandon, key=key), retry=False)
        except (*_PASSING, *STORE_FAULTS) as fault:
            log.info("slack was not told that the server stops: %s", fault)

    async def on_receive(self, message: object) -> None:
        match message:
            case Card():
                self._await_turn(message.id, message)
            case Notice():
                self._lines += 1
                self._await_turn(f"line/{self._lines}", message)
            case Redraw():
                self._await_turn(message.card_id, None, fresh=True)
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

    def _await_turn(self, key: str, what: Card | Notice | None, *, fresh: bool = False) -> None:
        """Queue a drawing. A queued card keeps its place and gets the newer state; None means: look it up."""
        self._due[key] = what, fresh or self._due.get(key, (None, False))[1]
        if len(self._due) > MOST_DUE:
            self._due.popitem(last=False)
        self._news.set()

    async def _draw(self) -> None:
        while True:
            await self._news.wait()
            self._news = trio.Event()
            while self._due:
                key, (what, fresh) = self._due.popitem(last=False)
                match what:
                    case Notice():
                        await self._try(self._notice, what)
                    case _:
                        await self._try(self._card, key, what, fresh)

    async def _try(self, work: Callable[..., Any], *what: Any) -> None:
        """Run `work`. If another actor is down, schedule a comparison instead."""
        try:
            await work(*what)
        except _PASSING as failed:
            log.warning("slack is not up to date, and is looked at again shortly: %s", failed)
            self.set_timer("look", AGAIN_SECONDS, Look())

    async def _put(self, put: Callable[..., None], **what: Any) -> None:
        await self._store.transact(partial(put, at=self._now(), **what))
        self._outbox.tell(Wake())

    # --- cards and lines ---------------------------------------------------------------------------------------------

    async def _card(self, card_id: str, known: Card | None, fresh: bool) -> None:
        try:
            card = known or await self._service.card(card_id)
        except NotFound:
            # The buttons of an unknown card must not stay.
            await self._put(put_closed, key=card_key(card_id))
            return
        self._service.seen(card)
        place = await self._place(card.session_id)
        if place is not None:
            # In a worker thread: the search for secrets in a long diff takes time.
            drawn = await trio.to_thread.run_sync(self._drawing.card, card)
            await self._put(put_card, card=card, place=place, drawn=drawn, fresh=fresh)

    async def _notice(self, notice: Notice) -> None:
        if notice.key is not None:
            # Its session has put it into the outbox.
            self._outbox.tell(Wake())
            return
        place = await self._place(notice.session_id)
        if place is not None:
            content = await trio.to_thread.run_sync(self._drawing.notice, notice)
            await self._put(put_line, notice=notice, place=place, content=content)

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

    async def _compare(self, open_cards: tuple[Card, ...]) -> None:
        """Redraw cards whose messages were missed: the open ones, and the ones that were open when last drawn."""
        for card in open_cards:
            # The current state is looked up, because a decision may have arrived before this answer.
            self._await_turn(card.id, None)
        told = {card_key(card.id) for card in open_cards}
        for row in await self._reader.read(outbox.open_rows):
            kind, _, id = row.key.partition("/")
            if kind == "card" and row.key not in told:
                self._await_turn(id, None)
            elif kind == "thread":
                place = await self._place(id)
                if place is not None and place.session is not None:
                    await self._put(place.put_top)

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
        answer = await subscribe(self.system, self._card_router, self.name or "slack/outbox_writer", Channel.SLACK)
        self.actor_ref.tell(answer)

    async def _read_recent(self, asked: ReadRecent, reply: Reply[History]) -> None:
        try:
            answer = await self._web.call("conversations.history", channel=asked.channel_id, limit=asked.limit)
        except SlackApiError as fault:
            reply.fail(SlackError(str(fault)))
            return
        messages = [_message(message) for message in answer.get("messages") or () if isinstance(message, dict)]
        reply.set(History(tuple(messages[: asked.limit]), bool(answer.get("has_more"))))


def _is_on_its_way(db: Database, key: str) -> bool:
    row = outbox.by_key(db, key)
    return row is not None and row.state in (RowState.QUEUED, RowState.POSTING)


def _session_and_top(db: Database, id: str | None) -> tuple[Session | None, Row | None]:
    """Return the session and its thread's root row; None for each that does not exist."""
    session = store_sessions.get(db, id) if id else None
    return session, None if session is None else outbox.by_key(db, thread_key(session.id))


def _message(message: Json) -> Message:
    """Convert a message to its text as typed; a file becomes its title."""
    text = unescape(str(message.get("text") or ""))
    files = [str(file.get("title") or file.get("name") or "file") for file in message.get("files") or ()]
    told = "\n".join((*([text] if text else ()), *(f"[file: {title}]" for title in files)))
    author = str(message.get("user") or message.get("bot_id") or "")
    return Message(str(message.get("ts") or ""), author, told, message.get("thread_ts"))
