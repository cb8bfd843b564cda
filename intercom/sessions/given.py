"""Verdicts on what keeps no verdict itself (an alert, an apply that is stuck): which were carried out already.

Kept with the effect, in its transaction, under the verdict's id: the same verdict delivered again is no second act.
"""

from __future__ import annotations

from intercom.model.verdict import Verdict
from intercom.sessions.actor import SessionActor
from intercom.store import calls
from intercom.store.messages import Database

_TOOL = "verdict"


def was(db: Database, verdict: Verdict) -> bool:
    """Whether this verdict has had its effect."""
    return calls.answer(db, _name(verdict)) is not None


def keep(db: Database, session: SessionActor, verdict: Verdict) -> None:
    """Keep that it has, in the transaction of the effect."""
    calls.record(db, _name(verdict), session.id, _TOOL, {"decision": verdict.decision.value}, session.now())


def _name(verdict: Verdict) -> str:
    # Not the id alone: under that a reply in a chat keeps what it was understood to mean, before it is done.
    return f"{verdict.id}/given"
