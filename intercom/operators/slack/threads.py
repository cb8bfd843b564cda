"""Replies in a thread: the same decisions as the buttons', in words.

The meaning of a reply depends on the cards that are open when it arrives. So the meaning is determined once and
recorded under the act's id before it is carried out. A redelivered reply decides the same card, and never the next one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from attrs import frozen

from actors import Refused
from intercom.model.card import Card, CardKind, CardState
from intercom.model.decision import Decision
from intercom.model.errors import IntercomError, NotFound
from intercom.model.outbox import Urgency
from intercom.model.session import SessionMode
from intercom.operators.slack import decisions
from intercom.operators.slack.buttons import form_of
from intercom.operators.slack.decisions import ActionDeps, Authorization, NotRecorded
from intercom.operators.slack.draw.blocks import escaped
from intercom.operators.slack.envelopes import ThreadReply
from intercom.operators.slack.modals import line
from intercom.operators.slack.reply_words import (
    LONGEST,
    addressed,
    is_never_mind,
    is_nothing,
    possible,
    understand,
    unescape,
)
from intercom.store import idempotency, outbox
from intercom.store.idempotency import Scope
from intercom.store.messages import Database
from intercom.store.outbox import Question

#: How many open cards an answer lists.
_LISTED = 10

#: How much of an id is shown; more if cards would look the same.
_SHORT = 8


@frozen
class Thread:
    """The subject of a thread: a session, or one card. `question` is the open question in it; `settled` is the recorded
    meaning if this reply came before."""

    session_id: str | None
    card_id: str | None
    question: Question | None
    settled: dict[str, Any] | None


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


async def said(deps: ActionDeps, authorization: Authorization, reply: ThreadReply) -> None:
    """Carry out a reply. Returns once its meaning is recorded, or the reply is irrelevant; raises NotRecorded."""
    thread = await deps.store.transact(partial(_thread, reply=reply))
    if thread is None or not await authorization.passes(reply):
        return
    if thread.settled is not None:
        await _carry_out(deps, reply, thread, _kept(thread.settled))
        return
    meaning = await _meaning(deps, thread, reply)
    if meaning is not None:
        await deps.store.transact(partial(_settle, deps=deps, thread=thread, reply=reply, meaning=meaning))
        deps.wake()
        await _carry_out(deps, reply, thread, meaning)


async def _carry_out(deps: ActionDeps, reply: ThreadReply, thread: Thread, meaning: Meaning | None) -> None:
    if isinstance(meaning, Tells):
        await _tell(deps, reply, thread, meaning)
    elif isinstance(meaning, Decides):
        await _decide(deps, reply, thread, meaning)


async def _tell(deps: ActionDeps, reply: ThreadReply, thread: Thread, tells: Tells) -> None:
    """Queue the instruction for the agent. A card in the thread shows its status. If the session's cards are not shown
    here, or it fails, the reply gets an answer."""
    person = await deps.people.named(reply.person)
    answer: str | None = None
    try:
        card = await deps.service.steering.steer(
            tells.session_id, tells.text, str(person), decisions.CHANNEL, act_id=reply.act_id
        )
        known = await deps.service.sessions(everything=True)
        mode = next((each.mode for each in known if each.id == tells.session_id), None)
        if mode is SessionMode.LOCAL:
            answer = (
                f"queued for the agent as `{card.id[:_SHORT]}`: it is told with its next result. This session's cards"
                f" are not shown here; `agent-intercom-ctl steering {tells.session_id[:_SHORT]}` says when it has it"
            )
    except IntercomError as refusal:
        if refusal.error_code in decisions.PASSING:
            raise NotRecorded(f"the words were not queued: {refusal.error_code}") from refusal
        answer = f"the agent was not told this: {escaped(refusal.message)}"
    except Refused as refusal:
        answer = f"the agent was not told this: {escaped(str(refusal))}"
    except Exception as fault:
        raise NotRecorded(f"the words were not queued: {type(fault).__name__}") from fault
    if answer is not None:
        await deps.store.transact(partial(_answer, deps=deps, thread=thread, reply=reply, text=answer))
        deps.wake()


async def _decide(deps: ActionDeps, reply: ThreadReply, thread: Thread, decides: Decides) -> None:
    turned = await decisions.give(
        deps, reply.act_id, reply.person, decides.card_id, decides.decision, decides.text, kind=decides.kind
    )
    if turned is not None:
        await deps.store.transact(partial(_answer, deps=deps, thread=thread, reply=reply, text=turned.why))
        deps.wake()


# --- what it means ---------------------------------------------------------------------------------------------------


async def _meaning(deps: ActionDeps, thread: Thread, reply: ThreadReply) -> Meaning | None:
    text = unescape(reply.text).strip()
    if thread.question is not None and thread.question.asked_of == reply.person.id:
        card = await _card(deps, thread.question.card_id)
        if card is not None and card.state is CardState.PENDING:
            return to_question(text, card, Decision(thread.question.decision))
        # The reply was meant for that card: a short "no" must not reject another one.
        return Answered("what you were asked about is no longer open, so this decided nothing", closes=True)
    cards = await _open(deps, thread)
    return to_cards(text, cards, await _unseen(deps, reply, cards)) or _to_agent(text, thread)


def _to_agent(text: str, thread: Thread) -> Tells | Answered | None:
    """Return the meaning of a reply that answers nothing: an instruction for the agent of the thread. Pure."""
    if not text:
        return None
    if thread.session_id is None:
        return Answered("nothing waits here, and this thread is no session's, so no agent was told this")
    return Tells(thread.session_id, text)


def to_question(text: str, card: Card, decision: Decision) -> Decides | Answered:
    """Return the meaning of a reply to a question for the text of `decision` on this card. Pure."""
    if is_never_mind(text):
        return Answered("taken back; nothing was changed, and the card is still open", closes=True)
    plain = understand(text, card.kind)
    if plain is not None and plain.decision is not decision:
        return Answered(
            f"this could be your answer or another decision: say `never mind` first to {plain.decision.value},"
            f" or say more for the words of {decision.value}"
        )
    words: str | None = text if plain is None else plain.text
    if words is not None and is_nothing(words):
        words = None
    form = form_of(card.kind, decision)
    if words is None and form is not None and form.required is not None:
        return Answered(f"it needs words: {form.required}, or `never mind`")
    if words is not None and len(words) > LONGEST:
        return Answered(f"that is too long: at most {LONGEST} characters, please")
    return Decides(card.id, card.kind, decision, words, asked=True)


def to_cards(text: str, cards: tuple[Card, ...], unseen: frozenset[str] = frozenset()) -> Decides | Answered | None:
    """Return the meaning of a reply while these cards are open.

    It is a decision, an answer with the possible replies, or None if nothing waits and the text is no decision. A card
    in `unseen` is decided only if the reply names its id. Pure.
    """
    id, rest = addressed(text)
    named = [card for card in cards if id and card.id.casefold().startswith(id)]
    if not cards:
        decided = any(understand(words, kind) for words in (text, rest) for kind in CardKind)
        return Answered("nothing waits for an answer in this thread") if decided else None
    if len(named) > 1 or (not named and len(cards) > 1):
        return Answered(_which(tuple(named) or cards))
    card, words = (named[0], rest) if named else (cards[0], text)
    found = understand(words, card.kind)
    if found is None:
        return Answered(f"not understood, so nothing was decided. You can say {possible(card.kind)}")
    if found.text is not None and len(found.text) > LONGEST:
        return Answered(f"that is too long: at most {LONGEST} characters, please")
    if card.id in unseen and not named:
        return Answered(
            f"nothing was decided: what waits now, `{card.id[:_SHORT]}` ({card.kind.value}), was not here yet when you"
            " wrote this. Look at it, and begin with its id if you mean it"
        )
    return Decides(card.id, card.kind, found.decision, found.text)


def _which(cards: tuple[Card, ...]) -> str:
    """Ask which card is meant. Without titles: they are the agent's text, and the cards show them."""
    length = _SHORT
    while length < 64 and len({card.id[:length] for card in cards}) < len(cards):
        length += 4
    shown = [f"• `{card.id[:length]}` ({card.kind.value}): {possible(card.kind)}" for card in cards[:_LISTED]]
    more = [f"and {len(cards) - _LISTED} more"] if len(cards) > _LISTED else []
    return "\n".join([f"{len(cards)} cards are open here: begin with the id of the one you mean", *shown, *more])


# --- looking and recording -------------------------------------------------------------------------------------------


async def _card(deps: ActionDeps, id: str) -> Card | None:
    try:
        return await deps.service.card(id)
    except NotFound:
        return None
    except Exception as fault:
        raise NotRecorded(f"a card could not be read: {type(fault).__name__}") from fault


async def _open(deps: ActionDeps, thread: Thread) -> tuple[Card, ...]:
    if thread.session_id is None and thread.card_id is not None:
        card = await _card(deps, thread.card_id)
        return (card,) if card is not None and card.state is CardState.PENDING else ()
    if thread.session_id is None:
        return ()
    try:
        return tuple(await deps.service.pending(thread.session_id))
    except NotFound:
        # The thread of a purged session still exists.
        return ()
    except IntercomError as fault:
        raise NotRecorded(f"the open cards could not be read: {fault.error_code}") from fault
    except Exception as fault:
        raise NotRecorded(f"the open cards could not be read: {type(fault).__name__}") from fault


async def _unseen(deps: ActionDeps, reply: ThreadReply, cards: tuple[Card, ...]) -> frozenset[str]:
    """Return the cards whose message was not in Slack yet when the reply was written."""

    def look(db: Database) -> frozenset[str]:
        there = {card.id: outbox.by_key(db, f"card/{card.id}") for card in cards}
        return frozenset(
            id for id, row in there.items() if row is None or row.ts is None or _instant(row.ts) > _instant(reply.ts)
        )

    # With several cards the reply must name one anyway.
    return await deps.store.transact(look) if len(cards) == 1 else frozenset()


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
    kept: dict[str, Any] = {}
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


def _kept(kept: dict[str, Any]) -> Decides | Tells | None:
    if "tells" in kept:
        return Tells(kept["tells"], kept["text"])
    if "card" not in kept:
        return None
    return Decides(kept["card"], CardKind(kept["kind"]), Decision(kept["decision"]), kept["text"])


def _answer(db: Database, deps: ActionDeps, thread: Thread, reply: ThreadReply, text: str) -> None:
    outbox.put(
        db,
        f"reply/{reply.act_id}",
        line(text),
        deps.now(),
        channel=reply.channel,
        urgency=Urgency.ALERT,
        session_id=thread.session_id,
        thread=reply.thread,
    )
