"""Button actions: each decides at once, or opens a form that asks for text first."""

from __future__ import annotations

from intercom.operators.slack import modals, verdicts
from intercom.operators.slack.act import Tap
from intercom.operators.slack.means import Means


async def tapped(means: Means, tap: Tap) -> None:
    """Carry out a button action. Returns once it is recorded, or can never be. Raises NotRecorded if Slack should
    deliver it again."""
    button = tap.button
    if button.form is not None:
        await modals.ask(means, tap)
        return
    person = await means.people.named(tap.person)
    turned = await verdicts.give(means, tap.act_id, person, tap.card_id, button.decision, kind=button.kind)
    if turned is not None:
        means.whisper(tap.channel, tap.person.id, turned.why, tap.within)
