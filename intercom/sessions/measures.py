"""From a request's row to what is counted of it. Pure."""

from __future__ import annotations

from datetime import datetime

from intercom.model.approval import ApprovalRequest
from intercom.model.card import Card, CardKind
from intercom.model.measure import Delivered, Settled
from intercom.model.prompt import ContinuationPrompt, Wait
from intercom.model.verdict import Verdict
from intercom.sessions.outcomes import Asked

_REQUESTS = frozenset({CardKind.APPROVAL, CardKind.PROMPT, CardKind.STANDBY})


def settled(request: Asked, now: datetime) -> Settled:
    """That the request came to its end; one that nobody answered ended `now`."""
    verdict = request.decided
    if verdict is None:
        return Settled(request.id, kind(request), request.status.value, "none", _between(request.created_at, now))
    waited = _between(request.created_at, verdict.at)
    return Settled(request.id, kind(request), verdict.decision, verdict.channel, waited)


def delivered(request: Asked) -> Delivered | None:
    """That its answer reached the agent; None where it was no answer, or has not."""
    if request.decided is None or request.delivered_at is None:
        return None
    return Delivered(request.id, kind(request), _between(request.decided.at, request.delivered_at))


def answered(card: Card, verdict: Verdict, now: datetime) -> Settled | None:
    """That a person answered what no call waits for: an alert, a policy, an apply. None for requests, which tell
    themselves how they end. Each word on an alert is one."""
    if card.kind in _REQUESTS:
        return None
    waited = _between(card.created_at, now)
    return Settled(verdict.id, card.kind, verdict.decision.value, verdict.channel, waited)


def kind(request: Asked) -> CardKind:
    """What sort of request it is."""
    match request:
        case ApprovalRequest():
            return CardKind.APPROVAL
        case ContinuationPrompt():
            return CardKind.PROMPT
        case Wait():
            return CardKind.STANDBY


def _between(before: datetime, after: datetime) -> float:
    # The wall clock may have been set back meanwhile.
    return max(0.0, (after - before).total_seconds())
