"""A verdict: what a person said about a card, under an id of its own so that the same act counts once."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen


class Decision(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    CONTINUE = "continue"
    REFINE = "refine"
    STOP = "stop"
    RESUME = "resume"
    NUDGE = "nudge"
    DISMISS = "dismiss"
    ACCEPT = "accept"
    PROCEED = "proceed"
    CANCEL = "cancel"


@frozen
class Verdict:
    """`text` is the reason of a rejection, or the instruction of a refine, resume or nudge; `by` names the person as
    the channel knows them; `channel` is "ctl", "slack", "web", "embed", "policy" or "timeout"."""

    id: str
    decision: Decision
    by: str
    channel: str
    at: datetime
    text: str | None = None


@frozen
class Decided:
    """The verdict that won, as stored on the request's row."""

    verdict_id: str
    decision: str
    by: str
    channel: str
    at: datetime
    text: str | None = None
