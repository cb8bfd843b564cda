"""Taps on buttons: a verdict at once, or a form that asks for words first."""

from __future__ import annotations

from intercom.operators.slack import modals, verdicts
from intercom.operators.slack.act import Tap
from intercom.operators.slack.means import Means


async def tapped(means: Means, tap: Tap) -> None:
    """Carry out a tap. Returns when it is on record, or can never be; raises NotRecorded when Slack should deliver it
    again."""
    button = tap.button
    if button.form is not None:
        await modals.ask(means, tap)
        return
    person = await means.people.named(tap.person)
    turned = await verdicts.give(means, tap.act_id, person, tap.card_id, button.decision, kind=button.kind)
    if turned is not None:
        means.whisper(tap.channel, tap.person.id, turned.why, tap.within)
