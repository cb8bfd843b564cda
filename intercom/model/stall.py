"""A stall alert: an agent has become quiet."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from intercom.model.session import ProgressItem


class StallStatus(StrEnum):
    PENDING = "pending"
    NUDGED = "nudged"
    SELF_RECOVERED = "self_recovered"
    ESCALATED = "escalated"
    DISMISSED = "dismissed"


STALL_TRANSITIONS: dict[StallStatus, frozenset[StallStatus]] = {
    StallStatus.PENDING: frozenset(
        {StallStatus.NUDGED, StallStatus.SELF_RECOVERED, StallStatus.ESCALATED, StallStatus.DISMISSED}
    ),
    StallStatus.NUDGED: frozenset(
        {StallStatus.NUDGED, StallStatus.SELF_RECOVERED, StallStatus.ESCALATED, StallStatus.DISMISSED}
    ),
    StallStatus.ESCALATED: frozenset({StallStatus.NUDGED, StallStatus.SELF_RECOVERED, StallStatus.DISMISSED}),
    StallStatus.SELF_RECOVERED: frozenset(),
    StallStatus.DISMISSED: frozenset(),
}


@frozen
class StallAlert:
    id: str
    session_id: str
    last_activity_at: datetime
    idle_seconds: int
    status: StallStatus
    created_at: datetime
    last_tool: str | None = None
    nudge_count: int = 0
    nudge_message: str | None = None
    progress_snapshot: tuple[ProgressItem, ...] | None = None
    slack_ts: str | None = None
