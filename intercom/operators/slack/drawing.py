"""Drawing of cards, notices and sessions as the content of outbox rows."""

from __future__ import annotations

from attrs import frozen

from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.outbox import Content
from intercom.model.session import Session
from intercom.operators.slack.draw import cards, lines, sessions
from intercom.operators.slack.draw.masks import Mask

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
        message = cards.card(card, self.mask, first=waits).content()
        diff = cards.diff_file(card, self.mask)
        escalated = waits and card.kind is CardKind.STALL and card.escalated
        asks = card.kind not in (CardKind.STEER, CardKind.TASK)
        return CardDrawn(
            message | (_IN_CHANNEL if card.session_id and asks else {}),
            None if diff is None else diff.content(),
            cards.escalation(card, self.mask).content() | _IN_CHANNEL if escalated else None,
        )

    def notice(self, notice: Notice) -> Content:
        """Draw one notice as a line."""
        return lines.notices([notice], self.mask).content()

    def root(self, session: Session) -> Content:
        """Draw the root message of a session's thread."""
        return sessions.thread_root(session, self.mask).content()
