"""Agent sessions, and the alerts about agents that went quiet."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlite_utils import Database

from intercom.model.errors import InvalidState
from intercom.model.session import (
    SESSION_TRANSITIONS,
    STALL_TRANSITIONS,
    ProgressItem,
    Session,
    SessionMode,
    SessionStatus,
    StallAlert,
)
from intercom.store import audit, rows
from intercom.store.rows import Sql, States, Table

_SESSIONS = Table("session", Session, states=States("a session", "status", SESSION_TRANSITIONS))
_PROGRESS = rows.json_codec(tuple[ProgressItem, ...])

#: The statuses of a session without an agent: it has disconnected or never connected.
WITHOUT_AGENT = (SessionStatus.CREATED, SessionStatus.INTERRUPTED)

_OPEN = "id = :id and status <> 'terminated'"
#: The agent may have been active later than a change that is recorded now.
_LATER = Sql("max(updated_at, :at)")
_HAS_NO_PROCESS = "id not in (select session_id from spawned_agent where state <> 'over')"

get = _SESSIONS.get
with_prefix = _SESSIONS.with_prefix


def insert(db: Database, session: Session) -> bool:
    """Insert a new session. Returns False and changes nothing if its id exists. Raises InvalidState if the agent
    already has another session that is not terminated."""
    if session.agent_key is not None and session.status is not SessionStatus.TERMINATED:
        other = by_agent(db, session.agent_key)
        if other is not None and other.id != session.id:
            raise InvalidState(f"the agent already has session {other.id}; bind or terminate that one")
    return _SESSIONS.insert(db, session)


def by_agent(db: Database, agent_key: str) -> Session | None:
    """Return the agent's session that is not terminated, or None."""
    return _SESSIONS.first(db, "agent_key = ? and status <> 'terminated'", (agent_key,))


def client_name(db: Database, id: str) -> str | None:
    """Return the name that the client of a session claims; None if there is none, or no such session."""
    found = rows.value(db, "select client_name from session where id = ?", (id,))
    return None if found is None else str(found)


def live(db: Database) -> tuple[Session, ...]:
    """Return all sessions that are not terminated, oldest first."""
    return _SESSIONS.select(db, "status <> 'terminated' order by created_at, rowid")


def agent_keys(db: Database) -> tuple[str, ...]:
    """Return the keys of all agents with a session that is not terminated."""
    sql = "select agent_key from session where status <> 'terminated' and agent_key is not null"
    return tuple(rows.column(db, sql))


def ids(db: Database) -> tuple[str, ...]:
    """Return the ids of all sessions."""
    return tuple(rows.column(db, "select id from session"))


def inactive(db: Database, ids: Collection[str]) -> tuple[Session, ...]:
    """Return those of the given sessions that are terminated or interrupted, oldest first."""
    where = "id in (select value from json_each(?)) and status in ('terminated', 'interrupted')"
    return _SESSIONS.select(db, f"{where} order by created_at, rowid", (rows.json_text(list(ids)),))


def by_status(db: Database, status: SessionStatus) -> tuple[Session, ...]:
    """Return all sessions in one status, oldest first."""
    return _SESSIONS.select(db, "status = ? order by created_at, rowid", (status,))


#: A restore that is not over. It needs the session that it ends, and the one that it begins.
OPEN_RESTORE = "state in ('asked', 'accepted', 'committed', 'handed_over', 'stuck')"


def abandoned_before(db: Database, cutoff: datetime, limit: int) -> tuple[str, ...]:
    """Return the sessions without an agent since before `cutoff`, the longest idle first. Leaves out a session whose
    agent process runs, or whose restore or apply is not finished."""
    sql = (
        f"select id from session where status in ({rows.literals(WITHOUT_AGENT)}) and updated_at < ?"
        f" and {_HAS_NO_PROCESS}"
        " and id not in (select session_id from apply_journal where state in ('staging', 'committed', 'stuck'))"
        f" and id not in (select session_id from restore where {OPEN_RESTORE})"
        f" and id not in (select successor_id from restore where {OPEN_RESTORE})"
        " order by updated_at, rowid limit ?"
    )
    return tuple(rows.column(db, sql, (cutoff, limit)))


def adoptable(db: Database, workspace_root: str, client_name: str | None) -> tuple[Session, ...]:
    """Return the sessions that an agent of this client in this workspace might adopt, the most recently active first.

    These are interrupted, active or paused; only the caller can tell which of the last two have a live agent. Leaves
    out a session whose agent process was started by a person and is not over: its agent may not have connected yet.
    """
    where = "workspace_root = ? and client_name is ? and status in ('interrupted', 'active', 'paused')"
    order = "order by updated_at desc, rowid desc"
    return _SESSIONS.select(db, f"{where} and {_HAS_NO_PROCESS} {order}", (workspace_root, client_name))


def set_status(
    db: Database, id: str, expect: SessionStatus | Collection[SessionStatus], to: SessionStatus, at: datetime
) -> Session | None:
    """Move a session from `expect` (one status or several) to `to` and return it. Returns None if the session is
    unknown or in another status. Raises InvalidState if the transition table lacks the move."""
    if not _SESSIONS.advance(db, id, expect, to, terminated_at=at if to is SessionStatus.TERMINATED else None):
        return None
    _SESSIONS.update(db, "id = :id", {"id": id, "at": at}, updated_at=_LATER)
    return get(db, id)


def pause(db: Database, id: str, by: str, at: datetime) -> Session | None:
    """Pause an active or interrupted session and return it. An interrupted one pauses when its agent returns.
    Returns None if the session is unknown, already paused, or in another status."""
    won = _SESSIONS.update(
        db,
        "id = :id and paused_at is null and status in ('active', 'interrupted')",
        {"id": id, "at": at},
        paused_by=by,
        paused_at=at,
        updated_at=_LATER,
        status=Sql("case status when 'active' then 'paused' else status end"),
    )
    return get(db, id) if won else None


def unpause(db: Database, id: str, at: datetime) -> Session | None:
    """Resume a paused session and return it. Returns None if it is unknown, terminated or not paused."""
    won = _SESSIONS.update(
        db,
        f"{_OPEN} and paused_at is not null",
        {"id": id, "at": at},
        paused_by=None,
        paused_at=None,
        updated_at=_LATER,
        status=Sql("case status when 'paused' then 'active' else status end"),
    )
    return get(db, id) if won else None


def set_mode(db: Database, id: str, mode: SessionMode, at: datetime) -> SessionMode | None:
    """Set the notification mode and return the previous one. Returns None if unknown or terminated."""
    before = get(db, id)
    won = _SESSIONS.update(db, _OPEN, {"id": id, "at": at}, mode=mode, updated_at=_LATER)
    return before.mode if won and before is not None else None


#: Whether an entry says that somebody chose its session's mode: by a switch, with the start of an agent, or in the
#: checkpoint that the session comes from.
_MODE_CHOSEN = (
    "(kind in ('mode', 'session_restored') or kind = 'session_started'"
    " and case when json_valid(data) then json_extract(data, '$.mode') end is not null)"
)


def include_chat(db: Database, at: datetime) -> None:
    """Change the mode of open sessions from local to hybrid, now that there is a chat, if nobody chose it. They were
    opened while there was none, so nobody would be notified there of what they wait for."""
    sql = (
        "select id from session where status <> 'terminated' and mode = 'local' and not exists"
        f" (select 1 from audit where session_id = session.id and {_MODE_CHOSEN})"
    )
    for id in rows.column(db, sql):
        _SESSIONS.update(db, _OPEN, {"id": id}, mode=SessionMode.HYBRID)
        audit.record(db, at, "mode", id, "intercom", "local to hybrid", {"channel": "server"})


def set_prompt(db: Database, id: str, prompt: str) -> bool:
    """Set the prompt that the agent was started with. Returns False if the session is unknown or terminated."""
    return _SESSIONS.update(db, _OPEN, {"id": id}, prompt=prompt) > 0


def set_progress(db: Database, id: str, progress: tuple[ProgressItem, ...] | None, at: datetime) -> bool:
    """Store the agent's latest progress. Returns False if the session is unknown or terminated."""
    text = None if progress is None else _PROGRESS.write(progress)
    return _SESSIONS.update(db, _OPEN, {"id": id, "at": at}, progress_snapshot=text, updated_at=_LATER) > 0


def set_stall(db: Database, id: str, nudge_count: int, paused: bool) -> bool:
    """Store the stall detector's nudge count and pause flag. Returns False if unknown or terminated."""
    return _SESSIONS.update(db, _OPEN, {"id": id}, nudge_count=nudge_count, stall_paused=paused) > 0


def set_stall_paused(db: Database, id: str, paused: bool) -> bool:
    """Store whether the stall detector is paused. Returns False if unknown or terminated."""
    return _SESSIONS.update(db, _OPEN, {"id": id}, stall_paused=paused) > 0


def bind_agent(db: Database, id: str, agent_key: str, at: datetime, client_name: str | None = None) -> Session | None:
    """Bind an agent to a session and return the session. The agent loses any other session it had. Stores
    `client_name` too, if given. Returns None and changes nothing if the session is unknown or terminated."""
    session = get(db, id)
    if session is None or session.status is SessionStatus.TERMINATED:
        return None
    others = "agent_key = :key and id <> :id and status <> 'terminated'"
    _SESSIONS.update(db, others, {"key": agent_key, "id": id}, agent_key=None)
    named = client_name or session.client_name
    _SESSIONS.update(db, _OPEN, {"id": id, "at": at}, agent_key=agent_key, client_name=named, updated_at=_LATER)
    return get(db, id)


def touch(db: Database, id: str, at: datetime, last_tool: str | None = None) -> bool:
    """Record agent activity. Returns False if the session is unknown, terminated, or was active later than `at`."""
    tool = {} if last_tool is None else {"last_tool": last_tool}
    return _SESSIONS.update(db, f"{_OPEN} and updated_at <= :at", {"id": id, "at": at}, updated_at=at, **tool) > 0


class Stalls(Table[StallAlert]):
    """Stall alerts. A session has at most one that is active."""

    def active(self, db: Database, session_id: str) -> StallAlert | None:
        """Return the session's alert that is pending, nudged or escalated, or None."""
        return self.first(db, "session_id = ? and status in ('pending', 'nudged', 'escalated')", (session_id,))


stalls = Stalls(
    "stall_alert", StallAlert, conflict="do nothing", states=States("a stall alert", "status", STALL_TRANSITIONS)
)
