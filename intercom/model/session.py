"""A session: the tracked work of one agent, its alerts, and what people tell its agent."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from intercom.model import limits
from intercom.model.decision import SignedCommand
from intercom.model.field_docs import doc


class SessionStatus(StrEnum):
    CREATED = "created"
    ACTIVE = "active"
    PAUSED = "paused"
    TERMINATED = "terminated"
    INTERRUPTED = "interrupted"


class SessionMode(StrEnum):
    REMOTE = "remote"
    LOCAL = "local"
    HYBRID = "hybrid"


class ProgressStatus(StrEnum):
    DONE = "done"
    IN_PROGRESS = "in_progress"
    PENDING = "pending"


#: The legal transitions. Three are not in the reference. Created and interrupted to terminated: otherwise a session
#: that never started or never came back could not be cleared. Interrupted to paused: otherwise a paused agent would be
#: resumed by losing its connection.
SESSION_TRANSITIONS: dict[SessionStatus, frozenset[SessionStatus]] = {
    SessionStatus.CREATED: frozenset({SessionStatus.ACTIVE, SessionStatus.TERMINATED}),
    SessionStatus.ACTIVE: frozenset({SessionStatus.PAUSED, SessionStatus.TERMINATED, SessionStatus.INTERRUPTED}),
    SessionStatus.PAUSED: frozenset({SessionStatus.ACTIVE, SessionStatus.TERMINATED, SessionStatus.INTERRUPTED}),
    SessionStatus.INTERRUPTED: frozenset({SessionStatus.ACTIVE, SessionStatus.PAUSED, SessionStatus.TERMINATED}),
    SessionStatus.TERMINATED: frozenset(),
}


@frozen
class ProgressItem:
    """An entry of an agent's task list."""

    label: str = field(metadata=doc("What the task is.", min_length=1, most=limits.TITLE))
    status: ProgressStatus = field(metadata=doc("How far it is."))


@frozen
class Session:
    """A row of `session`. `agent_key` identifies its agent. `owner_user_id` is empty if an agent opened it by
    connecting; it then belongs to every authorized operator. `channel_id` is its Slack channel, None for the configured
    one. `paused_by` and `paused_at` say who paused it and when. They stay until it is resumed, also while it is
    interrupted."""

    id: str
    owner_user_id: str
    workspace_root: str
    status: SessionStatus
    mode: SessionMode
    created_at: datetime
    updated_at: datetime
    prompt: str | None = None
    terminated_at: datetime | None = None
    last_tool: str | None = None
    nudge_count: int = 0
    stall_paused: bool = False
    progress_snapshot: tuple[ProgressItem, ...] | None = None
    agent_key: str | None = None
    client_name: str | None = None
    channel_id: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None

    @property
    def is_paused(self) -> bool:
        """Whether its agent's calls wait until a person resumes it."""
        is_waiting = self.status is SessionStatus.INTERRUPTED and self.paused_at is not None
        return is_waiting or self.status is SessionStatus.PAUSED

    @property
    def status_when_here(self) -> SessionStatus:
        """The status of the session once its agent is connected."""
        return SessionStatus.PAUSED if self.is_paused else SessionStatus.ACTIVE


def may_become(now: SessionStatus, then: SessionStatus) -> bool:
    """Whether a session may go from status `now` to `then`."""
    return then in SESSION_TRANSITIONS[now]


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


_ACTS = uuid.UUID("8c1f6c0e-3f0b-4f39-9d0c-5f6f2f0a7d11")


class Kind(StrEnum):
    """The reason of a message: the agent is quiet, it should change course, or it gets a new task."""

    NUDGE = "nudge"
    STEER = "steer"
    TASK = "task"


@frozen
class Instruction:
    """A row of `instruction`. `by` is the person, `channel` the channel they used.

    The agent of `session_id` gets it. A task with `workspace_root` is for the next agent there, and has no session
    until one takes it (`taken_at`). `written_at` is set when it was written to an agent whose transport cannot confirm
    receipt. `closed_at` is set if it will never be delivered: the session ended, a person cancelled it, or a newer
    message replaced it. `signed` is what the person signed, if there is an operator key.
    """

    id: str
    kind: Kind
    text: str
    by: str
    channel: str
    at: datetime
    session_id: str | None = None
    workspace_root: str | None = None
    taken_at: datetime | None = None
    delivered_at: datetime | None = None
    closed_at: datetime | None = None
    written_at: datetime | None = None
    signed: SignedCommand | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is not yet delivered."""
        return self.delivered_at is None and self.closed_at is None

    @property
    def status(self) -> str:
        """What people are told of it: `queued`, `delivered` or `closed`."""
        return "queued" if self.is_open else "closed" if self.delivered_at is None else "delivered"


def id_of_act(act_id: str) -> str:
    """Return the message id of an action. A repeated action gives the same id; a different one never does."""
    # A recorded id may hold half a surrogate pair, which UTF-8 cannot encode. No action that counts has one.
    return str(uuid.uuid5(_ACTS, act_id.encode("utf-8", "backslashreplace").decode()))
