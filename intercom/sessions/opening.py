"""Opens a session for an agent that connects by itself."""

from __future__ import annotations

from datetime import datetime

from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.sessions.reception_messages import Agent
from intercom.store import audit, sessions
from intercom.store.messages import Database


def find_or_open(db: Database, agent: Agent, id: str, mode: SessionMode, at: datetime) -> Session:
    """Return the session of this agent; if it has none, open one with this id."""
    found = sessions.by_agent(db, agent.key)
    if found is not None:
        return found
    session = Session(
        id=id,
        owner_user_id="",
        workspace_root=agent.workspace,
        status=SessionStatus.CREATED,
        mode=mode,
        created_at=at,
        updated_at=at,
        agent_key=agent.key,
        client_name=agent.client_name,
        channel_id=agent.channel_id,
    )
    sessions.insert(db, session)
    audit.record(
        db, at, "session_opened", id, "agent", agent.client_name or "an agent", {"workspace_root": agent.workspace}
    )
    return session
