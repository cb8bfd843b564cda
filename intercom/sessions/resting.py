"""Idle rules: which sessions' actors may stop."""

from __future__ import annotations

from intercom.model.child import ChildState
from intercom.model.session import SessionStatus
from intercom.store import children, journal, requests, sessions, stalls
from intercom.store.messages import Database


def to_stop(db: Database, running: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Return those of these sessions that are over or abandoned and hold nothing. Each comes with the agent key that
    keeps it running while that agent is connected, or None."""
    held = {entry.session_id for entry in journal.open(db)}
    found = []
    for session in sessions.resting(db, running):
        if session.id in held or requests.pending(db, session.id) or stalls.active(db, session.id):
            continue
        elsewhere = session.agent_key is not None and sessions.by_agent(db, session.agent_key)
        is_over = session.status is SessionStatus.TERMINATED and elsewhere
        child = children.get(db, session.id)
        # Over HTTP no disconnect is seen, and an agent that people started has no other session to come back to.
        has_ended = child is not None and child.state is ChildState.OVER
        found.append((session.id, None if is_over or has_ended else session.agent_key))
    return found
