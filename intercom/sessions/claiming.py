"""Claiming: an agent that names a session made for an agent gets that session.

A person started such a session, or it was restored; it exists before its agent does. All connections that name its id
are one agent's, so the agent finds its session again after any restart.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from intercom.model.errors import InvalidState, NotFound, Unauthorized
from intercom.model.session import Session, SessionStatus
from intercom.sessions.reception_messages import Agent, key_of
from intercom.store import audit, sessions
from intercom.store.messages import Database

_ELSE = "unset INTERCOM_SESSION_ID (or leave out --session-id) to work in a session of your own"


def claim(db: Database, agent: Agent, at: datetime, is_connected: Callable[[str | None], bool]) -> Session:
    """Bind the session that the agent names to it, in the caller's transaction, and return its new row.

    Raises NotFound for an unknown id, and InvalidState if the session is over or its other agent is connected. Raises
    Unauthorized if an agent opened the session for itself. On an error nothing has changed.
    """
    assert agent.session_id is not None, "it names a session"
    session = sessions.get(db, agent.session_id)
    if session is None:
        raise NotFound(f"no session has the id {agent.session_id[:80]!r}; {_ELSE}")
    if session.status is SessionStatus.TERMINATED:
        raise InvalidState(f"session {session.id} was ended; stop, or {_ELSE}")
    if not is_for_claiming(session):
        raise Unauthorized(f"session {session.id} is another agent's, and not to be had by its id; {_ELSE}")
    if session.agent_key == agent.key:
        if session.client_name is not None or agent.client_name is None:
            return session
    elif is_connected(session.agent_key):
        raise InvalidState(f"session {session.id} has another agent, which is connected; {_ELSE}")
    bound = sessions.bind_agent(db, session.id, agent.key, at, agent.client_name)
    assert bound is not None, "it was not over a moment ago, in this transaction"
    audit.record(db, at, "session_claimed", session.id, "agent", agent.client_name or "an agent")
    return bound


def is_for_claiming(session: Session) -> bool:
    """Return whether a session was made for an agent to claim, and not opened by an agent."""
    return session.prompt is not None or session.agent_key == key_of(session.id)
