"""An instruction: a person's message to an agent, or a task that waits for one."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from intercom.model.decision import SignedCommand

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


def id_of_act(act_id: str) -> str:
    """Return the message id of an action. A repeated action gives the same id; a different one never does."""
    return str(uuid.uuid5(_ACTS, act_id))
