"""Counts of what there is, in one read, for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model.card import CardKind
from intercom.model.process import AgentProcessState
from intercom.model.session import SessionStatus
from intercom.store import rows

#: What waits for a person, by kind: the table, and the condition on its rows.
_WAITING = {
    CardKind.APPROVAL: ("approval_request", "status = 'pending'"),
    CardKind.PROMPT: ("continuation_prompt", "status = 'pending'"),
    CardKind.STANDBY: ("wait", "status = 'pending'"),
    CardKind.STALL: ("stall_alert", "status in ('pending', 'nudged', 'escalated')"),
    CardKind.APPLY: ("apply_journal", "state = 'stuck'"),
    CardKind.RESTORE: ("restore", "state in ('asked', 'stuck')"),
}
#: The same for instructions from people, which wait for an agent.
_UNTOLD = "delivered_at is null and closed_at is null"
_QUEUED = {
    CardKind.STEER: ("instruction", f"{_UNTOLD} and kind <> 'task'"),
    CardKind.TASK: ("instruction", f"{_UNTOLD} and kind = 'task'"),
}


@frozen
class Waiting:
    """How many wait, and since when the oldest does (None if none)."""

    count: int = 0
    oldest: datetime | None = None


@frozen
class Counts:
    """The counts as of one moment.

    `pending` has every kind that waits for a person, `queued` every kind that waits for an agent. `sessions` has every
    status. `children` counts agent processes started by people, by state, without those that are over.
    """

    pending: Mapping[CardKind, Waiting]
    queued: Mapping[CardKind, Waiting]
    sessions: Mapping[SessionStatus, int]
    children: Mapping[AgentProcessState, int]


def count(db: Database) -> Counts:
    """Count everything, as of one moment."""
    statuses = _numbers(db, "select status as name, count(*) as number from session group by status")
    states = _numbers(db, "select state as name, count(*) as number from child where state <> 'over' group by state")
    return Counts(
        {kind: _waiting(db, *where) for kind, where in _WAITING.items()},
        {kind: _waiting(db, *where) for kind, where in _QUEUED.items()},
        {status: statuses.get(status.value, 0) for status in SessionStatus},
        {state: states.get(state.value, 0) for state in AgentProcessState if state is not AgentProcessState.OVER},
    )


def _waiting(db: Database, table: str, which: str) -> Waiting:
    found = rows.one(db, f"select count(*) as number, min(created_at) as oldest from {table} where {which}")
    assert found is not None, "an aggregate has one row"
    return Waiting(found["number"], rows.time_value(found["oldest"]))


def _numbers(db: Database, sql: str) -> dict[str, int]:
    return {row["name"]: row["number"] for row in rows.every(db, sql)}
