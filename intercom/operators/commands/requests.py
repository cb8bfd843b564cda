"""Commands about what waits for a person: show it, decide it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from intercom.model.card import CHOICES, Card, CardKind
from intercom.model.decision import PAST, Decision, Verdict
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState
from intercom.operators.commands.entries import card_entries, card_entry
from intercom.operators.commands.handler import ById, Caller, OfSession, handles, stripped
from intercom.operators.commands.table import HOW_TO_ANSWER
from intercom.sessions.operator_service import OperatorService

#: The decision of each command that always makes the same one.
_ONE_DECISION = {
    "approve": Decision.APPROVE,
    "reject": Decision.REJECT,
    "policy-accept": Decision.ACCEPT,
    "policy-reject": Decision.REJECT,
}

#: The words of `answer`: the decision for most cards, and the one for a standby, which is resumed.
ANSWERS = {
    "continue": (Decision.CONTINUE, Decision.RESUME),
    "refine": (Decision.REFINE, Decision.RESUME),
    "stop": (Decision.STOP, Decision.STOP),
    "dismiss": (Decision.DISMISS, Decision.DISMISS),
    "proceed": (Decision.PROCEED, Decision.PROCEED),
    "cancel": (Decision.CANCEL, Decision.CANCEL),
}


def decisions_of(command: str, word: str | None) -> tuple[Decision, ...]:
    """Return the decisions that a command about a card can make. `word` is the one typed after `answer`."""
    return ANSWERS.get(word or "", ()) if command == "answer" else (_ONE_DECISION[command],)


@frozen
class Approve:
    id: str
    text: str | None = None


@frozen
class Reject:
    id: str
    reason: str | None = None


@frozen
class Answer:
    """`decision` is one of `ANSWERS`."""

    id: str
    decision: str
    text: str | None = field(default=None, converter=stripped)


@frozen
class Answered:
    """A card after the decision that was made."""

    card: Card
    decision: Decision


def _answered_entry(answered: Answered) -> dict[str, Any]:
    done = answered.decision
    return {
        "request_id": answered.card.id,
        "session_id": answered.card.session_id,
        "status": "proceeding" if done is Decision.PROCEED else PAST[done],
        "state": answered.card.state.value,
    }


@handles("pending", OfSession, card_entries)
async def pending(service: OperatorService, caller: Caller, asked: OfSession) -> Sequence[Card]:
    """Return the cards that wait for a person, oldest first."""
    return await service.pending(asked.session)


@handles("show", ById, card_entry)
async def show(service: OperatorService, caller: Caller, asked: ById) -> Card:
    return await service.card(asked.id)


@handles("approve", Approve, _answered_entry)
async def approve(service: OperatorService, caller: Caller, asked: Approve) -> Answered:
    return await _decide(service, asked.id, caller.verdict(Decision.APPROVE, asked.text))


@handles("reject", Reject, _answered_entry)
async def reject(service: OperatorService, caller: Caller, asked: Reject) -> Answered:
    return await _decide(service, asked.id, caller.verdict(Decision.REJECT, asked.reason or caller.default_reason))


@handles("answer", Answer, _answered_entry)
async def answer(service: OperatorService, caller: Caller, asked: Answer) -> Answered:
    if asked.decision == "refine" and asked.text is None:
        raise InvalidArguments("refine needs the text that the agent should follow")
    _, kind = await service.identify(asked.id)
    decision, of_standby = ANSWERS[asked.decision]
    verdict = caller.verdict(of_standby if kind is CardKind.STANDBY else decision, asked.text)
    return await _decide(service, asked.id, verdict)


async def _decide(service: OperatorService, prefix: str, verdict: Verdict) -> Answered:
    id, kind = await service.identify(prefix)
    if verdict.decision not in CHOICES[kind]:
        raise InvalidState(
            f"{id} is a {kind.value} card, which {verdict.decision.value} does not answer; "
            f"use {how_to_answer(kind, id)}"
        )
    # By its full id: meanwhile another request may have come to share the prefix.
    after = await service.decide(id, verdict)
    won = after.decided
    if won is not None and won.verdict_id == verdict.id and won.decision != verdict.decision.value:
        raise AlreadyDecided(f"this verdict id stands for another act ({won.decision}); give each act its own")
    return Answered(after, verdict.decision)


def how_to_answer(kind: CardKind, request_id: str) -> str:
    """Return the command that answers a card of this kind, as part of a sentence."""
    match kind:
        case CardKind.APPLY:
            return "an editor to put the files right: the agent's next check_diff settles it"
        case CardKind.STEER | CardKind.TASK:
            return f"take-back {request_id} while it is queued: it goes to the agent by itself"
    return " or ".join(HOW_TO_ANSWER[kind]).format(id=request_id)
