"""Decisions from Slack: the operator service decides, and the card's message is updated."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from attrs import frozen

from actors import Refused
from intercom.model.card import CHOICES, Card, CardKind
from intercom.model.errors import AlreadyDecided, IntercomError
from intercom.model.origin import Origin
from intercom.model.verdict import Decided, Decision, Verdict
from intercom.operators.slack.act import Person
from intercom.operators.slack.means import Means, NotRecorded
from intercom.operators.slack.words import PAST, escape

log = logging.getLogger(__name__)

CHANNEL = "slack"

#: Temporary refusals: the action must be tried again.
PASSING = frozenset({"db", "busy", "unavailable"})


@frozen
class Turned:
    """Nothing was changed. `why` is a sentence for the person, in Slack's markup; `late` means a closed card."""

    why: str
    late: bool = False


async def give(
    means: Means,
    act_id: str,
    person: Person,
    card_id: str,
    decision: Decision,
    text: str | None = None,
    *,
    kind: CardKind | None = None,
) -> Turned | None:
    """Decide the card `card_id` (its full id) under the id of the act; with `kind`, only a card of that kind.

    None means that the decision is recorded, however often the action is delivered. The card's message shows at once
    that the decision is being processed, but this never delays the decision. If nothing comes of it, the buttons
    return. Raises NotRecorded if the decision could not be recorded now, or that is unknown.
    """
    verdict = Verdict(act_id, decision, str(person), CHANNEL, means.now(), text, Origin(CHANNEL))
    try:
        turned = await _shown(means, card_id, person, partial(_decide, means, card_id, kind, verdict, person))
    except NotRecorded:
        means.redraw(card_id)
        raise
    except AlreadyDecided as late:
        turned = await _late(means, card_id, person, verdict, late)
    except IntercomError as refusal:
        if refusal.error_code in PASSING:
            means.redraw(card_id)
            raise NotRecorded(f"the verdict was not recorded: {refusal.error_code}") from refusal
        turned = Turned(escape(refusal.message))
    except Refused as refusal:
        turned = Turned(escape(str(refusal)))
    except Exception as fault:
        means.redraw(card_id)
        raise NotRecorded(f"the verdict was not recorded: {type(fault).__name__}") from fault
    if turned is not None:
        means.redraw(card_id)
    return turned


async def _shown(
    means: Means, card_id: str, person: Person, work: Callable[[], Awaitable[Turned | None]]
) -> Turned | None:
    """Run the work, and show in the card's message that it is being processed. Errors pass through unchanged."""
    turned: Turned | None = None
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say_so, means, card_id, person)
        try:
            turned = await work()
        except Exception as fault:
            failed = fault
        except trio.Cancelled:
            # The caller has given up; the result is unknown until a redelivery.
            means.redraw(card_id)
            raise
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return turned


async def _say_so(means: Means, card_id: str, person: Person) -> None:
    # The decision first: a commit for the line would delay it, and an agent waits for it.
    await trio.lowlevel.checkpoint()
    means.processing(card_id, f"⏳ Processing… ({escape(person.name or person.id)})")


async def _decide(means: Means, card_id: str, kind: CardKind | None, verdict: Verdict, person: Person) -> Turned | None:
    id, found = await means.desk.identify(card_id)
    if id != card_id:
        return Turned("this is not the whole id of a card; nothing was changed")
    if kind not in (None, found) or verdict.decision not in CHOICES[found]:
        return Turned(f"{verdict.decision.value} is no answer to a {found.value} card; nothing was changed")
    if found is CardKind.RESTORE and (owner := await _other_owner(means, id, person)) is not None:
        return Turned(f"the session belongs to <@{escape(owner)}>, who alone may do that; nothing was changed")
    await means.desk.decide(id, verdict)
    return None


async def _other_owner(means: Means, card_id: str, person: Person) -> str | None:
    """Return the owner of the card's session if it is another person."""
    card = await means.desk.card(card_id)
    for session in await means.desk.sessions(everything=True):
        if session.id == card.session_id and session.owner_user_id not in ("", person.id):
            return session.owner_user_id
    return None


async def _late(means: Means, card_id: str, person: Person, verdict: Verdict, late: AlreadyDecided) -> Turned | None:
    card = await _card(means, card_id)
    first = None if card is None else card.decided
    if first is None:
        return Turned(escape(late.message), late=True)
    if first.verdict_id == verdict.id or _same(first, person, verdict):
        # A redelivery, or a second click: it is done already.
        means.redraw(card_id)
        return None
    return Turned(f"too late: {who_was_first(first)}; nothing was changed", late=True)


def who_was_first(first: Decided) -> str:
    """Return a phrase in Slack's markup that says who decided what, where and when."""
    word = PAST.get(Decision(first.decision), first.decision) if first.decision in set(Decision) else first.decision
    if first.channel == "timeout":
        return f"nobody answered in time, and at {first.at:%Y-%m-%d %H:%M} UTC it was {escape(word)} by itself"
    return f"{escape(first.by)} {escape(word)} it at {first.at:%Y-%m-%d %H:%M} UTC ({escape(first.channel)})"


def _same(first: Decided, person: Person, verdict: Verdict) -> bool:
    by_them = first.channel == CHANNEL and (first.by == person.id or first.by.endswith(f"({person.id})"))
    return by_them and first.decision == verdict.decision.value and verdict.text in (None, first.text)


async def _card(means: Means, card_id: str) -> Card | None:
    try:
        card = await means.desk.card(card_id)
    except Exception as fault:
        log.info("a card that was decided could not be looked at: %s", type(fault).__name__)
        return None
    return card if card.id == card_id else None
