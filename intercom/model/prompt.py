"""A continuation prompt: an agent's question whether and how to continue."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from intercom.model.decision import Decided


class PromptType(StrEnum):
    CONTINUATION = "continuation"
    CLARIFICATION = "clarification"
    ERROR_RECOVERY = "error_recovery"
    RESOURCE_WARNING = "resource_warning"


class PromptDecision(StrEnum):
    CONTINUE = "continue"
    REFINE = "refine"
    STOP = "stop"


class WaitStatus(StrEnum):
    """The status of a prompt or a standby."""

    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"


WAIT_TRANSITIONS: dict[WaitStatus, frozenset[WaitStatus]] = {
    WaitStatus.PENDING: frozenset({WaitStatus.DECIDED, WaitStatus.EXPIRED, WaitStatus.INTERRUPTED}),
    WaitStatus.DECIDED: frozenset(),
    WaitStatus.EXPIRED: frozenset(),
    WaitStatus.INTERRUPTED: frozenset(),
}


@frozen
class ContinuationPrompt:
    id: str
    session_id: str
    prompt_text: str
    prompt_type: PromptType
    status: WaitStatus
    created_at: datetime
    elapsed_seconds: int | None = None
    actions_taken: int | None = None
    decision: PromptDecision | None = None
    instruction: str | None = None
    slack_ts: str | None = None
    expires_at: datetime | None = None
    call: str | None = None
    decided: Decided | None = None
    delivered_at: datetime | None = None


@frozen
class Wait:
    """A standby: an idle agent waits for work. `instruction` is the work it was given."""

    id: str
    session_id: str
    message: str
    status: WaitStatus
    created_at: datetime
    instruction: str | None = None
    slack_ts: str | None = None
    expires_at: datetime | None = None
    call: str | None = None
    decided: Decided | None = None
    delivered_at: datetime | None = None
