"""From a request's row to what is counted of it. Pure."""

from __future__ import annotations

from datetime import datetime

from intercom.model.approval import ApprovalRequest
from intercom.model.card import CardKind
from intercom.model.measure import Delivered, Settled
from intercom.model.prompt import ContinuationPrompt, Wait
from intercom.sessions.outcomes import Asked


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
