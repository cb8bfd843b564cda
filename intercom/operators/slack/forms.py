"""Forms drawn by `draw.modals`, with secrets masked."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from intercom.model.card import Card
from intercom.operators.slack.draw import limits, modals
from intercom.operators.slack.draw.blocks import mrkdwn, plain, section
from intercom.operators.slack.draw.masks import Mask

_FORMS = {"reject": modals.reject, "refine": modals.refine, "nudge": modals.nudge, "resume": modals.resume}


@frozen
class DrawnForms:
    """Draws forms; implements `means.Forms`."""

    masker: Mask = field(repr=False)

    def form(self, name: str, card: Card, metadata: str) -> dict[str, Any]:
        """Draw the form `name` ("reject", "refine", "nudge", "resume") about this card, with `metadata`."""
        return _FORMS[name](card, metadata, self.masker)

    def notice(self, title: str, text: str) -> dict[str, Any]:
        """Draw a view with a message only; `text` is in Slack's markup."""
        return {
            "type": "modal",
            "title": plain(title, limits.MODAL_TITLE),
            "close": plain("Close", limits.MODAL_BUTTON),
            "blocks": [section(mrkdwn(text[: limits.SECTION]))],
        }
