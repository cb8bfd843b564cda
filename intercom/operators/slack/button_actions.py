"""Decisions by button and form: whether the person may act, the decision, its text, and the card's message afterwards.

The text of a decision is asked for in a form, or in the thread if no form can be opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import trio
from attrs import define, field, frozen

from actors import Name, Refused
from intercom.model.amendment import Amendment, Comment
from intercom.model.card import CHOICES, Card, CardKind, CardState
from intercom.model.decision import PAST, Decided, Decision, Verdict
from intercom.model.errors import AlreadyDecided, IntercomError, NotFound
from intercom.model.process import Origin
from intercom.operators.slack.buttons import LONGEST, Form
from intercom.operators.slack.draw import blocks
from intercom.operators.slack.draw.blocks import (
    Block,
    Mask,
    Masking,
    code,
    context,
    cut,
    escaped,
    label,
    mrkdwn,
    plain,
    section,
    short,
)
from intercom.operators.slack.envelope_parser import (
    FORM,
    Act,
    ButtonAction,
    CommandsShown,
    FormSubmission,
    Person,
    SessionStop,
    form_metadata,
    person_name,
)
from intercom.operators.slack.slack_messages import Redraw, SendEphemeral, Wake
from intercom.operators.slack.web_api import Api, Json, SlackRefused
from intercom.sessions.operator_service import OperatorService
from intercom.store import outbox
from intercom.store.outbox import Content, Question, Urgency
from intercom.store.store_and_reader import Store
from intercom.store.writer_messages import Database

log = logging.getLogger(__name__)

#: How long a message may say that an action is being handled, before its buttons return.
INTERIM = timedelta(seconds=20)

CHANNEL = "slack"


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
            name = ""
            try:
                with trio.move_on_after(NAME_SECONDS):
                    name = person_name(await self.web.call("users.info", timeout=NAME_SECONDS, user=person.id))
            except Exception as fault:
                log.info("the name of %s is not known: %s", person.id, fault)
        if len(self._names) >= _NAMES:
            del self._names[next(iter(self._names))]
        self._names[person.id] = name
        return Person(person.id, name)


@frozen
class ActionDeps:
    """The dependencies. `outbox`, `outbox_writer` and `ephemeral` name actors."""

    service: OperatorService
    store: Store
    outbox: Name
    outbox_writer: Name
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
        self.outbox_writer.tell(Redraw(card_id))

    def tell_person(
        self, act: ButtonAction | CommandsShown | SessionStop, text: str, blocks: Sequence[Block] = ()
    ) -> None:
        """Send an ephemeral message to the person who pressed a button, if possible; never waits."""
        self.ephemeral.tell(SendEphemeral(act.channel, act.person.id, text, act.within, tuple(blocks)))


@frozen
class Turned:
    """Nothing was changed. `why` is a sentence for the person, in Slack's markup; `late` means a closed card."""

    why: str
    late: bool = False


#: Temporary refusals: the action must be tried again.
_PASSING = frozenset({"db", "busy", "unavailable"})


def turned_by(fault: Exception, what: str) -> Turned:
    """Return what the person is told of a refusal. Raises NotRecorded if `what` may succeed when it is repeated."""
    if isinstance(fault, IntercomError) and fault.error_code not in _PASSING:
        return Turned(escaped(fault.message))
    if isinstance(fault, Refused):
        return Turned(escaped(str(fault)))
    why = fault.error_code if isinstance(fault, IntercomError) else type(fault).__name__
    raise NotRecorded(f"{what}: {why}") from fault


async def press(deps: ActionDeps, act: ButtonAction) -> None:
    """Carry out a click on a button. Returns once the decision is recorded, a form is open, or the question for its
    text is recorded. Raises NotRecorded."""
    button = act.button
    if button.form is not None:
        await _ask(deps, act, button.form)
        return
    turned = await give(deps, act.act_id, act.person, act.card_id, button.decision, kind=button.kind)
    if turned is not None:
        deps.tell_person(act, turned.why)


async def submit(deps: ActionDeps, act: FormSubmission) -> Json | None:
    """Carry out a submitted form; return the payload of the acknowledgement. None means that the decision is recorded.
    Otherwise it is an error about the text, or a view that says why nothing was changed. Raises NotRecorded."""
    button, text = act.button, act.text.strip() or None
    complaint = None
    if text is not None and len(text) > LONGEST:
        complaint = f"at most {LONGEST} characters, please; shorten it, or let the agent read it from a file"
    elif text is None and button.form is not None:
        complaint = button.form.required
    elif (
        text is not None and button.form is not None and button.form.prefilled and await _is_unchanged(deps, act, text)
    ):
        complaint = "this is the agent's own question: change it into what the agent should do"
    if complaint is not None:
        return {"response_action": "errors", "errors": {act.block: complaint}}
    turned = await give(deps, act.act_id, act.person, act.card_id, button.decision, text, kind=button.kind)
    if turned is None:
        return None
    title = "Too late" if turned.late else "Nothing was changed"
    return {"response_action": "update", "view": draw_notice(title, turned.why)}


async def _is_unchanged(deps: ActionDeps, act: FormSubmission, text: str) -> bool:
    """Return whether the text is what the form began with. If the card cannot be looked up, deciding it fails too."""
    try:
        card = await deps.service.card(act.card_id)
    except Exception:
        return False
    return text == _prefill(card, Masking(deps.mask)).strip()


async def give(
    deps: ActionDeps,
    act_id: str,
    person: Person,
    card_id: str,
    decision: Decision,
    text: str | None = None,
    *,
    kind: CardKind | None = None,
    amendment: Amendment | None = None,
    comments: tuple[Comment, ...] = (),
) -> Turned | None:
    """Decide the card `card_id` (its full id) under the id of the act; with `kind`, only a card of that kind. An
    approval may change the proposal, and a rejection may comment on its lines.

    None means that the decision is recorded, however often the action is delivered. The card's message shows at once
    that the decision is being processed, but this never delays the decision. If nothing comes of it, the buttons
    return. Raises NotRecorded if the decision could not be recorded now, or that is unknown.
    """
    person = await deps.people.named(person)
    verdict = Verdict(
        act_id,
        decision,
        str(person),
        CHANNEL,
        deps.now(),
        text,
        Origin(CHANNEL),
        amendment=amendment,
        comments=comments,
    )
    turned: Turned | None = None
    failed: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_show_processing, deps, card_id, person)
        try:
            turned = await _decide(deps, card_id, kind, verdict, person)
        except Exception as fault:
            failed = fault
        except trio.Cancelled:
            # The caller has given up; the result is unknown until a redelivery.
            deps.redraw(card_id)
            raise
        nursery.cancel_scope.cancel()
    if turned is not None or failed is not None:
        deps.redraw(card_id)
    if isinstance(failed, AlreadyDecided):
        return await _late(deps, card_id, person, verdict, failed)
    return turned if failed is None else turned_by(failed, "the decision was not recorded")


async def stop_session(deps: ActionDeps, act: SessionStop) -> None:
    """End the session whose first message has the button; a session with an owner, for them only. A repetition changes
    nothing. Raises NotRecorded."""
    person = await deps.people.named(act.person)
    try:
        for session in await deps.service.sessions(everything=True):
            if session.id == act.session_id and session.owner_user_id not in ("", person.id):
                owner = escaped(session.owner_user_id)
                deps.tell_person(act, f"the session belongs to <@{owner}>, who alone may do that; nothing was changed")
                return
        await deps.service.end(act.session_id, str(person), CHANNEL, "stopped from its thread")
    except Exception as fault:
        deps.tell_person(act, turned_by(fault, "the session was not ended").why)


async def _show_processing(deps: ActionDeps, card_id: str, person: Person) -> None:
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
        return Turned(f"{verdict.decision.value} does not answer a {found.value} card; nothing was changed")
    if found is CardKind.RESTORE:
        card = await deps.service.card(id)
        for session in await deps.service.sessions(everything=True):
            if session.id == card.session_id and session.owner_user_id not in ("", person.id):
                owner = escaped(session.owner_user_id)
                return Turned(f"the session belongs to <@{owner}>, who alone may do that; nothing was changed")
    await deps.service.decide(id, verdict)
    return None


async def _late(
    deps: ActionDeps, card_id: str, person: Person, verdict: Verdict, late: AlreadyDecided
) -> Turned | None:
    first: Decided | None = None
    try:
        card = await deps.service.card(card_id)
        first = card.decided if card.id == card_id else None
    except Exception as fault:
        log.info("a card that was decided could not be looked at: %s", type(fault).__name__)
    if first is None:
        return Turned(escaped(late.message), late=True)
    by_them = first.channel == CHANNEL and (first.by == person.id or first.by.endswith(f"({person.id})"))
    says_more = verdict.amendment is not None or bool(verdict.comments)
    same = by_them and first.decision == verdict.decision.value and verdict.text in (None, first.text) and not says_more
    if first.verdict_id == verdict.id or same:
        # A redelivery, or a second click: it is done already.
        return None
    return Turned(f"too late: {_who_was_first(first)}; nothing was changed", late=True)


def _who_was_first(first: Decided) -> str:
    """Return a phrase in Slack's markup that says who decided what, where and when."""
    word = "proceeded with" if first.decision == Decision.PROCEED else PAST.get(first.decision, first.decision)
    if first.channel == "timeout":
        return f"nobody answered in time, and at {first.at:%Y-%m-%d %H:%M} UTC it was {escaped(word)} by itself"
    return f"{escaped(first.by)} {escaped(word)} it at {first.at:%Y-%m-%d %H:%M} UTC ({escaped(first.channel)})"


@frozen
class SlackAuthorization:
    """Decides who may act. `authorized` are user ids. With `team_id`, actions from another team are refused as well."""

    service: OperatorService
    authorized: frozenset[str]
    team_id: str = ""

    async def passes(self, act: Act) -> bool:
        """Return whether this person may act. If not, the attempt is recorded without its text; raises NotRecorded if
        that fails."""
        if self.team_id and act.team and act.team != self.team_id:
            why = "of another team"
        elif act.person.id not in self.authorized:
            why = "not authorized"
        else:
            return True
        summary = f"ignored {act.NOUN} in Slack by {act.person}: {why}"
        log.warning(summary)
        data = {"user": act.person.id, "team": act.team, "channel": act.channel, **act.about}
        try:
            await self.service.security_event(summary, data)
        except Exception as fault:
            raise NotRecorded(f"a security event was not recorded: {type(fault).__name__}") from fault
        return False


# --- forms -----------------------------------------------------------------------------------------------------------

#: How long the look-up of the card may delay its form, in seconds: the trigger expires after 3.
_LOOK_SECONDS = 0.5

#: How long opening a form may take, in seconds; after that the thread asks.
_OPEN_SECONDS = 2.4

#: Slack's error if this trigger has opened a form already.
_OPENED = "exchanged_trigger_id"

#: The location of a submitted form's text: `view["state"]["values"][BLOCK][FIELD]["value"]`.
BLOCK: Final = "words"
FIELD: Final = "text"


async def _ask(deps: ActionDeps, pressed: ButtonAction, form: Form) -> None:
    card = await _looked_up(deps, pressed)
    if isinstance(card, str):
        deps.redraw(pressed.card_id)
        deps.tell_person(pressed, f"{card}; nothing was changed")
        return
    metadata = form_metadata(pressed.card_id, pressed.channel, pressed.thread)
    about = card or Card(pressed.card_id, pressed.button.kind, "not known", "", "What you clicked", deps.now())
    try:
        view = draw_form(form, about, metadata, deps.mask)
        with trio.fail_after(_OPEN_SECONDS):
            await deps.web.call("views.open", timeout=_OPEN_SECONDS, trigger_id=pressed.trigger, view=view)
    except Exception as fault:
        if isinstance(fault, SlackRefused) and fault.error == _OPENED:
            return
        log.info("a form could not be opened, so the thread is asked: %s", fault)
        session_id = None if card is None else card.session_id or None
        await deps.store.transact(
            partial(_ask_thread, pressed=pressed, form=form, session_id=session_id, now=deps.now())
        )
        deps.wake()


async def _looked_up(deps: ActionDeps, pressed: ButtonAction) -> Card | str | None:
    """Return the card of the form; None if the look-up takes too long; or why there is no form."""
    try:
        with trio.fail_after(_LOOK_SECONDS):
            card = await deps.service.card(pressed.card_id)
    except NotFound:
        return "this card is gone"
    except Exception as fault:
        log.info("a form is opened without a look at its card: %s", type(fault).__name__)
        return None
    if card.id != pressed.card_id or card.kind is not pressed.button.kind:
        return "this button does not belong to this card"
    if card.state is CardState.PENDING:
        return card
    return f"too late: {f'this is {card.state.value}' if card.decided is None else _who_was_first(card.decided)}"


def _ask_thread(db: Database, pressed: ButtonAction, form: Form, session_id: str | None, now: datetime) -> None:
    key = f"question/{pressed.act_id}"
    if outbox.by_key(db, key) is not None:
        # A redelivery: the question was asked already, and may be answered by now.
        return
    decision = pressed.button.decision.value
    outbox.ask(db, Question(pressed.channel, pressed.thread, pressed.card_id, decision, pressed.person.id, now))
    text = (
        f"<@{pressed.person.id}> the form could not be opened. Reply here with {form.question}; `never mind` takes it"
        " back."
    )
    answer_thread(db, key, text, pressed.channel, pressed.thread, session_id, now)


def answer_thread(
    db: Database, key: str, text: str, channel: str, thread: str, session_id: str | None, now: datetime
) -> None:
    """Post a message to a thread, once under this key; `text` is in Slack's markup."""
    content: Content = {"text": text, "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": text}}]}
    outbox.put(db, key, content, now, channel=channel, urgency=Urgency.ALERT, session_id=session_id, thread=thread)


def _prefill(card: Card, masking: Masking) -> str:
    """Return the text that a prefilled form begins with."""
    # Slack takes the value literally: escaped, its entities would be visible.
    return cut(masking(card.body or "", blocks.INPUT), blocks.INPUT, escape=False)


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
        "placeholder": label(form.placeholder, blocks.PLACEHOLDER),
        "focus_on_load": True,
    }
    before = _prefill(card, masking) if form.prefilled else ""
    if before.strip():
        field["initial_value"] = before
    asked = {
        "type": "input",
        "block_id": BLOCK,
        "label": label(form.label, blocks.LABEL),
        "optional": form.optional,
        "element": field,
    }
    if form.hint and "initial_value" in field:
        asked["hint"] = label(form.hint, blocks.LABEL)
    return {
        "type": "modal",
        "callback_id": FORM + form.name,
        "private_metadata": metadata,
        "title": label(form.title, blocks.MODAL_TITLE),
        "submit": label(form.submit, blocks.MODAL_BUTTON),
        "close": label("Cancel", blocks.MODAL_BUTTON),
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
