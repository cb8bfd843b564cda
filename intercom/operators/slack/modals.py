"""Forms ask for the text of a decision; if no form can be opened, the thread asks for it."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import trio

from intercom.model.card import Card, CardState
from intercom.model.errors import NotFound
from intercom.model.outbox import Content, Urgency
from intercom.model.verdict import Decision
from intercom.operators.slack import verdicts
from intercom.operators.slack.envelopes import Submitted, Tap, form_metadata
from intercom.operators.slack.errors import SlackRefused
from intercom.operators.slack.means import Means
from intercom.operators.slack.words import LONGEST
from intercom.store import outbox, slack_questions
from intercom.store.messages import Database
from intercom.store.slack_questions import Question

log = logging.getLogger(__name__)

#: How long the look-up of the card may delay its form, in seconds: the trigger expires after 3.
_LOOK_SECONDS = 0.5

#: How long opening a form may take, in seconds; after that the thread asks.
_OPEN_SECONDS = 2.4

#: Slack's error if this trigger has opened a form already.
_OPENED = "exchanged_trigger_id"

_TOO_LONG = f"at most {LONGEST} characters, please; shorten it, or let the agent read it from a file"

#: The text that the question in the thread asks for, by form.
_WANTED = {
    "reject": "why it is rejected (or `-` for no reason)",
    "refine": "what the agent should do instead",
    "nudge": "what the agent should be told",
    "resume": "what the agent should do next",
}


async def ask(means: Means, tap: Tap) -> None:
    """Ask the person for the text of their decision. Returns once a form is open, or the question in the thread is
    recorded. Raises NotRecorded if neither worked."""
    assert tap.button.form is not None, "only these buttons have forms"
    card = await _looked_up(means, tap)
    if isinstance(card, str):
        means.redraw(tap.card_id)
        means.whisper(tap.channel, tap.person.id, card, tap.within)
        return
    metadata = form_metadata(tap.card_id, tap.channel, tap.thread)
    try:
        view = means.forms.form(tap.button.form, card or _unknown(means, tap), metadata)
        with trio.fail_after(_OPEN_SECONDS):
            await means.web.call("views.open", timeout=_OPEN_SECONDS, trigger_id=tap.trigger, view=view)
    except Exception as fault:
        if isinstance(fault, SlackRefused) and fault.error == _OPENED:
            return
        log.info("a form could not be opened, so the thread is asked: %s", fault)
        await means.transact(partial(_ask_thread, means=means, tap=tap, card=card))
        means.wake()


async def submitted(means: Means, form: Submitted) -> dict[str, Any] | None:
    """Carry out a submitted form; return the payload of the acknowledgement. None means that the decision is recorded.
    Otherwise it is an error about the text, or a view that says why nothing was changed. Raises NotRecorded."""
    decision, text = form.button.decision, form.text.strip() or None
    if text is None and decision is Decision.REFINE:
        return _complaint(form, "say what the agent should do instead")
    if text is not None and len(text) > LONGEST:
        return _complaint(form, _TOO_LONG)
    person = await means.people.named(form.person)
    turned = await verdicts.give(means, form.act_id, person, form.card_id, decision, text, kind=form.button.kind)
    if turned is None:
        return None
    title = "Too late" if turned.late else "Nothing was changed"
    return {"response_action": "update", "view": means.forms.notice(title, turned.why)}


async def _looked_up(means: Means, tap: Tap) -> Card | str | None:
    """Return the card of the form; None if the look-up takes too long; or a sentence why there is no form."""
    try:
        with trio.fail_after(_LOOK_SECONDS):
            card = await means.desk.card(tap.card_id)
    except NotFound:
        return "this card is gone; nothing was changed"
    except Exception as fault:
        log.info("a form is opened without a look at its card: %s", type(fault).__name__)
        return None
    if card.id != tap.card_id or card.kind is not tap.button.kind:
        return "this button does not belong to this card; nothing was changed"
    if card.state is CardState.PENDING:
        return card
    if card.decided is None:
        return f"too late: this is {card.state.value}; nothing was changed"
    return f"too late: {verdicts.who_was_first(card.decided)}; nothing was changed"


def _unknown(means: Means, tap: Tap) -> Card:
    """Return a substitute card with only what the button action says."""
    return Card(tap.card_id, tap.button.kind, "not known", "", "What you have tapped", means.now())


def _ask_thread(db: Database, means: Means, tap: Tap, card: Card | None) -> None:
    key = f"question/{tap.act_id}"
    if outbox.by_key(db, key) is not None:
        # A redelivery: the question was asked already, and may be answered by now.
        return
    now = means.now()
    slack_questions.ask(
        db,
        Question(tap.channel, tap.thread, tap.card_id, tap.button.decision.value, tap.person.id, now),
    )
    text = (
        f"<@{tap.person.id}> the form could not be opened. Reply here with {_WANTED[tap.button.form or '']};"
        " `never mind` takes it back."
    )
    outbox.put(
        db,
        key,
        line(text),
        now,
        channel=tap.channel,
        urgency=Urgency.ALERT,
        session_id=None if card is None else card.session_id or None,
        thread=tap.thread,
    )


def line(text: str) -> Content:
    """Return a message with one section, from text in Slack's markup."""
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]}


def _complaint(form: Submitted, why: str) -> dict[str, Any]:
    return {"response_action": "errors", "errors": {form.block: why}}
