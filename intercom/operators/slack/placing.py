"""Cards and lines as rows of the outbox, with key, channel, thread and urgency. Runs in the store."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import frozen

from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.outbox import Content, RowKind, Urgency
from intercom.model.session import Session, SessionStatus
from intercom.operators.slack.draw.cards import CALL
from intercom.operators.slack.draw.processing import processing
from intercom.operators.slack.drawing import CardDrawn
from intercom.sessions.chat import thread_key
from intercom.store import outbox
from intercom.store.messages import Database

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


def put_card(db: Database, card: Card, place: Place, drawn: CardDrawn, at: datetime, *, anew: bool) -> None:
    """Put a card into the outbox, with its file and its escalation line if it has them. With `anew` the line in place
    of its buttons is removed. A closed card that was never shown is not put there."""
    key = card_key(card.id)
    there = outbox.by_key(db, key)
    if there is None and card.state not in (CardState.PENDING, CardState.QUEUED):
        # The card was opened and closed while Slack was not notified.
        return
    put_top(db, place, at)
    urgency = Urgency.ALERT if card.kind is CardKind.STALL else Urgency.CARD
    _put(db, key, drawn.message, place, urgency, at, open=may_change(card))
    if anew:
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
