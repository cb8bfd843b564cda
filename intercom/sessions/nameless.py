"""Sessions of anonymous clients: one is opened for a call, and found again by its request's id."""

from __future__ import annotations

from datetime import datetime

from intercom.model.errors import NotFound
from intercom.model.session import Session, SessionStatus
from intercom.sessions import agent_keys
from intercom.store import approvals, audit, journal, requests, sessions
from intercom.store.messages import Database

_OPEN = (SessionStatus.CREATED, SessionStatus.ACTIVE, SessionStatus.PAUSED, SessionStatus.INTERRUPTED)


def owner(db: Database, request_id: str) -> Session:
    """Return the session of a request that an anonymous client made. Raises NotFound also for another agent's request:
    knowing its id gives no access to it."""
    request = requests.find(db, request_id)
    session = None if request is None else sessions.get(db, request.session_id)
    if session is None or not agent_keys.is_nameless(session.agent_key):
        raise NotFound(f"no request of this session has the id {request_id!r}", code="request_not_found")
    return session


def is_spent(db: Database, session: Session) -> bool:
    """Return whether this anonymous session holds nothing that can be asked for any more."""
    if session.status not in _OPEN or not agent_keys.is_nameless(session.agent_key):
        return False
    held = any(entry.session_id == session.id for entry in journal.open(db))
    asked = requests.pending(db, session.id) or requests.undelivered(db, session.id)
    return not held and not asked and not approvals.is_one_unspent(db, session.id)


def end(db: Database, id: str, at: datetime) -> bool:
    """End the session of this id if it is spent. No call waits in it, so nobody is told."""
    session = sessions.get(db, id)
    if session is None or not is_spent(db, session):
        return False
    if sessions.set_status(db, id, session.status, SessionStatus.TERMINATED, at) is None:
        return False
    audit.record(db, at, "session_terminated", id, "intercom", "its caller gave no name, and has what it asked for")
    return True


def spent(db: Database) -> tuple[Session, ...]:
    """Return all spent sessions. In some of them a call may just have begun."""
    return tuple(session for session in sessions.live(db) if is_spent(db, session))
