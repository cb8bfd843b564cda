"""Modals: text that goes with a decision is asked for in a modal, or in the thread if none can be opened."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import trio

from intercom.model.card import Card, CardState
from intercom.model.errors import NotFound
from intercom.model.outbox import Content, Urgency
from intercom.operators.slack import decisions
from intercom.operators.slack.buttons import Form
from intercom.operators.slack.decisions import ActionDeps
from intercom.operators.slack.draw import blocks
from intercom.operators.slack.draw.blocks import Block, Mask, Masking, code, context, cut, mrkdwn, plain, section, short
from intercom.operators.slack.envelopes import FORM, ButtonAction, FormSubmission, form_metadata
from intercom.operators.slack.reply_words import LONGEST
from intercom.operators.slack.web_api import Json, SlackRefused
from intercom.store import outbox
from intercom.store.messages import Database
from intercom.store.outbox import Question

log = logging.getLogger(__name__)

#: How long the look-up of the card may delay its form, in seconds: the trigger expires after 3.
_LOOK_SECONDS = 0.5

#: How long opening a form may take, in seconds; after that the thread asks.
_OPEN_SECONDS = 2.4

#: Slack's error if this trigger has opened a form already.
_OPENED = "exchanged_trigger_id"

_TOO_LONG = f"at most {LONGEST} characters, please; shorten it, or let the agent read it from a file"


async def ask(deps: ActionDeps, pressed: ButtonAction, form: Form) -> None:
    """Ask the person for the text of their decision. Returns once a form is open, or the question in the thread is
    recorded. Raises NotRecorded if neither worked."""
    card = await _looked_up(deps, pressed)
    if isinstance(card, str):
        deps.redraw(pressed.card_id)
        deps.tell_person(pressed.channel, pressed.person.id, card, pressed.within)
        return
    metadata = form_metadata(pressed.card_id, pressed.channel, pressed.thread)
    try:
        view = draw_form(form, card or _unknown(deps, pressed), metadata, deps.mask)
        with trio.fail_after(_OPEN_SECONDS):
            await deps.web.call("views.open", timeout=_OPEN_SECONDS, trigger_id=pressed.trigger, view=view)
    except Exception as fault:
        if isinstance(fault, SlackRefused) and fault.error == _OPENED:
            return
        log.info("a form could not be opened, so the thread is asked: %s", fault)
        await deps.store.transact(partial(_ask_thread, deps=deps, pressed=pressed, form=form, card=card))
        deps.wake()


async def submitted(deps: ActionDeps, form: FormSubmission) -> Json | None:
    """Carry out a submitted form; return the payload of the acknowledgement. None means that the decision is recorded.
    Otherwise it is an error about the text, or a view that says why nothing was changed. Raises NotRecorded."""
    button, text = form.button, form.text.strip() or None
    complaint = _TOO_LONG if text is not None and len(text) > LONGEST else None
    if text is None and button.form is not None:
        complaint = button.form.required
    if complaint is not None:
        return {"response_action": "errors", "errors": {form.block: complaint}}
    turned = await decisions.give(deps, form.act_id, form.person, form.card_id, button.decision, text, kind=button.kind)
    if turned is None:
        return None
    title = "Too late" if turned.late else "Nothing was changed"
    return {"response_action": "update", "view": draw_notice(title, turned.why)}


async def _looked_up(deps: ActionDeps, pressed: ButtonAction) -> Card | str | None:
    """Return the card of the form; None if the look-up takes too long; or a sentence why there is no form."""
    try:
        with trio.fail_after(_LOOK_SECONDS):
            card = await deps.service.card(pressed.card_id)
    except NotFound:
        return "this card is gone; nothing was changed"
    except Exception as fault:
        log.info("a form is opened without a look at its card: %s", type(fault).__name__)
        return None
    if card.id != pressed.card_id or card.kind is not pressed.button.kind:
        return "this button does not belong to this card; nothing was changed"
    if card.state is CardState.PENDING:
        return card
    if card.decided is None:
        return f"too late: this is {card.state.value}; nothing was changed"
    return f"too late: {decisions.who_was_first(card.decided)}; nothing was changed"


def _unknown(deps: ActionDeps, pressed: ButtonAction) -> Card:
    """Return a substitute card with only what the button action says."""
    return Card(pressed.card_id, pressed.button.kind, "not known", "", "What you have tapped", deps.now())


def _ask_thread(db: Database, deps: ActionDeps, pressed: ButtonAction, form: Form, card: Card | None) -> None:
    key = f"question/{pressed.act_id}"
    if outbox.by_key(db, key) is not None:
        # A redelivery: the question was asked already, and may be answered by now.
        return
    now = deps.now()
    outbox.ask(
        db,
        Question(
            pressed.channel, pressed.thread, pressed.card_id, pressed.button.decision.value, pressed.person.id, now
        ),
    )
    why = f"<@{pressed.person.id}> the form could not be opened."
    text = f"{why} Reply here with {form.question}; `never mind` takes it back."
    outbox.put(
        db,
        key,
        line(text),
        now,
        channel=pressed.channel,
        urgency=Urgency.ALERT,
        session_id=None if card is None else card.session_id or None,
        thread=pressed.thread,
    )


def line(text: str) -> Content:
    """Return a message with one section, from text in Slack's markup."""
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]}


#: The location of a submitted form's text: `view["state"]["values"][BLOCK][FIELD]["value"]`.
BLOCK: Final = "words"
FIELD: Final = "text"


def draw_form(form: Form, card: Card, metadata: str, masker: Mask) -> Block:
    """Return the view of a form about this card. `metadata` (at most 3,000 characters) comes back with the
    submission."""
    masking = Masking(masker)
    facts = f"{card.kind.value} {code(short(card.id), 80)} · session {code(short(card.session_id), 80)}"
    field: Block = {
        "type": "plain_text_input",
        "action_id": FIELD,
        "multiline": True,
        "max_length": blocks.INPUT,
        "placeholder": _label(form.placeholder, blocks.PLACEHOLDER),
        "focus_on_load": True,
    }
    before = masking(card.body or "", blocks.INPUT) if form.prefilled else ""
    if before.strip():
        # Slack takes the value literally: escaped, its entities would be visible.
        field["initial_value"] = cut(before, blocks.INPUT, escape=False)
    asked = {
        "type": "input",
        "block_id": BLOCK,
        "label": _label(form.label, blocks.LABEL),
        "optional": form.optional,
        "element": field,
    }
    return {
        "type": "modal",
        "callback_id": FORM + form.name,
        "private_metadata": metadata,
        "title": _label(form.title, blocks.MODAL_TITLE),
        "submit": _label(form.submit, blocks.MODAL_BUTTON),
        "close": _label("Cancel", blocks.MODAL_BUTTON),
        "blocks": [section(plain(masking(card.title, 300), 300)), context(mrkdwn(facts)), asked],
    }


def draw_notice(title: str, text: str) -> Block:
    """Return a view with a message only; `text` is in Slack's markup."""
    return {
        "type": "modal",
        "title": plain(title, blocks.MODAL_TITLE),
        "close": plain("Close", blocks.MODAL_BUTTON),
        "blocks": [section(mrkdwn(text[: blocks.SECTION]))],
    }


def _label(text: str, limit: int) -> Block:
    return {"type": "plain_text", "text": cut(text, limit)}
