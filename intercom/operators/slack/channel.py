"""The Slack channel's actor: it writes to the outbox what Slack is to show, and sends what only one person sees.

It holds only what is not drawn yet, with the latest state of each card. It may miss messages while it is down or too
busy. So it compares every card that may still change with the store. It does this every few minutes, and whenever the
router or the socket comes back.
"""

from __future__ import annotations

import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import trio
from attrs import frozen

from actors import Actor, DownEvent, Name, Refused, Reply
from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.config import Config
from intercom.model.errors import IntercomError, NotFound, SlackError
from intercom.model.session import Session, SessionStatus
from intercom.operators.messages import Channel
from intercom.operators.router import Subscribed, subscribe
from intercom.operators.slack.buttons import unescape
from intercom.operators.slack.draw import cards as draw_cards
from intercom.operators.slack.draw.blocks import Mask
from intercom.operators.slack.draw.cards import CALL, processing
from intercom.operators.slack.messages import Redraw, SendEphemeral, SocketDown, SocketUp, Wake
from intercom.operators.slack.web_api import Api, Json, RateLimited, SlackApiError
from intercom.sessions.context import channel_of, thread_key
from intercom.sessions.lookups import UNANSWERED
from intercom.sessions.messages import History, Message, ReadRecent
from intercom.sessions.operator_service import OperatorService
from intercom.store import outbox
from intercom.store import sessions as store_sessions
from intercom.store.client import STORE_FAULTS, Store
from intercom.store.messages import Database
from intercom.store.outbox import Content, Row, RowKind, RowState, Urgency
from intercom.store.reader import Reader

log = logging.getLogger(__name__)

# --- cards and lines as rows of the outbox ---------------------------------------------------------------------------

#: Requests are shown in the channel too, because a thread alone may go unnoticed.
_IN_CHANNEL = {"reply_broadcast": True}


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
        asks = card.kind not in (CardKind.STEER, CardKind.TASK)
        return CardDrawn(
            message | (_IN_CHANNEL if card.session_id and asks else {}),
            None if diff is None else diff.content(),
            draw_cards.escalation(card, self.mask).content() | _IN_CHANNEL if escalated else None,
        )

    def notice(self, notice: Notice) -> Content:
        """Draw one notice as a line."""
        return draw_cards.notice(notice, self.mask).content()

    def root(self, session: Session) -> Content:
        """Draw the root message of a session's thread."""
        return draw_cards.thread_root(session, self.mask).content()


#: The final states of a card.
_FINAL = frozenset({CardState.APPLIED, CardState.REJECTED, CardState.EXPIRED, CardState.INTERRUPTED, CardState.CLOSED})


@frozen
class Place:
    """The destination of a card or line. `session` is the session whose thread it belongs to, `top` the root message of
    that thread."""

    channel: str
    session: Session | None = None
    top: Content | None = None

    @property
    def session_id(self) -> str | None:
        return None if self.session is None else self.session.id

    @property
    def thread(self) -> str | None:
        return None if self.session is None else thread_key(self.session.id)


def put_card(db: Database, card: Card, place: Place, drawn: CardDrawn, at: datetime, *, fresh: bool) -> None:
    """Put a card into the outbox, with its file and its escalation line if it has them. With `fresh` the line in place
    of its buttons is removed. A closed card that was never shown is not put there."""
    key = card_key(card.id)
    there = outbox.by_key(db, key)
    if there is None and card.state not in (CardState.PENDING, CardState.QUEUED):
        # The card was opened and closed while Slack was not notified.
        return
    put_top(db, place, at)
    urgency = Urgency.ALERT if card.kind is CardKind.STALL else Urgency.CARD
    _put(db, key, drawn.message, place, urgency, at, open=may_change(card))
    if fresh:
        outbox.restore(db, key)
    if drawn.diff is not None and there is None:
        _put(db, f"diff/{card.id}", drawn.diff, place, urgency, at, kind=RowKind.FILE)
    if drawn.call is not None and there is not None and CALL not in there.content["text"]:
        # An update makes no sound, so the escalation is announced by a new message, once.
        _put(db, f"call/{card.id}", drawn.call, place, urgency, at)


def put_closed(db: Database, key: str, at: datetime) -> None:
    """Remove the buttons from the message of an unknown card."""
    row = outbox.by_key(db, key)
    if row is not None and row.open:
        content = processing(row.content, "this is no longer open")
        _put(db, key, content, Place(row.channel), row.urgency, at)


def put_line(db: Database, notice: Notice, place: Place, content: Mapping[str, Any], at: datetime) -> None:
    """Put one line into the outbox."""
    put_top(db, place, at)
    _put(db, f"line/{uuid.uuid4()}", content, place, urgency_of(notice.level), at, thread=notice.thread)


def put_top(db: Database, place: Place, at: datetime) -> None:
    """Put the root message of the session's thread into the outbox."""
    session, top = place.session, place.top
    if session is None or top is None:
        return
    outbox.put(
        db,
        thread_key(session.id),
        dict(top),
        at,
        channel=place.channel,
        urgency=Urgency.LOG,
        session_id=session.id,
        open=session.status is not SessionStatus.TERMINATED,
    )


def _put(
    db: Database,
    key: str,
    content: Mapping[str, Any],
    place: Place,
    urgency: Urgency,
    at: datetime,
    *,
    kind: RowKind = RowKind.MESSAGE,
    open: bool = False,
    thread: str | None = None,
) -> None:
    outbox.put(
        db,
        key,
        dict(content),
        at,
        channel=place.channel,
        urgency=urgency,
        session_id=place.session_id,
        thread=thread or place.thread,
        kind=kind,
        open=open,
    )


def card_key(card_id: str) -> str:
    """Return the key of the row that shows this card."""
    return f"card/{card_id}"


def may_change(card: Card) -> bool:
    """Return whether the card may still change, so it must be compared again."""
    if card.state is CardState.DELIVERED:
        # An approval will still be applied or expire; other answers end with their delivery.
        return card.kind is CardKind.APPROVAL
    return card.state not in _FINAL


def urgency_of(level: str) -> Urgency:
    """Return the urgency of a line of this level."""
    return Urgency.LINE if level in ("warning", "error") else Urgency.LOG


# --- the actor -------------------------------------------------------------------------------------------------------

#: Seconds until the notice must be posted, and between two checks.
SHUTDOWN_SECONDS = 1.5
_LOOK_SECONDS = 0.05


async def announce_shutdown(
    store: Store, sender: Name, channel: str, pending: int, now: Callable[[], datetime]
) -> None:
    """Post in `channel` that the server stops while `pending` requests wait. `sender` is the outbox's actor. Returns
    once the notice is posted or has failed; raises nothing."""
    key = f"shutdown/{uuid.uuid4()}"
    content = draw_cards.shutdown(pending).content()
    try:
        with trio.move_on_after(SHUTDOWN_SECONDS):
            put = partial(outbox.put, key=key, content=content, at=now(), channel=channel, urgency=Urgency.CARD)
            await store.transact(put, retry=False)
            sender.tell(Wake())
            while True:
                if not await store.transact(partial(_is_on_its_way, key=key), retry=False):
                    return
                await trio.sleep(_LOOK_SECONDS)
        with trio.move_on_after(SHUTDOWN_SECONDS):
            await store.transact(partial(outbox.abandon, key=key), retry=False)
    except STORE_FAULTS as fault:
        log.info("that the server stops is not said in slack: %s", fault)


def _is_on_its_way(db: Database, key: str) -> bool:
    row = outbox.by_key(db, key)
    return row is not None and row.state in (RowState.QUEUED, RowState.POSTING)


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
        service: OperatorService,
        reader: Reader,
        store: Store,
        outbox: Name,
        web: Api,
        drawing: Drawing,
        now: Callable[[], datetime],
        operators: str = "operators",
    ) -> None:
        super().__init__()
        self._config = config
        self._desk = service
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
            await announce_shutdown(self._store, self._outbox, channel, pending, self._now)

    async def on_receive(self, message: Any) -> None:
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
                    case Card():
                        await self._try(partial(self._card, fresh=fresh), what)
                    case Notice():
                        await self._try(self._notice, what)
                    case None:
                        await self._try(partial(self._redraw, fresh=fresh), key)

    async def _try(self, work: Callable[[Any], Any], what: Any) -> None:
        """Run `work`. If another actor is down, schedule a comparison instead."""
        try:
            await work(what)
        except _PASSING as failed:
            log.warning("slack is not up to date, and is looked at again shortly: %s", failed)
            self.set_timer("look", AGAIN_SECONDS, Look())

    # --- cards -------------------------------------------------------------------------------------------------------

    async def _card(self, card: Card, *, fresh: bool) -> None:
        self._desk.seen(card)
        place = await self._place(card.session_id)
        if place is None:
            return
        # In a worker thread: the search for secrets in a long diff takes time.
        drawn = await trio.to_thread.run_sync(self._drawing.card, card)
        await self._store.transact(partial(put_card, card=card, place=place, drawn=drawn, at=self._now(), fresh=fresh))
        self._outbox.tell(Wake())

    async def _redraw(self, card_id: str, *, fresh: bool) -> None:
        try:
            card = await self._desk.card(card_id)
        except NotFound:
            await self._close(card_key(card_id))
        else:
            await self._card(card, fresh=fresh)

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
                await self._store.transact(partial(put_top, place=place, at=self._now()))
                self._outbox.tell(Wake())

    async def _close(self, key: str) -> None:
        """Close the message of an unknown card, because its buttons must not stay."""
        await self._store.transact(partial(put_closed, key=key, at=self._now()))
        self._outbox.tell(Wake())

    # --- lines -------------------------------------------------------------------------------------------------------

    async def _notice(self, notice: Notice) -> None:
        if notice.key is None:
            place = await self._place(notice.session_id)
            if place is None:
                return
            content = await trio.to_thread.run_sync(self._drawing.notice, notice)
            await self._store.transact(partial(put_line, notice=notice, place=place, content=content, at=self._now()))
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
            reply.set(await recent(self._web, asked.channel_id, asked.limit))
        except SlackError as refused:
            reply.fail(refused)


def _session_and_top(db: Database, id: str | None) -> tuple[Session | None, Row | None]:
    """Return the session and its thread's root row; None for each that does not exist."""
    session = store_sessions.get(db, id) if id else None
    return session, None if session is None else outbox.by_key(db, thread_key(session.id))


async def recent(web: Api, channel: str, limit: int) -> History:
    """Return the latest `limit` messages of a channel, newest first. Raises SlackError if Slack does not answer."""
    answer = await web.call("conversations.history", channel=channel, limit=limit)
    messages = [_message(message) for message in answer.get("messages") or () if isinstance(message, dict)]
    return History(tuple(messages[:limit]), bool(answer.get("has_more")))


def _message(message: Json) -> Message:
    """Convert a message to its text as typed; a file becomes its title."""
    text = unescape(str(message.get("text") or ""))
    files = [str(file.get("title") or file.get("name") or "file") for file in message.get("files") or ()]
    told = "\n".join((*([text] if text else ()), *(f"[file: {title}]" for title in files)))
    author = str(message.get("user") or message.get("bot_id") or "")
    return Message(str(message.get("ts") or ""), author, told, message.get("thread_ts"))


#: A message older than this is dropped, because the person no longer sees what it answers.
STALE = timedelta(seconds=60)

_CALL_SECONDS = 10.0


@frozen
class _Again:
    """A timer for a message that Slack limited."""

    message: SendEphemeral
    since: datetime


class EphemeralSender(Actor):
    """Sends ephemeral messages, one at a time; registered as `slack/ephemeral`. Told `SendEphemeral`. A message that
    cannot be sent within a minute is dropped."""

    mailbox_size = 200
    overflow = "drop_oldest"

    def __init__(self, web: Api, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._web = web
        self._now = now

    async def on_receive(self, message: Any) -> None:
        match message:
            case SendEphemeral():
                await self._send(message, self._now())
            case _Again():
                await self._send(message.message, message.since)

    async def _send(self, message: SendEphemeral, since: datetime) -> None:
        if self._now() - since > STALE:
            return
        try:
            await self._web.call(
                "chat.postEphemeral",
                timeout=_CALL_SECONDS,
                channel=message.channel,
                user=message.person,
                text=message.text,
                thread_ts=message.thread,
            )
        except RateLimited as limited:
            self.set_timer(message, limited.retry_after, _Again(message, since))
        except SlackApiError as fault:
            log.info("a person could not be told why nothing came of their act: %s", fault)
