"""A card: what a person is shown about one thing that waits, in no channel's form.

Channels draw it; the person's act comes back as a verdict. A later card with the same id replaces the earlier one.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from intercom.model.approval import FileChange, RiskLevel
from intercom.model.verdict import Decided, Decision


class CardKind(StrEnum):
    APPROVAL = "approval"
    PROMPT = "prompt"
    STANDBY = "standby"
    STALL = "stall"
    POLICY = "policy"
    APPLY = "apply"
    STEER = "steer"
    TASK = "task"
    RESTORE = "restore"


class CardState(StrEnum):
    """Where the thing stands. Pending: a person is to answer. Queued: words of a person are to reach the agent.
    Delivered: the answer or the words were written to the agent. Applied: the bytes are on disk."""

    PENDING = "pending"
    QUEUED = "queued"
    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    DELIVERED = "delivered"
    APPLIED = "applied"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"
    CLOSED = "closed"


#: What a person may answer to each kind of card.
CHOICES: dict[CardKind, tuple[Decision, ...]] = {
    CardKind.APPROVAL: (Decision.APPROVE, Decision.REJECT),
    CardKind.PROMPT: (Decision.CONTINUE, Decision.REFINE, Decision.STOP),
    CardKind.STANDBY: (Decision.RESUME, Decision.STOP),
    CardKind.STALL: (Decision.NUDGE, Decision.STOP, Decision.DISMISS),
    CardKind.POLICY: (Decision.ACCEPT, Decision.REJECT),
    CardKind.APPLY: (Decision.DISMISS,),
    CardKind.STEER: (),
    CardKind.TASK: (),
    CardKind.RESTORE: (Decision.PROCEED, Decision.CANCEL),
}

#: The kinds that a person answers at all; words for an agent go to it by themselves.
ANSWERED: tuple[CardKind, ...] = tuple(kind for kind, choices in CHOICES.items() if choices)


@frozen
class Card:
    """`body` is the text a person reads (description, prompt, message); `away` says that no call waits for the answer
    any more; `note` is one more line (auto-approved by which rule, a nudge that found no road, ...); `escalated` says
    that an alert's nudges did not help."""

    id: str
    kind: CardKind
    session_id: str
    workspace_root: str
    title: str
    created_at: datetime
    state: CardState = CardState.PENDING
    body: str | None = None
    detail: str | None = None
    risk: RiskLevel | None = None
    files: tuple[FileChange, ...] = ()
    diff: str | None = None
    expires_at: datetime | None = None
    decided: Decided | None = None
    away: bool = False
    note: str | None = None
    escalated: bool = False


@frozen
class Notice:
    """One line for every channel: a broadcast, a recovery summary, a warning. `level` is info, success, warning or
    error; `key` names the outbox row of a line that is on its way to the chat already."""

    text: str
    level: str
    at: datetime
    session_id: str | None = None
    thread: str | None = None
    key: str | None = None
