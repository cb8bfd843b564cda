"""The modal forms of a card: each has one text field and carries the card's reference."""

from __future__ import annotations

from typing import Final

from intercom.model.card import Card
from intercom.operators.slack.draw import limits
from intercom.operators.slack.draw.blocks import Block, context, mrkdwn, plain, section
from intercom.operators.slack.draw.masks import Mask, Masking
from intercom.operators.slack.draw.text import code, cut, short

#: The location of a submitted form's text: `view["state"]["values"][BLOCK][FIELD]["value"]`.
BLOCK: Final = "words"
FIELD: Final = "text"


def reject(card: Card, metadata: str, masker: Mask) -> Block:
    """Return the form for a rejection, with an optional reason. `metadata` (at most 3,000 characters) comes back with
    the submission."""
    ask = _input("Reason", "What should the agent know or do differently?", optional=True)
    return _modal("reject", "Reject", "Reject", card, metadata, ask, masker)


def refine(card: Card, metadata: str, masker: Mask, prompt: str | None = None) -> Block:
    """Return the form for refined instructions. The field contains `prompt`, or the card's text."""
    before = Masking(masker)(prompt or card.body or "", limits.INPUT)
    ask = _input("Instructions", "What should the agent do from here on?", before=before)
    return _modal("refine", "Refine", "Send", card, metadata, ask, masker)


def nudge(card: Card, metadata: str, masker: Mask) -> Block:
    """Return the form for a nudge in the person's own text."""
    ask = _input("Message", "What should the agent be told?")
    return _modal("nudge", "Nudge", "Send", card, metadata, ask, masker)


def resume(card: Card, metadata: str, masker: Mask) -> Block:
    """Return the form for a resume with instructions."""
    ask = _input("Instructions", "What should the agent do next?")
    return _modal("resume", "Resume", "Send", card, metadata, ask, masker)


def _modal(what: str, title: str, submit: str, card: Card, metadata: str, ask: Block, masker: Mask) -> Block:
    masking = Masking(masker)
    facts = f"{card.kind.value} {code(short(card.id), 80)} · session {code(short(card.session_id), 80)}"
    return {
        "type": "modal",
        "callback_id": f"intercom_{what}",
        "private_metadata": metadata,
        "title": _label(title, limits.MODAL_TITLE),
        "submit": _label(submit, limits.MODAL_BUTTON),
        "close": _label("Cancel", limits.MODAL_BUTTON),
        "blocks": [section(plain(masking(card.title, 300), 300)), context(mrkdwn(facts)), ask],
    }


def _input(label: str, placeholder: str, *, before: str = "", optional: bool = False) -> Block:
    element: Block = {
        "type": "plain_text_input",
        "action_id": FIELD,
        "multiline": True,
        "max_length": limits.INPUT,
        "placeholder": _label(placeholder, limits.PLACEHOLDER),
        "focus_on_load": True,
    }
    if before.strip():
        # Slack takes the value literally: escaped, its entities would be visible.
        element["initial_value"] = cut(before, limits.INPUT, escape=False)
    return {
        "type": "input",
        "block_id": BLOCK,
        "label": _label(label, limits.LABEL),
        "optional": optional,
        "element": element,
    }


def _label(text: str, limit: int) -> Block:
    return {"type": "plain_text", "text": cut(text, limit)}
