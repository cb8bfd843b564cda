"""Takeover: which abandoned session an agent may take over, and how it becomes its own.

A client that starts a process for each call does not take over: its next process continues the session of an earlier
one for as long as it is connected, and only by a request that is in it.

The functions run in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from intercom.model.errors import InvalidState, NotFound, Paused, Unauthorized
from intercom.model.process import AgentProcessState
from intercom.model.session import Session, SessionStatus
from intercom.sessions.agent_keys import is_its_own, is_of_process
from intercom.sessions.messages import Agent, FindEarlier
from intercom.store import audit, instructions, requests, sessions
from intercom.store.apply_journal import journal
from intercom.store.processes import agent_processes
from intercom.store.requests import approvals
from intercom.store.writer_messages import Database


def choose(
    db: Database,
    agent: Agent,
    own: str,
    wanted: str | None,
    is_live: Callable[[str | None], bool],
    has_role: Callable[[str], bool] = lambda _session_id: False,
) -> Session:
    """Return the session that the agent gets: the one it names, else the newest abandoned one of the same client, else
    its own. Sessions of agents with a permanent name and of anonymous calls cannot be taken over, even by id, and
    neither can those with a role of their own. Raises InvalidState, NotFound, Unauthorized or Paused."""

    def is_anyones(session: Session) -> bool:
        return any(map(is_live, (session.agent_key, *who_continued(db, session, agent))))

    if agent.session_id is not None:
        if wanted not in (None, own):
            raise InvalidState(f"this agent was started for session {own}; it cannot take over another")
        kept = sessions.get(db, own)
        assert kept is not None, "it was claimed just now"
        return kept
    if wanted is not None and wanted != own:
        require_going_on(sessions.get(db, own))
        session = sessions.get(db, wanted)
        if session is None or session.workspace_root != agent.workspace:
            raise NotFound(f"no session of this workspace has the id {wanted!r}")
        if session.status is SessionStatus.TERMINATED:
            raise InvalidState(f"session {wanted} was ended; continue in your own")
        if has_role(wanted):
            raise Unauthorized(
                f"session {wanted} has a role of its own in the gateway, which only its own agent has; continue in your"
                " own, or ask a person to assign the role to that"
            )
        if is_its_own(session.agent_key) or _has_process(db, wanted):
            raise Unauthorized(f"session {wanted} is kept for its own agent, which may come back; continue in your own")
        if is_anyones(session):
            raise InvalidState(
                f"session {wanted} has a live agent; only a session whose agent is gone can be taken over"
            )
        return session
    mine = sessions.get(db, own)
    assert mine is not None, "its agent was let in just now"
    if wanted is not None or mine.is_paused or _has_work(db, mine):
        return mine
    for session in sessions.adoptable(db, agent.workspace, agent.client_name):
        is_free = not is_its_own(session.agent_key) and not has_role(session.id)
        if session.id != own and is_free and not is_anyones(session):
            return session
    return mine


def of_earlier_process(db: Database, asked: FindEarlier) -> tuple[tuple[Session, tuple[str, ...]], ...]:
    """Return the sessions that an earlier process of the agent's client may have left, of which the agent may continue
    one: that of the request or task it names, else those that ask for the change it proposes, the newest first. Each
    comes with the processes that have continued it (as `who_continued`).

    The process may still run, which only the caller can tell. An agent with a session of its own proposes there. Left
    out are sessions of another client or workspace, of
    an agent with a name, of people's agents, and those that have ended: knowing an id gives no access to them.
    """
    agent = asked.agent
    mine = sessions.by_agent(db, agent.key)
    if agent.client_name is None or (mine is not None and mine.is_paused):
        # A paused agent must stay where it is paused.
        return ()
    if asked.request_id is not None or asked.task_id is not None:
        request = requests.find(db, asked.request_id or "") or requests.tasks.get(db, asked.task_id or "")
        ids: tuple[str, ...] = () if request is None else (request.session_id,)
    elif asked.proposed is not None and mine is None:
        text, file_path, risk = asked.proposed.text, asked.proposed.file_path, asked.proposed.risk_level
        ids = approvals.sessions_that_ask(db, text, file_path, risk, agent.workspace, agent.client_name)
    else:
        return ()
    found = (sessions.get(db, id) for id in ids)
    fitting = (session for session in found if session is not None and _may_continue(db, agent, session))
    return tuple((session, who_continued(db, session, agent)) for session in fitting)


def _may_continue(db: Database, agent: Agent, session: Session) -> bool:
    is_of_client = (session.workspace_root, session.client_name) == (agent.workspace, agent.client_name)
    is_open = session.status is not SessionStatus.TERMINATED
    is_of_another = is_of_process(session.agent_key) and session.agent_key != agent.key
    return is_of_client and is_open and is_of_another and not _has_process(db, session.id)


def note_continued(db: Database, session: Session, by: str, at: datetime) -> None:
    """Record that a later process continues a session."""
    what = "a later process of its client continues it"
    data = {"was": session.agent_key, "by": by}
    audit.record(db, at, audit.SESSION_CONTINUED, session.id, "agent", what, data)


def who_continued(db: Database, session: Session, agent: Agent) -> tuple[str, ...]:
    """Return the keys of the other processes that have continued a session, also in earlier runs of the server. One of
    them that still runs may come back to it."""
    return tuple(key for key in audit.continued_by(db, session.id, session.agent_key) if key != agent.key)


def require_going_on(mine: Session | None) -> None:
    """Raise Paused if the agent's session is paused: it must stay there."""
    if mine is not None and mine.is_paused:
        raise Paused(f"this session was paused by {mine.paused_by or 'an operator'}; nothing was done")


def _has_process(db: Database, session_id: str) -> bool:
    """Return whether people started an agent for this session that is not over. It may still connect, and its end may
    end the session's requests."""
    agent_process = agent_processes.get(db, session_id)
    return agent_process is not None and agent_process.state is not AgentProcessState.OVER


def holds_requests(db: Database, session_id: str) -> bool:
    """Return whether there is still something to ask this session for: a request that is pending or not delivered, an
    approval that may still be applied, or an apply that is not finished."""
    return bool(
        requests.pending(db, session_id)
        or requests.undelivered(db, session_id)
        or approvals.is_one_unspent(db, session_id)
        or any(entry.session_id == session_id for entry in journal.unfinished(db))
    )


def _has_work(db: Database, session: Session) -> bool:
    return bool(session.progress_snapshot) or holds_requests(db, session.id)


def hand_over(db: Database, agent: Agent, own: str, chosen: str, at: datetime) -> Session:
    """Bind the chosen session to the agent; its own session ends if it holds nothing. Raises InvalidState."""
    mine = sessions.get(db, own)
    if mine is not None and mine.status is not SessionStatus.TERMINATED and not _has_work(db, mine):
        sessions.set_status(db, own, {mine.status}, SessionStatus.TERMINATED, at)
        audit.record(db, at, "session_terminated", own, "agent", f"it held nothing, and its agent took over {chosen}")
    session = sessions.bind_agent(db, chosen, agent.key, at, agent.client_name)
    if session is None:
        raise InvalidState(f"session {chosen} ended just now; continue in your own")
    if session.status is SessionStatus.INTERRUPTED:
        session = sessions.set_status(db, chosen, {session.status}, session.status_when_here, at) or session
    # Instructions for the agent follow it into the chosen session.
    instructions.move(db, own, chosen)
    audit.record(db, at, "session_adopted", chosen, "agent", f"taken over from {own}", {"was": own})
    return session
