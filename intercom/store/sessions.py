"""Queries on agent sessions."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import InvalidState
from intercom.model.session import ProgressItem, Session, SessionMode, SessionStatus, may_become
from intercom.store import rows
from intercom.store.rows import Table

_SESSIONS = Table("session", Session)
_PROGRESS = rows.json_codec(tuple[ProgressItem, ...])


def insert(db: Database, session: Session) -> bool:
    """Insert a new session. Returns False and changes nothing if its id exists. Raises InvalidState if the agent
    already has another session that is not terminated."""
    if session.agent_key is not None and session.status is not SessionStatus.TERMINATED:
        other = by_agent(db, session.agent_key)
        if other is not None and other.id != session.id:
            raise InvalidState(f"the agent already has session {other.id}; bind or terminate that one")
    return _SESSIONS.insert(db, session)


def get(db: Database, id: str) -> Session | None:
    """Return the session with this id, or None."""
    return _SESSIONS.get(db, id)


def by_agent(db: Database, agent_key: str) -> Session | None:
    """Return the agent's session that is not terminated, or None."""
    return _SESSIONS.first(db, "agent_key = ? and status <> 'terminated'", (agent_key,))


def live(db: Database) -> tuple[Session, ...]:
    """Return all sessions that are not terminated, oldest first."""
    return _SESSIONS.select(db, "status <> 'terminated' order by created_at, rowid")


def agent_keys(db: Database) -> tuple[str, ...]:
    """Return the keys of all agents with a session that is not terminated."""
    return tuple(
        rows.column(db, "select agent_key from session where status <> 'terminated' and agent_key is not null")
    )


def ids(db: Database) -> tuple[str, ...]:
    """Return the ids of all sessions."""
    return tuple(rows.column(db, "select id from session"))


def inactive(db: Database, ids: Collection[str]) -> tuple[Session, ...]:
    """Return those of the given sessions that are terminated or interrupted, oldest first."""
    return _SESSIONS.select(
        db,
        "id in (select value from json_each(?)) and status in ('terminated', 'interrupted') order by created_at, rowid",
        (rows.json_text(list(ids)),),
    )


def by_status(db: Database, status: SessionStatus) -> tuple[Session, ...]:
    """Return all sessions in one status, oldest first."""
    return _SESSIONS.select(db, "status = ? order by created_at, rowid", (status.value,))


def with_prefix(db: Database, prefix: str) -> tuple[str, ...]:
    """Return the ids that begin with the literal `prefix`, sorted; at most 50."""
    return _SESSIONS.with_prefix(db, prefix)


#: The statuses of a session without an agent: it has disconnected or never connected.
WITHOUT_AGENT = (SessionStatus.CREATED, SessionStatus.INTERRUPTED)


def abandoned_before(db: Database, cutoff: datetime, limit: int) -> tuple[str, ...]:
    """Return the sessions without an agent since before `cutoff`, the longest idle first. Leaves out a session whose
    agent process runs, or whose restore or apply is not finished."""
    return tuple(
        rows.column(
            db,
            f"select id from session where status in ({rows.placeholders(WITHOUT_AGENT)}) and updated_at < ?"
            " and id not in (select session_id from child where state <> 'over')"
            " and id not in (select session_id from apply_journal where state in ('staging', 'committed', 'stuck'))"
            " and id not in (select session_id from restore"
            " where state in ('asked', 'accepted', 'committed', 'handed_over', 'stuck'))"
            " order by updated_at, rowid limit ?",
            (*(status.value for status in WITHOUT_AGENT), clock.to_text(cutoff), limit),
        )
    )


def adoptable(db: Database, workspace_root: str, client_name: str | None) -> tuple[Session, ...]:
    """Return the sessions that an agent of this client in this workspace might adopt, the most recently active first.

    These are interrupted, active or paused; only the caller can tell which of the last two have a live agent. Leaves
    out a session whose agent process was started by a person and is not over: its agent may not have connected yet.
    """
    return _SESSIONS.select(
        db,
        "workspace_root = ? and client_name is ? and status in ('interrupted', 'active', 'paused')"
        " and id not in (select session_id from child where state <> 'over')"
        " order by updated_at desc, rowid desc",
        (workspace_root, client_name),
    )


def set_status(
    db: Database, id: str, expect: SessionStatus | Collection[SessionStatus], to: SessionStatus, at: datetime
) -> Session | None:
    """Move a session from `expect` (one status or several) to `to` and return it. Returns None if the session is
    unknown or in another status. Raises InvalidState if the transition table lacks the move."""
    expected = (expect,) if isinstance(expect, SessionStatus) else tuple(expect)
    for status in expected:
        if not may_become(status, to):
            raise InvalidState(f"a session that is {status} cannot become {to}")
    terminated_at = clock.to_text(at) if to is SessionStatus.TERMINATED else None
    won = rows.changed(
        db,
        "update session set status = ?, updated_at = max(updated_at, ?), terminated_at = ?"
        f" where id = ? and status in ({rows.placeholders(expected)})",
        (to.value, clock.to_text(at), terminated_at, id, *(status.value for status in expected)),
    )
    return get(db, id) if won else None


def pause(db: Database, id: str, by: str, at: datetime) -> Session | None:
    """Pause an active or interrupted session and return it. An interrupted one pauses when its agent returns.
    Returns None if the session is unknown, already paused, or in another status."""
    won = rows.changed(
        db,
        "update session set paused_by = ?, paused_at = ?, updated_at = max(updated_at, ?),"
        " status = case status when 'active' then 'paused' else status end"
        " where id = ? and paused_at is null and status in ('active', 'interrupted')",
        (by, clock.to_text(at), clock.to_text(at), id),
    )
    return get(db, id) if won else None


def unpause(db: Database, id: str, at: datetime) -> Session | None:
    """Resume a paused session and return it. Returns None if it is unknown, terminated or not paused."""
    won = rows.changed(
        db,
        "update session set paused_by = null, paused_at = null, updated_at = max(updated_at, ?),"
        " status = case status when 'paused' then 'active' else status end"
        " where id = ? and paused_at is not null and status <> 'terminated'",
        (clock.to_text(at), id),
    )
    return get(db, id) if won else None


def set_mode(db: Database, id: str, mode: SessionMode, at: datetime) -> SessionMode | None:
    """Set the notification mode and return the previous one. Returns None if unknown or terminated."""
    before = get(db, id)
    won = rows.changed(
        db,
        "update session set mode = ?, updated_at = max(updated_at, ?) where id = ? and status <> 'terminated'",
        (mode.value, clock.to_text(at), id),
    )
    return before.mode if won and before is not None else None


def set_prompt(db: Database, id: str, prompt: str) -> bool:
    """Set the prompt that the agent was started with. Returns False if the session is unknown or terminated."""
    return rows.changed(db, "update session set prompt = ? where id = ? and status <> 'terminated'", (prompt, id))


def set_progress(db: Database, id: str, progress: tuple[ProgressItem, ...] | None, at: datetime) -> bool:
    """Store the agent's latest progress. Returns False if the session is unknown or terminated."""
    return rows.changed(
        db,
        "update session set progress_snapshot = ?, updated_at = max(updated_at, ?)"
        " where id = ? and status <> 'terminated'",
        (None if progress is None else _PROGRESS.write(progress), clock.to_text(at), id),
    )


def set_stall(db: Database, id: str, nudge_count: int, paused: bool) -> bool:
    """Store the stall detector's nudge count and pause flag. Returns False if unknown or terminated."""
    return rows.changed(
        db,
        "update session set nudge_count = ?, stall_paused = ? where id = ? and status <> 'terminated'",
        (nudge_count, int(paused), id),
    )


def bind_agent(db: Database, id: str, agent_key: str, at: datetime, client_name: str | None = None) -> Session | None:
    """Bind an agent to a session and return the session. The agent loses any other session it had. Stores
    `client_name` too, if given. Returns None and changes nothing if the session is unknown or terminated."""
    session = get(db, id)
    if session is None or session.status is SessionStatus.TERMINATED:
        return None
    rows.changed(
        db,
        "update session set agent_key = null where agent_key = ? and id <> ? and status <> 'terminated'",
        (agent_key, id),
    )
    rows.changed(
        db,
        "update session set agent_key = ?, client_name = coalesce(?, client_name), updated_at = max(updated_at, ?)"
        " where id = ? and status <> 'terminated'",
        (agent_key, client_name, clock.to_text(at), id),
    )
    return get(db, id)


def touch(db: Database, id: str, at: datetime, last_tool: str | None = None) -> bool:
    """Record agent activity. Returns False if the session is unknown, terminated, or was active later than `at`."""
    text = clock.to_text(at)
    return rows.changed(
        db,
        "update session set updated_at = ?, last_tool = coalesce(?, last_tool)"
        " where id = ? and updated_at <= ? and status <> 'terminated'",
        (text, last_tool, id, text),
    )
