"""Interactions: each action of a person is carried out once: a click, a form, a command, or a reply in a thread.

A reply decides as the buttons do. Its meaning depends on the cards that are open when it arrives. So the meaning is
determined once and recorded under the act's id before it is carried out. A redelivered reply decides the same card, and
never the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio
from attrs import define, field, frozen

from intercom.model.card import Card, CardKind, CardState
from intercom.model.decision import Decision
from intercom.model.errors import NotFound
from intercom.model.session import SessionMode
from intercom.operators.slack import amendment_forms, button_actions, envelope_parser
from intercom.operators.slack.button_actions import ActionDeps, SlackAuthorization, answer_thread, turned_by
from intercom.operators.slack.buttons import (
    LONGEST,
    Understood,
    addressed,
    form_of,
    is_instruction,
    is_never_mind,
    is_nothing,
    possible,
    understand,
    unescape,
)
from intercom.operators.slack.commands.slash_command_table import SLASH
from intercom.operators.slack.envelope_parser import (
    Act,
    AmendmentSubmission,
    ButtonAction,
    Command,
    CommandsShown,
    FormSubmission,
    Ignored,
    SessionStop,
    ThreadReply,
)
from intercom.operators.slack.web_api import Json
from intercom.store import idempotency, outbox
from intercom.store.idempotency import Scope
from intercom.store.outbox import Question
from intercom.store.writer_messages import Database

log = logging.getLogger(__name__)

#: How many acts are remembered: Slack repeats an event within five minutes.
REMEMBERED = 256

#: The payload of an acknowledgement; None if there is none.
Answer = Json | None


@define
class Once:
    """Runs each work once, by its id, as far as memory goes. What must not repeat after a restart is also recorded."""

    remembered: int = REMEMBERED
    _answers: dict[str, Answer] = field(factory=dict, init=False)
    _under_way: dict[str, trio.Event] = field(factory=dict, init=False)

    async def run(self, id: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of `work`; concurrent and later repetitions get the same answer. If `work` raises, the next
        repetition runs it again."""
        while (first := self._under_way.get(id)) is not None:
            await first.wait()
        if id in self._answers:
            return self._answers[id]
        done = self._under_way[id] = trio.Event()
        try:
            answer = await work()
            if len(self._answers) >= self.remembered:
                del self._answers[next(iter(self._answers))]
            self._answers[id] = answer
            return answer
        finally:
            del self._under_way[id]
            done.set()


@frozen
class Interactions:
    """Carries out the actions in envelopes. `authorization` decides who may act.

    `run_command` carries out a slash command. It returns the payload of the acknowledgement once the command is
    recorded, and is called for authorized people only, at least once for each command. `deps` serves all other actions.
    """

    deps: ActionDeps
    authorization: SlackAuthorization
    run_command: Callable[[Command], Awaitable[Answer]]
    _once: Once = field(factory=Once, init=False, repr=False)

    async def handle(self, kind: str, payload: Mapping[str, object]) -> Answer:
        """Carry out an envelope of type `kind`; return the payload of its acknowledgement, if any.

        Returns once the action is recorded, or is irrelevant. The same action in another envelope gets the same answer.
        Raises NotRecorded (or the error of a command) if it could not be recorded. Then it must not be acknowledged, so
        that Slack delivers it again.
        """
        act = envelope_parser.read(kind, payload)
        if isinstance(act, Ignored):
            log.debug("ignored: %s", act.why)
            return None
        return await self._once.run(act.act_id, lambda: self._carry_out(act))

    async def _carry_out(self, act: Act) -> Answer:
        match act:
            case ThreadReply():
                # Whether the reply concerns us is known only after a look-up of its thread.
                await _reply(self.deps, self.authorization, act)
            case ButtonAction() if await self.authorization.passes(act):
                if act.button.dialog is not None:
                    await amendment_forms.open_form(self.deps, act)
                else:
                    await button_actions.press(self.deps, act)
            case SessionStop() if await self.authorization.passes(act):
                await button_actions.stop_session(self.deps, act)
            case CommandsShown() if await self.authorization.passes(act):
                await self._show_commands(act)
            case AmendmentSubmission() if await self.authorization.passes(act):
                return await amendment_forms.submit(self.deps, act)
            case FormSubmission() if await self.authorization.passes(act):
                return await button_actions.submit(self.deps, act)
            case Command() if await self.authorization.passes(act):
                return await self.run_command(act)
        return None

    async def _show_commands(self, click: CommandsShown) -> None:
        """Show the person the answer of each command, as if they had typed it."""
        try:
            card = await self.deps.service.card(click.card_id)
        except Exception as fault:
            self.deps.tell_person(click, turned_by(fault, "the card could not be looked at").why)
            return
        for each in click.button.commands:
            name, text = each.partition(" ")[0], each.format(card=card.id, session=card.session_id)
            id = f"{click.act_id}/{name}"
            command = Command(id, click.person, click.team, click.channel, SLASH, text, click.response_url)
            answer = await self.run_command(command)
            if answer is not None:
                self.deps.tell_person(click, str(answer["text"]), answer.get("blocks") or ())


# --- replies ---------------------------------------------------------------------------------------------------------

#: How many open cards an answer lists.
_LISTED = 10

#: How much of an id is shown; more if cards would look the same.
_SHORT = 8


@frozen
class Thread:
    """The subject of a thread: one card (then `session_id` is its session, if it has one), or a session. `question` is
    the open question in it; `settled` is the recorded meaning if this reply came before."""

    session_id: str | None
    card_id: str | None
    question: Question | None
    settled: Json | None


@frozen
class Decides:
    """The reply decides a card. `asked` marks the answer to a question, which it closes."""

    card_id: str
    kind: CardKind
    decision: Decision
    text: str | None = None
    asked: bool = False


@frozen
class Tells:
    """The reply is an instruction for the session's agent, because no card waits for an answer there."""

    session_id: str
    text: str


@frozen
class Answered:
    """The reply decides nothing and gets an answer in Slack's markup. `closes` drops the open question."""

    text: str
    closes: bool = False


Meaning = Decides | Tells | Answered


async def _reply(deps: ActionDeps, authorization: SlackAuthorization, reply: ThreadReply) -> None:
    """Carry out a reply. Returns once its meaning is recorded, or the reply is irrelevant; raises NotRecorded."""
    thread = await deps.store.transact(partial(_thread, reply=reply))
    if thread is None or not await authorization.passes(reply):
        return
    if thread.settled is not None:
        meaning: Meaning | None = _recorded(thread.settled)
    else:
        meaning = await _meaning(deps, thread, reply)
        if meaning is not None:
            await deps.store.transact(partial(_settle, deps=deps, thread=thread, reply=reply, meaning=meaning))
            deps.wake()
    answer: str | None = None
    if isinstance(meaning, Tells):
        answer = await _tell(deps, reply, meaning)
    elif isinstance(meaning, Decides):
        turned = await button_actions.give(
            deps, reply.act_id, reply.person, meaning.card_id, meaning.decision, meaning.text, kind=meaning.kind
        )
        answer = None if turned is None else turned.why
    if answer is not None:
        await deps.store.transact(partial(_answer, deps=deps, thread=thread, reply=reply, text=answer))
        deps.wake()


async def _tell(deps: ActionDeps, reply: ThreadReply, tells: Tells) -> str | None:
    """Queue the instruction for the agent. A card in the thread shows its status. If the session's cards are not shown
    here, or it fails, return an answer."""
    person = await deps.people.named(reply.person)
    try:
        card = await deps.service.steering.steer(
            tells.session_id, tells.text, str(person), button_actions.CHANNEL, act_id=reply.act_id
        )
        known = await deps.service.sessions(everything=True)
    except Exception as fault:
        return f"the agent was not told this: {turned_by(fault, 'the message was not queued').why}"
    if not any(each.id == tells.session_id and each.mode is SessionMode.LOCAL for each in known):
        return None
    return (
        f"queued for the agent as `{card.id[:_SHORT]}`: it is delivered with its next result. This session's cards"
        f" are not shown here; `agent-intercom-ctl steering {tells.session_id[:_SHORT]}` says when it has it"
    )


async def _meaning(deps: ActionDeps, thread: Thread, reply: ThreadReply) -> Meaning | None:
    text = unescape(reply.text).strip()
    if thread.question is not None and thread.question.asked_of == reply.person.id:
        if asked := await _open(deps, None, thread.question.card_id):
            return to_question(text, asked[0], Decision(thread.question.decision))
        # The reply was meant for that card: a short "no" must not reject another one.
        return Answered("what you were asked about is no longer open, so this decided nothing", closes=True)
    cards = await _open(deps, thread.session_id, thread.card_id)
    found = to_cards(text, cards, await _unseen(deps, reply, cards))
    if found is not None or not text:
        return found
    if thread.session_id is None:
        return Answered("nothing waits here, and this thread belongs to no session, so no agent was told this")
    return Tells(thread.session_id, text)


def to_question(text: str, card: Card, decision: Decision) -> Decides | Answered:
    """Return the meaning of a reply to a question for the text of `decision` on this card. Pure."""
    if is_never_mind(text):
        return Answered("cancelled; nothing was changed, and the card is still open", closes=True)
    plain = understand(text, card.kind)
    if plain is not None and plain.decision is not decision:
        return Answered(
            f"this could be your answer or another decision: say `never mind` first to {plain.decision.value},"
            f" or say more for the text of {decision.value}"
        )
    said: str | None = text if plain is None else plain.text
    if said is not None and is_nothing(said):
        said = None
    form = form_of(card.kind, decision)
    if said is None and form is not None and form.required is not None:
        return Answered(f"it needs a text: {form.required}, or `never mind`")
    return _short_enough(Decides(card.id, card.kind, decision, said, asked=True))


def to_cards(text: str, cards: tuple[Card, ...], unseen: frozenset[str] = frozenset()) -> Decides | Answered | None:
    """Return the meaning of a reply while these cards are open.

    It is a decision, an answer with the possible replies, or None if nothing waits and the text is no decision. A card
    in `unseen` is decided only if the reply names its id. Pure.
    """
    id, rest = addressed(text)
    named = tuple(card for card in cards if id and card.id.casefold().startswith(id))
    if not cards:
        decided = any(understand(said, kind) for said in (text, rest) for kind in CardKind)
        return Answered("nothing waits for an answer in this thread") if decided else None
    if len(named or cards) > 1:
        return Answered(_which(named or cards))
    card, said = (named[0], rest) if named else (cards[0], text)
    found = understand(said, card.kind)
    if found is None and card.kind is CardKind.STANDBY and is_instruction(said):
        found = Understood(Decision.RESUME, said)
    if found is None:
        return Answered(f"not understood, so nothing was decided. You can say {possible(card.kind)}")
    meaning = _short_enough(Decides(card.id, card.kind, found.decision, found.text))
    if isinstance(meaning, Decides) and card.id in unseen and not named:
        return Answered(
            f"nothing was decided: what waits now, `{card.id[:_SHORT]}` ({card.kind.value}), was not here yet when you"
            " wrote this. Look at it, and begin with its id if you mean it"
        )
    return meaning


def _short_enough(decides: Decides) -> Decides | Answered:
    if decides.text is not None and len(decides.text) > LONGEST:
        return Answered(f"that is too long: at most {LONGEST} characters, please")
    return decides


def _which(cards: tuple[Card, ...]) -> str:
    """Ask which card is meant. Without titles: they are the agent's text, and the cards show them."""
    length = _SHORT
    while length < 64 and len({card.id[:length] for card in cards}) < len(cards):
        length += 4
    shown = [f"• `{card.id[:length]}` ({card.kind.value}): {possible(card.kind)}" for card in cards[:_LISTED]]
    more = [f"and {len(cards) - _LISTED} more"] if len(cards) > _LISTED else []
    return "\n".join([f"{len(cards)} cards are open here: begin with the id of the one you mean", *shown, *more])


async def _open(deps: ActionDeps, session_id: str | None, card_id: str | None) -> tuple[Card, ...]:
    """Return the one card if it is open, or without one the open cards of a session."""
    try:
        if card_id is None:
            return () if session_id is None else tuple(await deps.service.pending(session_id))
        card = await deps.service.card(card_id)
    except NotFound:
        # The thread of a purged session still exists.
        return ()
    except Exception as fault:
        raise button_actions.NotRecorded(f"the open cards could not be read: {type(fault).__name__}") from fault
    return (card,) if card is not None and card.state is CardState.PENDING else ()


async def _unseen(deps: ActionDeps, reply: ThreadReply, cards: tuple[Card, ...]) -> frozenset[str]:
    """Return the cards whose message was not in Slack yet when the reply was written."""
    if len(cards) != 1:
        # With several cards the reply must name one anyway.
        return frozenset()
    row = await deps.store.transact(partial(outbox.by_key, key=f"card/{cards[0].id}"))
    seen = row is not None and row.ts is not None and _instant(row.ts) <= _instant(reply.ts)
    return frozenset() if seen else frozenset({cards[0].id})


def _instant(ts: str) -> tuple[int, int]:
    seconds, _, micros = ts.partition(".")
    return int(seconds), int(micros)


def _thread(db: Database, reply: ThreadReply) -> Thread | None:
    """Look up the subject of a reply's thread; None if the thread is not ours."""
    root = outbox.by_ts(db, reply.channel, reply.thread)
    question = outbox.peek(db, reply.channel, reply.thread)
    if root is None and question is None:
        return None
    kind, _, id = ("", "", "") if root is None else root.key.partition("/")
    return Thread(
        session_id=None if root is None else root.session_id or None,
        card_id=id if kind == "card" else None,
        question=question,
        settled=idempotency.answer(db, Scope.REPLY, reply.act_id),
    )


def _settle(db: Database, deps: ActionDeps, thread: Thread, reply: ThreadReply, meaning: Meaning) -> None:
    kept: Json = {}
    if isinstance(meaning, Decides):
        kept = {"card": meaning.card_id, "kind": meaning.kind.value, "decision": meaning.decision.value}
        kept |= {"text": meaning.text}
    elif isinstance(meaning, Tells):
        kept = {"tells": meaning.session_id, "text": meaning.text}
    if not idempotency.record(db, Scope.REPLY, reply.act_id, kept, deps.now(), session_id=thread.session_id):
        return
    if (isinstance(meaning, Decides) and meaning.asked) or (isinstance(meaning, Answered) and meaning.closes):
        outbox.forget(db, reply.channel, reply.thread)
    if isinstance(meaning, Answered):
        _answer(db, deps, thread, reply, meaning.text)


def _recorded(kept: Json) -> Decides | Tells | None:
    if "tells" in kept:
        return Tells(kept["tells"], kept["text"])
    if "card" not in kept:
        return None
    return Decides(kept["card"], CardKind(kept["kind"]), Decision(kept["decision"]), kept["text"])


def _answer(db: Database, deps: ActionDeps, thread: Thread, reply: ThreadReply, text: str) -> None:
    key = f"reply/{reply.act_id}"
    answer_thread(db, key, text, reply.channel, reply.thread, thread.session_id, deps.now())
