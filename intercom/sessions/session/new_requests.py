"""A new request of a session: it is recorded once, if there is room for it, and with its decision if it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from intercom.model import crash_points
from intercom.model.card import end_of
from intercom.model.decision import Decided, Decision
from intercom.model.errors import TooManyPending
from intercom.model.request import InstructionWait
from intercom.model.visible_text import count
from intercom.sessions import request_kinds
from intercom.sessions.request_kinds import Asked
from intercom.sessions.session import grant_checks
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.store import requests
from intercom.store.writer_messages import Database

R = TypeVar("R", bound=Asked)
#: Decides a new request in the transaction that records it. Returns it as it is to be recorded, or None.
Decide = Callable[[Database, R], tuple[R, Decided] | None]

#: How many requests one session may have pending although the total limit is reached, up to twice that limit. An agent
#: with few requests is not blocked by one with many.
SHARE = 5


async def record_request(
    session: SessionActor,
    request: R,
    earlier: Callable[[Database], Asked | None],
    *,
    rule: str | None = None,
    decided: Decided | None = None,
    decide: Decide[R] | None = None,
) -> tuple[R, bool]:
    """Record a request and let it be shown, or find the `earlier` one that it repeats. Returns what is recorded,
    and whether it is this one. `decided` decides it at once, by the policy's `rule` if there is one. Without it,
    `decide` may do so in the transaction, by a grant. Raises TooManyPending."""
    kept, is_new = await session.transact(find_or_record, session, request, earlier, decided, rule, decide)
    # Recorded before it is shown: after a crash in between, the restart shows it.
    crash_points.reach("request.recorded")
    if is_new:
        session.follow(kept)
        if rule is not None:
            session.change(SessionState.queue, request_kinds.late(kept))
            session.note_auto_approved(request_kinds.of(kept).title(kept), rule)
        elif kept.decided is not None and kept.decided.channel == request_kinds.GRANTED:
            session.change(SessionState.queue, request_kinds.late(kept))
            await grant_checks.passed(session, kept.decided.text or "", request_kinds.of(kept).title(kept))
    return kept, is_new


def find_or_record(
    db: Database,
    session: SessionActor,
    request: R,
    earlier: Callable[[Database], Asked | None],
    decided: Decided | None = None,
    rule: str | None = None,
    decide: Decide[R] | None = None,
) -> tuple[R, bool]:
    """Do as `record_request` in the caller's transaction, without showing anything."""
    found = earlier(db)
    if not isinstance(found, type(request)):
        if decided is None and decide is not None:
            request, decided = decide(db, request) or (request, None)
        return insert(db, session, request, decided, rule), True
    if isinstance(found, InstructionWait):
        session.deps.signatures.note_ended(db, found)
    # It may be this request's row, if the writer crashed between its commit and its answer.
    return found, found.id == request.id


def insert(
    db: Database,
    session: SessionActor,
    request: R,
    decided: Decided | None = None,
    rule: str | None = None,
    **data: object,
) -> R:
    """Record a new request, with its decision if it is decided at once, and return it. `data` is for the audit entry.
    Raises TooManyPending."""
    kind = request_kinds.of(request)
    if decided is None:
        _require_room(db, session)
    kind.table.insert(db, request)
    title, about = kind.title(request), {"request_id": request.id, **kind.audited(request), **data}
    session.record(db, "agent", kind.asked, title, **about)
    if decided is not None:
        kind.table.decide(db, request.id, end_of(kind.card, Decision(decided.decision)), decided)
        session.record(db, decided.by, "auto_approved", title, **about, matched_rule=rule or decided.text)
    kept = kind.table.get(db, request.id)
    assert isinstance(kept, type(request)), "just inserted"
    return kept


def _require_room(db: Database, session: SessionActor) -> None:
    """Raise TooManyPending if no further request may wait. Runs in the transaction that would record the request, so
    that nothing of a refused one remains."""
    limits = session.deps.config.limits
    own = requests.waiting(db, session.id)
    if own >= limits.pending_per_session:
        raise TooManyPending(
            f"{_waiting(own, 'request of this session', 'requests of this session')} for a person already, which is the"
            " limit: wait for those, by their request_id, and ask again when some are answered; nothing was recorded"
        )
    everybody = requests.waiting(db)
    if everybody >= limits.pending_total and (own >= SHARE or everybody >= 2 * limits.pending_total):
        raise TooManyPending(
            f"{_waiting(everybody, 'request')} for people already, of all agents together, which is the limit: ask"
            " again when some are answered; nothing was recorded"
        )


def _waiting(number: int, noun: str, plural: str = "") -> str:
    return f"{count(number, noun, plural)} {'waits' if number == 1 else 'wait'}"
