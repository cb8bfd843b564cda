"""Computes metrics from a request's row. All functions are pure."""

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
    """Return the metric of a settled request. Without a decision, it ended `now`."""
    verdict = request.decided
    if verdict is None:
        return Settled(request.id, kind(request), request.status.value, "none", _between(request.created_at, now))
    waited = _between(request.created_at, verdict.at)
    return Settled(request.id, kind(request), verdict.decision, verdict.channel, waited)


def delivered(request: Asked) -> Delivered | None:
    """Return the metric of an answer that reached the agent; None if there is no answer, or it has not arrived."""
    if request.decided is None or request.delivered_at is None:
        return None
    return Delivered(request.id, kind(request), _between(request.decided.at, request.delivered_at))


def answered(card: Card, verdict: Verdict, now: datetime) -> Settled | None:
    """Return the metric of a person's answer that no call waits for: to an alert, a policy, a stuck apply. None for
    requests, which are measured by `settled`. Each answer to an alert counts."""
    if card.kind in _REQUESTS:
        return None
    waited = _between(card.created_at, now)
    return Settled(verdict.id, card.kind, verdict.decision.value, verdict.channel, waited)


def kind(request: Asked) -> CardKind:
    """Return the request's kind of card."""
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
