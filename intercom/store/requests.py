"""Queries across approvals, prompts and standbys, which share one space of ids."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from attrs import frozen
from sqlite_utils import Database

from intercom.model.approval import ApprovalRequest
from intercom.model.card import CardKind
from intercom.model.prompt import ContinuationPrompt, Wait
from intercom.store import approvals, prompts, rows, waits

AnyRequest: TypeAlias = ApprovalRequest | ContinuationPrompt | Wait

_TABLES = (
    (CardKind.APPROVAL, "approval_request"),
    (CardKind.PROMPT, "continuation_prompt"),
    (CardKind.STANDBY, "wait"),
)


@frozen
class Counts:
    """The counts at server start: interrupted sessions, and pending requests of all sessions."""

    interrupted_sessions: int
    pending_approvals: int
    pending_prompts: int
    pending_waits: int


def find(db: Database, id: str) -> AnyRequest | None:
    """Return the request with this id, of any kind, or None."""
    return approvals.get(db, id) or prompts.get(db, id) or waits.get(db, id)


def by_call(db: Database, session_id: str, call: str) -> AnyRequest | None:
    """Return the request that this tool call created in this session, or None."""
    if not call:
        return None
    for _, table in _TABLES:
        found = rows.one(db, f"select id from {table} where session_id = ? and call = ?", (session_id, call))
        if found is not None:
            return find(db, found["id"])
    return None


def with_prefix(db: Database, prefix: str) -> tuple[tuple[CardKind, str], ...]:
    """Return (kind, id) of requests whose id begins with the literal `prefix`, by id; at most 50 of a kind."""
    found = [(kind, id) for kind, table in _TABLES for id in rows.ids_with_prefix(db, table, prefix)]
    return tuple(sorted(found, key=lambda entry: entry[1]))


def pending(db: Database, session_id: str | None = None) -> tuple[AnyRequest, ...]:
    """Return the pending requests of all kinds, oldest first; of one session or of all."""
    found: list[AnyRequest] = [
        *approvals.pending(db, session_id),
        *prompts.pending(db, session_id),
        *waits.pending(db, session_id),
    ]
    return tuple(sorted(found, key=_age))


def undelivered(db: Database, session_id: str) -> tuple[AnyRequest, ...]:
    """Return requests that were decided or expired but not delivered to this session's agent, oldest first."""
    found: list[AnyRequest] = [
        *approvals.owed(db, session_id),
        *prompts.owed(db, session_id),
        *waits.owed(db, session_id),
    ]
    return tuple(sorted(found, key=_age))


def interrupted(db: Database, session_id: str) -> tuple[AnyRequest, ...]:
    """Return the requests of all kinds that were interrupted with their session, oldest first."""
    found: list[AnyRequest] = [
        *approvals.interrupted(db, session_id),
        *prompts.interrupted(db, session_id),
        *waits.interrupted(db, session_id),
    ]
    return tuple(sorted(found, key=_age))


def mark_delivered(db: Database, id: str, at: datetime) -> bool:
    """Record that the agent has the answer. Returns False if already recorded or not answered yet."""
    return (
        approvals.mark_delivered(db, id, at) or prompts.mark_delivered(db, id, at) or waits.mark_delivered(db, id, at)
    )


def annul(db: Database, id: str, at: datetime) -> bool:
    """Close a request whose recorded decision is invalid. Returns False if it was closed before."""
    return approvals.annul(db, id, at) or prompts.annul(db, id, at) or waits.annul(db, id, at)


def waiting(db: Database, session_id: str | None = None) -> int:
    """Return the number of pending requests of all kinds; of one session or of all."""
    if session_id is None:
        return sum(rows.count(db, f"select count(*) from {table} where status = 'pending'") for _, table in _TABLES)
    return sum(
        rows.count(db, f"select count(*) from {table} where session_id = ? and status = 'pending'", (session_id,))
        for _, table in _TABLES
    )


def counts(db: Database) -> Counts:
    """Count what recovery reports to people."""
    pending = {
        kind: rows.count(db, f"select count(*) from {table} where status = 'pending'") for kind, table in _TABLES
    }
    return Counts(
        interrupted_sessions=rows.count(db, "select count(*) from session where status = 'interrupted'"),
        pending_approvals=pending[CardKind.APPROVAL],
        pending_prompts=pending[CardKind.PROMPT],
        pending_waits=pending[CardKind.STANDBY],
    )


def _age(request: AnyRequest) -> datetime:
    return request.created_at
