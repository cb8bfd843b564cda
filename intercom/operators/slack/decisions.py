"""Decisions by button: whether the person may act, the decision itself, and the card's message afterwards."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import trio
from attrs import define, field, frozen

from actors import Name, Refused
from intercom.model.card import CHOICES, Card, CardKind
from intercom.model.decision import PAST, Decided, Decision, Verdict
from intercom.model.errors import AlreadyDecided, IntercomError
from intercom.model.process import Origin
from intercom.operators.slack.draw.blocks import Mask, escaped
from intercom.operators.slack.envelopes import ButtonAction, Command, FormSubmission, Person, ThreadReply, person_name
from intercom.operators.slack.messages import Redraw, SendEphemeral, Wake
from intercom.operators.slack.web_api import Api
from intercom.sessions.operator_service import OperatorService
from intercom.store import outbox
from intercom.store.client import Store

log = logging.getLogger(__name__)

#: How long a message may say that an action is being handled, before its buttons return.
INTERIM = timedelta(seconds=20)


class NotRecorded(Exception):
    """An action could not be recorded now: it must not be acknowledged, so that Slack delivers it again."""


#: How long a name look-up may delay an action, in seconds; the user id is known anyway.
NAME_SECONDS = 1.0

_NAMES = 1000


@define
class People:
    """The names of the people who act, by user id."""

    web: Api
    _names: dict[str, str] = field(factory=dict, init=False)

    async def named(self, person: Person) -> Person:
        """Return the person with their name; without one if Slack does not answer in time."""
        name = person.name or self._names.get(person.id)
        if name is None:
            name = await self._ask(person.id)
        if len(self._names) >= _NAMES:
            del self._names[next(iter(self._names))]
        self._names[person.id] = name
        return Person(person.id, name)

    async def _ask(self, id: str) -> str:
        try:
            with trio.move_on_after(NAME_SECONDS):
                return person_name(await self.web.call("users.info", timeout=NAME_SECONDS, user=id))
        except Exception as fault:
            log.info("the name of %s is not known: %s", id, fault)
        return ""


@frozen
class ActionDeps:
    """The dependencies. `outbox`, `channel` and `ephemeral` name the Slack channel's actors."""

    service: OperatorService
    store: Store
    outbox: Name
    channel: Name
    ephemeral: Name
    web: Api
    people: People
    mask: Mask = field(repr=False)
    now: Callable[[], datetime]

    def wake(self) -> None:
        """Tell the outbox that there is something new to send."""
        self.outbox.tell(Wake())

    def processing(self, card_id: str, line: str) -> None:
        """Show `line` in place of a card's buttons until something newer is known; never waits."""
        until = self.now() + INTERIM
        self.store.transact_soon(partial(outbox.interim, key=f"card/{card_id}", line=line, until=until))
        self.wake()

    def redraw(self, card_id: str) -> None:
        """Undo `processing` and redraw the card's message; never waits."""
        self.store.transact_soon(partial(outbox.restore, key=f"card/{card_id}"))
        self.wake()
        self.channel.tell(Redraw(card_id))

    def tell_person(self, channel: str, person: str, text: str, thread: str | None = None) -> None:
        """Send an ephemeral message to one person, if possible; never waits."""
        if channel:
            self.ephemeral.tell(SendEphemeral(channel, person, text, thread or None))


CHANNEL = "slack"

#: Temporary refusals: the action must be tried again.
PASSING = frozenset({"db", "busy", "unavailable"})


@frozen
class Turned:
    """Nothing was changed. `why` is a sentence for the person, in Slack's markup; `late` means a closed card."""

    why: str
    late: bool = False


async def give(
    deps: ActionDeps,
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
    person = await deps.people.named(person)
    verdict = Verdict(act_id, decision, str(person), CHANNEL, deps.now(), text, Origin(CHANNEL))
    try:
        turned = await _shown(deps, card_id, person, partial(_decide, deps, card_id, kind, verdict, person))
    except NotRecorded:
        deps.redraw(card_id)
        raise
    except AlreadyDecided as late:
        turned = await _late(deps, card_id, person, verdict, late)
    except IntercomError as refusal:
        if refusal.error_code in PASSING:
            deps.redraw(card_id)
            raise NotRecorded(f"the decision was not recorded: {refusal.error_code}") from refusal
        turned = Turned(escaped(refusal.message))
    except Refused as refusal:
        turned = Turned(escaped(str(refusal)))
    except Exception as fault:
        deps.redraw(card_id)
        raise NotRecorded(f"the decision was not recorded: {type(fault).__name__}") from fault
    if turned is not None:
        deps.redraw(card_id)
    return turned


async def _shown(
    deps: ActionDeps, card_id: str, person: Person, work: Callable[[], Awaitable[Turned | None]]
) -> Turned | None:
    """Run the work, and show in the card's message that it is being processed. Errors pass through unchanged."""
    turned: Turned | None = None
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_say_so, deps, card_id, person)
        try:
            turned = await work()
        except Exception as fault:
            failed = fault
        except trio.Cancelled:
            # The caller has given up; the result is unknown until a redelivery.
            deps.redraw(card_id)
            raise
        nursery.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return turned


async def _say_so(deps: ActionDeps, card_id: str, person: Person) -> None:
    # The decision first: a commit for the line would delay it, and an agent waits for it.
    await trio.lowlevel.checkpoint()
    deps.processing(card_id, f"⏳ Processing… ({escaped(person.name or person.id)})")


async def _decide(
    deps: ActionDeps, card_id: str, kind: CardKind | None, verdict: Verdict, person: Person
) -> Turned | None:
    id, found = await deps.service.identify(card_id)
    if id != card_id:
        return Turned("this is not the whole id of a card; nothing was changed")
    if kind not in (None, found) or verdict.decision not in CHOICES[found]:
        return Turned(f"{verdict.decision.value} is no answer to a {found.value} card; nothing was changed")
    if found is CardKind.RESTORE and (owner := await _other_owner(deps, id, person)) is not None:
        return Turned(f"the session belongs to <@{escaped(owner)}>, who alone may do that; nothing was changed")
    await deps.service.decide(id, verdict)
    return None


async def _other_owner(deps: ActionDeps, card_id: str, person: Person) -> str | None:
    """Return the owner of the card's session if it is another person."""
    card = await deps.service.card(card_id)
    for session in await deps.service.sessions(everything=True):
        if session.id == card.session_id and session.owner_user_id not in ("", person.id):
            return session.owner_user_id
    return None


async def _late(
    deps: ActionDeps, card_id: str, person: Person, verdict: Verdict, late: AlreadyDecided
) -> Turned | None:
    card = await _card(deps, card_id)
    first = None if card is None else card.decided
    if first is None:
        return Turned(escaped(late.message), late=True)
    if first.verdict_id == verdict.id or _same(first, person, verdict):
        # A redelivery, or a second click: it is done already.
        deps.redraw(card_id)
        return None
    return Turned(f"too late: {who_was_first(first)}; nothing was changed", late=True)


def who_was_first(first: Decided) -> str:
    """Return a phrase in Slack's markup that says who decided what, where and when."""
    word = "proceeded with" if first.decision == Decision.PROCEED else PAST.get(first.decision, first.decision)
    if first.channel == "timeout":
        return f"nobody answered in time, and at {first.at:%Y-%m-%d %H:%M} UTC it was {escaped(word)} by itself"
    return f"{escaped(first.by)} {escaped(word)} it at {first.at:%Y-%m-%d %H:%M} UTC ({escaped(first.channel)})"


def _same(first: Decided, person: Person, verdict: Verdict) -> bool:
    by_them = first.channel == CHANNEL and (first.by == person.id or first.by.endswith(f"({person.id})"))
    return by_them and first.decision == verdict.decision.value and verdict.text in (None, first.text)


async def _card(deps: ActionDeps, card_id: str) -> Card | None:
    try:
        card = await deps.service.card(card_id)
    except Exception as fault:
        log.info("a card that was decided could not be looked at: %s", type(fault).__name__)
        return None
    return card if card.id == card_id else None


@frozen
class Authorization:
    """Decides who may act. `authorized` are user ids. With `team_id`, actions from another team are refused as well."""

    service: OperatorService
    authorized: frozenset[str]
    team_id: str = ""

    async def passes(self, act: ButtonAction | FormSubmission | Command | ThreadReply) -> bool:
        """Return whether this person may act. If not, the attempt is recorded without its text; raises NotRecorded if
        that fails."""
        why = self._against(act)
        if why is None:
            return True
        summary = f"ignored {_described(act)} in Slack by {act.person}: {why}"
        log.warning(summary)
        data: dict[str, Any] = {"user": act.person.id, "team": act.team, "channel": act.channel, **_about(act)}
        try:
            await self.service.security_event(summary, data)
        except Exception as fault:
            raise NotRecorded(f"a security event was not recorded: {type(fault).__name__}") from fault
        return False

    def _against(self, act: ButtonAction | FormSubmission | Command | ThreadReply) -> str | None:
        if self.team_id and act.team and act.team != self.team_id:
            return "of another team"
        return None if act.person.id in self.authorized else "not authorized"


def _described(act: ButtonAction | FormSubmission | Command | ThreadReply) -> str:
    match act:
        case ButtonAction():
            return "a tap"
        case FormSubmission():
            return "a form"
        case Command():
            return "a command"
        case ThreadReply():
            return "a reply"


def _about(act: ButtonAction | FormSubmission | Command | ThreadReply) -> dict[str, str]:
    match act:
        case ButtonAction():
            return {"action": act.action_id, "card": act.card_id}
        case FormSubmission():
            return {"action": act.form, "card": act.card_id}
        case Command():
            return {"action": act.command}
        case ThreadReply():
            return {"action": "reply", "thread": act.thread}
