"""A verdict: what a person said about a card, under an id of its own so that the same act counts once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from attrs import asdict, frozen

from intercom.model import signing
from intercom.model.origin import Origin


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
class Signature:
    """A decision as it was signed: `value` is the signature (hexadecimal) of the statement that the other fields are.

    `subject` is the hash of what was shown (`intercom.model.signing`), `method` says how the key was unlocked.
    """

    request_id: str
    subject: str
    risk: str | None
    decision: str
    text: str | None
    at: str
    decision_id: str
    key_id: str
    method: str
    value: str

    def statement(self) -> bytes:
        """The bytes that `value` signs."""
        return signing.statement(asdict(self, recurse=False))


@frozen
class SignedCommand:
    """A command as it was signed: the signature, and the fields of the command whose hash it covers."""

    signature: Signature
    fields: Mapping[str, str]


def signature_data(signature: Signature | None) -> dict[str, Any] | None:
    """A signature as JSON can hold it, for a record."""
    return None if signature is None else asdict(signature, recurse=False)


def signature_from_data(data: object) -> Signature | None:
    """A signature as a record holds it; None also for what nobody here wrote, which then counts as none."""
    if not isinstance(data, dict) or not all(part is None or isinstance(part, str) for part in data.values()):
        return None
    try:
        return Signature(**data)
    except TypeError:
        return None


@frozen
class Verdict:
    """`text` is the reason of a rejection, or the instruction of a refine, resume or nudge; `by` names the person as
    the channel knows them; `channel` is "ctl", "slack", "web", "embed", "policy" or "timeout". `origin` is where the
    decision came from; None where nobody decided, as for "policy" and "timeout". `command` is the signed command that
    gives it, where that is no answer to a card."""

    id: str
    decision: Decision
    by: str
    channel: str
    at: datetime
    text: str | None = None
    origin: Origin | None = None
    signature: Signature | None = None
    command: SignedCommand | None = None

    @property
    def origin_data(self) -> dict[str, Any] | None:
        """What is known of where it came from, for a record; None where nothing is."""
        return None if self.origin is None else self.origin.to_data()


@frozen
class Decided:
    """The verdict that won, as stored on the request's row."""

    verdict_id: str
    decision: str
    by: str
    channel: str
    at: datetime
    text: str | None = None
    origin: Origin | None = None
    signature: Signature | None = None

    @staticmethod
    def of(verdict: Verdict, at: datetime, signature: Signature | None = None) -> Decided:
        """The verdict as it is put on record at `at`, whatever its sender's clock says, with the signature that was
        found to be in order."""
        return Decided(
            verdict.id,
            verdict.decision.value,
            verdict.by,
            verdict.channel,
            at,
            verdict.text,
            verdict.origin,
            signature,
        )
