"""Words of a person for an agent: what it is told with its next result, and the tasks that are left for it."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from intercom.model.verdict import SignedCommand

_ACTS = uuid.UUID("8c1f6c0e-3f0b-4f39-9d0c-5f6f2f0a7d11")


class Kind(StrEnum):
    """Why an agent is told: it has gone quiet, it is to do otherwise, it is to take something up."""

    NUDGE = "nudge"
    STEER = "steer"
    TASK = "task"


@frozen
class Instruction:
    """A row of `instruction`. `by` names the person, `channel` how they said it.

    `session_id` is whose agent is told; a task with `workspace_root` is for the next agent there, and has none until
    one takes it (`taken_at`). `written_at` is when they were written to an agent whose transport can not say whether it
    has read them. `closed_at` is when it came to be never told: the session ended, somebody took it back, or newer
    words replaced it. `signed` is what the person signed, where there is an operator key.
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
        """Whether it is yet to be told."""
        return self.delivered_at is None and self.closed_at is None


def id_of_act(act_id: str) -> str:
    """The id of the words that an act says: the same act again is the same words, and another id is none of its."""
    return str(uuid.uuid5(_ACTS, act_id))
