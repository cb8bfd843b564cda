"""The records of a restore, each written in one transaction."""

from __future__ import annotations

import hashlib
from datetime import datetime

from attrs import evolve

from intercom.model.errors import AlreadyDecided, IntercomError, InvalidArguments, NotFound
from intercom.model.restore import Restore, RestoreState
from intercom.model.verdict import Decided, Decision, Verdict, signature_data
from intercom.sessions.restore_cards import of_restore
from intercom.sessions.signatures import Signatures
from intercom.store import audit, restores
from intercom.store.messages import Database


def put(db: Database, restore: Restore, at: datetime) -> tuple[Restore, list[Restore]]:
    """Record a question, and close the questions about the same session that it replaces."""
    closed = []
    if restores.insert(db, restore):
        for other in restores.waiting(db):
            if other.id == restore.id or other.session_id != restore.session_id:
                continue
            note = f"asked again as {restore.id}"
            if other.state is RestoreState.ASKED and restores.advance(
                db, other.id, RestoreState.ASKED, RestoreState.OUTDATED, at, note=note
            ):
                closed.append(evolve(other, state=RestoreState.OUTDATED, note=note))
        data = {"restore_id": restore.id, "checkpoint_id": restore.checkpoint_id, "channel": restore.asked_via}
        audit.record(db, at, "restore_asked", restore.session_id, restore.asked_by, restore.label or "(no label)", data)
    kept = restores.get(db, restore.id)
    assert kept is not None, "just inserted"
    return kept, closed


def commit(db: Database, restore: Restore, steps: str, at: datetime) -> Restore:
    """Commit a restore: from here on it is carried through. Raises IntercomError (`unavailable`) while another one of
    the session is. A second restore would end the session again and orphan the first successor."""
    others = [each for each in restores.under_way(db) if each.session_id == restore.session_id]
    if any(each.state is RestoreState.COMMITTED and each.id != restore.id for each in others) or (
        restores.newest_of_line(db, restore.session_id) != restore.session_id
    ):
        raise IntercomError("another restore of this session is being carried out", code="unavailable")
    return move(db, restore, RestoreState.COMMITTED, None, steps, at)


def outdate(db: Database, restore: Restore, anew: Restore, why: str, at: datetime) -> Restore:
    note = f"{why} since; asked again as {anew.id}"
    restores.advance(db, restore.id, RestoreState.ACCEPTED, RestoreState.OUTDATED, at, note=note)
    restores.insert(db, anew)
    old = restores.get(db, restore.id)
    assert old is not None
    return old


def move(
    db: Database, restore: Restore, to: RestoreState, note: str | None, steps: str | None, at: datetime
) -> Restore:
    if restores.advance(db, restore.id, restore.state, to, at, note=note, steps=steps):
        who = restore.decided.by if restore.decided is not None else "intercom"
        data = {"restore_id": restore.id, "state": to.value}
        if steps is not None:
            data["steps"] = steps_hash(steps)
        audit.record(db, at, "restore", restore.session_id, who, note or to.value, data)
    moved = restores.get(db, restore.id)
    assert moved is not None
    return moved


def steps_hash(text: str) -> str:
    """Return the hash of the steps that a restore was committed to."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def unfinished(db: Database) -> tuple[Restore, ...]:
    return (*restores.waiting(db), *restores.under_way(db), *restores.given_up(db))


def decide(db: Database, id: str, verdict: Verdict, at: datetime, signatures: Signatures) -> tuple[bool, Restore]:
    """Return whether this verdict won, now or before, and the restore as it is then."""
    restore = restores.get(db, id)
    if restore is None:
        raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
    if verdict.decision not in (Decision.PROCEED, Decision.CANCEL):
        raise InvalidArguments(f"{verdict.decision.value} is no answer to a restore; use proceed or cancel")
    if restore.decided is not None and restore.decided.verdict_id == verdict.id:
        return True, restore
    to = {
        (RestoreState.ASKED, Decision.PROCEED): RestoreState.ACCEPTED,
        (RestoreState.ASKED, Decision.CANCEL): RestoreState.CANCELLED,
        (RestoreState.STUCK, Decision.PROCEED): RestoreState.HANDED_OVER,
        (RestoreState.STUCK, Decision.CANCEL): RestoreState.GIVEN_UP,
    }.get((restore.state, verdict.decision))
    late = restore.state is RestoreState.ASKED and restore.expires_at is not None and restore.expires_at <= at
    if to is None or late:
        return False, restore
    signature = signatures.admit(verdict, of_restore(restore), at)
    decided = Decided.of(verdict, at, signature)
    won = restores.advance(db, id, restore.state, to, at, decided=decided)
    after = restores.get(db, id)
    assert after is not None
    if won:
        data = {
            "restore_id": id,
            "channel": verdict.channel,
            "origin": verdict.origin_data,
            "signature": signature_data(signature),
        }
        audit.record(db, at, "decided", restore.session_id, verdict.by, verdict.decision.value, data)
    return won, after


def expire(db: Database, id: str, at: datetime) -> Restore | None:
    """Close a question whose time is over by the wall clock, and return it as it is then."""
    restore = restores.get(db, id)
    if restore is None or restore.state is not RestoreState.ASKED:
        return restore
    if restore.expires_at is not None and restore.expires_at > at:
        return restore
    restores.advance(db, id, RestoreState.ASKED, RestoreState.EXPIRED, at, note="nobody said whether to proceed")
    return restores.get(db, id)


def too_late(restore: Restore) -> AlreadyDecided:
    decided = restore.decided
    who = "" if decided is None else f": {decided.decision} by {decided.by} ({decided.channel})"
    return AlreadyDecided(
        f"restore {restore.id} is no longer open, it is {restore.state.value.replace('_', ' ')}{who};"
        " nothing was changed",
        request_id=restore.id,
        status=restore.state.value,
    )
