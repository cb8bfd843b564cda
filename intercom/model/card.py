"""A card: the presentation of one open request to a person, independent of the channel.

Channels render it, and the person's action comes back as a verdict. A later card with the same id replaces the earlier.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import asdict, evolve, field, frozen
from attrs.converters import optional

from intercom.model import signing
from intercom.model.checkpoint import RestoreState
from intercom.model.decision import Decided, Decision
from intercom.model.errors import InvalidArguments
from intercom.model.request import ApprovalStatus, FileChange, PromptType, Remark, RiskLevel, WaitStatus
from intercom.model.session import StallStatus
from intercom.model.visible_text import visible


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
    ROOM = "room"
    TOOLS = "tools"


class CardState(StrEnum):
    """The status of a card's request. Pending: a person has to answer. Queued: a message of a person waits for the
    agent. Delivered: the answer or the message was written to the agent. Applied: the bytes are on disk."""

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


#: The decisions that each kind takes, as they are offered to people, and the status in which each ends it.
ENDS: dict[CardKind, dict[Decision, ApprovalStatus | WaitStatus | StallStatus | RestoreState | CardState]] = {
    CardKind.APPROVAL: {Decision.APPROVE: ApprovalStatus.APPROVED, Decision.REJECT: ApprovalStatus.REJECTED},
    CardKind.PROMPT: dict.fromkeys((Decision.CONTINUE, Decision.REFINE, Decision.STOP), WaitStatus.DECIDED),
    CardKind.STANDBY: dict.fromkeys((Decision.RESUME, Decision.STOP), WaitStatus.DECIDED),
    CardKind.STALL: {
        Decision.NUDGE: StallStatus.NUDGED,
        Decision.STOP: StallStatus.DISMISSED,
        Decision.DISMISS: StallStatus.DISMISSED,
    },
    CardKind.POLICY: {Decision.ACCEPT: CardState.APPLIED, Decision.REJECT: CardState.REJECTED},
    CardKind.APPLY: {Decision.DISMISS: CardState.CLOSED},
    CardKind.STEER: {},
    CardKind.TASK: {},
    CardKind.RESTORE: {Decision.PROCEED: RestoreState.ACCEPTED, Decision.CANCEL: RestoreState.CANCELLED},
    CardKind.ROOM: {Decision.RESUME: CardState.ANSWERED, Decision.DISMISS: CardState.CLOSED},
    CardKind.TOOLS: {Decision.APPROVE: CardState.APPLIED, Decision.REJECT: CardState.REJECTED},
}
#: Decisions that are taken too, as the one that is offered.
_TAKEN_AS = {
    (CardKind.STANDBY, Decision.CONTINUE): Decision.RESUME,
    (CardKind.STANDBY, Decision.REFINE): Decision.RESUME,
    (CardKind.POLICY, Decision.APPROVE): Decision.ACCEPT,
    (CardKind.ROOM, Decision.CONTINUE): Decision.RESUME,
}
#: The possible answers to each kind of card.
CHOICES: dict[CardKind, tuple[Decision, ...]] = {kind: tuple(ends) for kind, ends in ENDS.items()}


def end_of(kind: CardKind, decision: Decision) -> ApprovalStatus | WaitStatus | StallStatus | RestoreState | CardState:
    """Return the status in which this decision ends a request of this kind. Raises InvalidArguments if the kind does
    not take the decision."""
    end = ENDS[kind].get(_TAKEN_AS.get((kind, decision), decision))
    if end is None:
        names = ", ".join(choice.value for choice in CHOICES[kind])
        raise InvalidArguments(f"{decision.value} does not answer this {kind.value} card; answer one of: {names}")
    return end


#: The kinds that need an answer. Messages for an agent are delivered without one.
ANSWERED: tuple[CardKind, ...] = tuple(kind for kind, choices in CHOICES.items() if choices)


#: The kinds whose body an agent wrote. For an approval, the agent also wrote the title.
AGENTS: frozenset[CardKind] = frozenset({CardKind.APPROVAL, CardKind.PROMPT, CardKind.STANDBY, CardKind.STALL})


@frozen
class Card:
    """A card. Its texts are passed through `visible`, so no character in them hides, reorders or acts, in any channel.

    `body` is the text for the person (description, prompt, message); for the kinds in `AGENTS` an agent wrote it.
    `away` means that no call waits for the answer any more. `note` is one more line, such as the rule of an automatic
    approval. `escalated` means that the nudges of an alert did not help. `proposal_hash` identifies the change to
    approve. `diff` is made by us from the files' bytes, unless `diff_from_agent` says that it is the agent's own text.
    `diff_omitted` says that a listing left the diff out. `prompt_type` is what kind of question a prompt is.
    `amendable` says that a part of it can be approved, or that it can be edited before it is; `amended` that a person
    did so. `delivered` says that the answer, or the message, has reached the agent: a rejection keeps its state then.
    `remarks` say what it cannot show. `masked` holds lines, by number from 0, which replace those of the diff outside
    this machine.
    """

    id: str
    kind: CardKind
    session_id: str
    workspace_root: str
    title: str = field(converter=visible)
    created_at: datetime
    state: CardState = CardState.PENDING
    body: str | None = field(default=None, converter=optional(visible))
    detail: str | None = field(default=None, converter=optional(visible))
    risk: RiskLevel | None = None
    files: tuple[FileChange, ...] = ()
    diff: str | None = None
    expires_at: datetime | None = None
    decided: Decided | None = None
    away: bool = False
    note: str | None = field(default=None, converter=optional(visible))
    escalated: bool = False
    proposal_hash: str | None = None
    diff_from_agent: bool = False
    remarks: tuple[Remark, ...] = ()
    masked: tuple[tuple[int, str], ...] = ()
    diff_omitted: bool = False
    prompt_type: PromptType | None = None
    amendable: bool = False
    amended: bool = False
    delivered: bool = False

    def without_diff(self) -> Card:
        """Return the card as a listing carries it that has no room for the diff."""
        return self if self.diff is None else evolve(self, diff=None, diff_omitted=True)


def subject(card: Card) -> str:
    """Return the hash of what the card shows. ctl computes the same hash from the card's JSON form."""
    return signing.card_subject(
        {
            "kind": card.kind.value,
            "request_id": card.id,
            "session_id": card.session_id,
            "workspace_root": card.workspace_root,
            "title": card.title,
            "description": card.body,
            "detail": card.detail,
            "risk_level": None if card.risk is None else card.risk.value,
            "files": [asdict(change, recurse=False) for change in card.files],
            "diff": card.diff,
            "diff_from_agent": card.diff_from_agent,
            "remarks": [asdict(remark, recurse=False) for remark in card.remarks],
            "proposal_hash": card.proposal_hash,
        }
    )


@frozen
class Notice:
    """One line for every channel: a broadcast, a recovery summary, a warning. `level` is info, success, warning or
    error. `key` is the line's outbox row, if it is already on its way to the chat. A line about what a person did with
    a grant has the kind of the audit entry as `event`, the grant's id and who did it: no program has to read `text`.
    A line about what a grant or a policy let pass has its `event` too, and the grant's id."""

    text: str = field(converter=visible)
    level: str
    at: datetime
    session_id: str | None = None
    thread: str | None = None
    key: str | None = None
    event: str | None = None
    grant_id: str | None = None
    by: str | None = None
