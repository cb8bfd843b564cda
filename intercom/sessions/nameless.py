"""Sessions of callers that say nothing of themselves: one is opened for a call, and found by what that asked for."""

from __future__ import annotations

from datetime import datetime

from intercom.model.errors import NotFound
from intercom.model.session import Session, SessionStatus
from intercom.sessions import agent_keys
from intercom.store import approvals, audit, journal, requests, sessions
from intercom.store.messages import Database

_OPEN = (SessionStatus.CREATED, SessionStatus.ACTIVE, SessionStatus.PAUSED, SessionStatus.INTERRUPTED)


def owner(db: Database, request_id: str) -> Session:
    """The session of a request that a caller without a name made. Raises NotFound for any other agent's, too: knowing
    an id of its makes nobody that agent."""
    request = requests.find(db, request_id)
    session = None if request is None else sessions.get(db, request.session_id)
    if session is None or not agent_keys.is_nameless(session.agent_key):
        raise NotFound(f"no request of this session has the id {request_id!r}", code="request_not_found")
    return session


def is_spent(db: Database, session: Session) -> bool:
    """Whether nothing in it can be asked for any more."""
    if session.status not in _OPEN or not agent_keys.is_nameless(session.agent_key):
        return False
    held = any(entry.session_id == session.id for entry in journal.open(db))
    asked = requests.pending(db, session.id) or requests.undelivered(db, session.id)
    return not held and not asked and not approvals.is_one_unspent(db, session.id)


def end(db: Database, id: str, at: datetime) -> bool:
    """End the session of this id if it is spent; nobody waits in it, so nobody has to be told."""
    session = sessions.get(db, id)
    if session is None or not is_spent(db, session):
        return False
    if sessions.set_status(db, id, session.status, SessionStatus.TERMINATED, at) is None:
        return False
    audit.record(db, at, "session_terminated", id, "intercom", "its caller gave no name, and has what it asked for")
    return True


def spent(db: Database) -> tuple[Session, ...]:
    """All that are spent; in some of them a call may only just have begun."""
    return tuple(session for session in sessions.live(db) if is_spent(db, session))
