"""How things become rows: a card, a line, a session, as the content of what Slack is to show."""

from __future__ import annotations

from attrs import frozen

from intercom.model.card import Card, CardKind, CardState, Notice
from intercom.model.outbox import Content
from intercom.model.session import Session
from intercom.operators.slack.draw import cards, lines, sessions
from intercom.operators.slack.draw.masks import Mask

#: What a person is to answer is shown in the channel too, and not in its thread alone, where nobody may be looking.
_IN_CHANNEL = {"reply_broadcast": True}


@frozen
class CardDrawn:
    """A card's message; its diff as a file, where that does not fit in; and the line that calls people to it, if it was
    escalated."""

    message: Content
    diff: Content | None = None
    call: Content | None = None


@frozen
class Drawing:
    """Draws, with what `mask` finds secret masked. Pure; a long diff takes a while."""

    mask: Mask

    def card(self, card: Card) -> CardDrawn:
        """The card as it stands."""
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
        """One line."""
        return lines.notices([notice], self.mask).content()

    def root(self, session: Session) -> Content:
        """The message that a session's thread hangs from."""
        return sessions.thread_root(session, self.mask).content()
