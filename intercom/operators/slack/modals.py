"""Forms: words that go with a decision are asked for in a form, or in the thread where no form can be opened."""

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

#: How long a look at the card may keep its form waiting, in seconds: the right to open one lapses after 3.
_LOOK_SECONDS = 0.5

#: How long opening a form may take, in seconds. A thread is asked instead, then.
_OPEN_SECONDS = 2.4

#: Slack's word for a form that was opened with this tap before.
_OPENED = "exchanged_trigger_id"

_TOO_LONG = f"at most {LONGEST} characters, please; shorten it, or let the agent read it from a file"

#: What a reply is asked for, by form.
_WANTED = {
    "reject": "why it is rejected (or `-` for no reason)",
    "refine": "what the agent should do instead",
    "nudge": "what the agent should be told",
    "resume": "what the agent should do next",
}


async def ask(means: Means, tap: Tap) -> None:
    """Ask who tapped for the words that go with their decision. Returns when a form is open, or the question in the
    thread is on record; raises NotRecorded when neither could be done."""
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
    """Carry out a form that was sent. Returns what the acknowledgement holds: nothing where the verdict is on record,
    else a complaint about the words, or a view that says why nothing was changed. Raises NotRecorded."""
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
    """The card the form is about; None where it can not be had quickly; or why there is no form for it."""
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
    """A card of which only what the tap says is known."""
    return Card(tap.card_id, tap.button.kind, "not known", "", "What you have tapped", means.now())


def _ask_thread(db: Database, means: Means, tap: Tap, card: Card | None) -> None:
    key = f"question/{tap.act_id}"
    if outbox.by_key(db, key) is not None:
        # Delivered again: it was asked, and may be answered.
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
    """A message of one section, from text in Slack's markup."""
    return {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]}


def _complaint(form: Submitted, why: str) -> dict[str, Any]:
    return {"response_action": "errors", "errors": {form.block: why}}
