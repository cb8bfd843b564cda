"""The decision log: verdicts that were carried out on objects without a verdict of their own (alerts, stuck applies).

Each is recorded in the transaction of its effect, under its id, so that a repeated verdict has no second effect.
"""

from __future__ import annotations

from intercom.model.verdict import Verdict
from intercom.sessions.actor import SessionActor
from intercom.store import calls
from intercom.store.messages import Database

_TOOL = "verdict"


def was(db: Database, verdict: Verdict) -> bool:
    """Return whether this verdict was carried out."""
    return calls.answer(db, _name(verdict)) is not None


def keep(db: Database, session: SessionActor, verdict: Verdict) -> None:
    """Record that the verdict was carried out, in the transaction of its effect."""
    calls.record(db, _name(verdict), session.id, _TOOL, {"decision": verdict.decision.value}, session.now())


def _name(verdict: Verdict) -> str:
    # Not the id alone: under it, a chat reply records its interpretation before it is carried out.
    return f"{verdict.id}/given"
