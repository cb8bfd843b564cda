"""A decision: what a person said about a card, under an id of its own so that the same act counts once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import asdict, frozen

from intercom.model import signing
from intercom.model.amendment import Amendment, Comment
from intercom.model.process import Origin


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


#: The past participle of each decision, for sentences. A newer server may send decisions that are not in this table.
PAST: dict[str, str] = {
    Decision.APPROVE: "approved",
    Decision.REJECT: "rejected",
    Decision.CONTINUE: "continued",
    Decision.REFINE: "refined",
    Decision.STOP: "stopped",
    Decision.RESUME: "resumed",
    Decision.NUDGE: "nudged",
    Decision.DISMISS: "dismissed",
    Decision.ACCEPT: "accepted",
    Decision.PROCEED: "told to proceed",
    Decision.CANCEL: "cancelled",
}


@frozen
class Signature:
    """A signed decision. `value` is the signature over the statement made of the other fields, in hexadecimal; of a
    passkey it is the assertion (see `intercom.local.passkeys`).

    `subject` is the hash of what was shown (see `intercom.model.signing`). `method` says how the key was unlocked.
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
        """Return the bytes that `value` signs."""
        return signing.statement(asdict(self, recurse=False))


@frozen
class SignedCommand:
    """A signed command: the signature, and the command's fields that it covers."""

    signature: Signature
    fields: Mapping[str, str]


def signature_data(signature: Signature | None) -> dict[str, str | None] | None:
    """Return a signature as JSON data, for storage."""
    return None if signature is None else asdict(signature, recurse=False)


def signature_from_data(data: object) -> Signature | None:
    """Read a signature from stored data. Returns None for invalid data, which then counts as no signature."""
    if not isinstance(data, dict) or not all(
        isinstance(part, str) or (part is None and name in ("risk", "text")) for name, part in data.items()
    ):
        return None
    try:
        return Signature(**data)
    except TypeError:
        return None


def signed_command_from_text(text: str) -> SignedCommand | None:
    """Read a signed command from a stored text. Returns None also if the text is not what the server writes."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(fields := value.get("fields"), dict):
        return None
    signature = signature_from_data(value.get("signature"))
    if signature is None or not all(isinstance(part, str) for part in fields.values()):
        return None
    return SignedCommand(signature, fields)


@frozen
class Verdict:
    """A person's decision about a card. `text` is the reason of a rejection, or the instruction of a refine, resume or
    nudge. `by` is the person's name in the channel. `channel` is "ctl", "web", "slack", "embed", "elicitation" (a
    dialog of the agent's own client), "policy" or "timeout". `origin` is None if no person decided ("policy",
    "timeout"). `command` is the signed command behind a verdict that does not answer a card. `amendment` is what an
    approval changes of the proposal, and `comments` are the remarks of a rejection that requests changes; the recorded
    text of the decision is composed of these and `text`."""

    id: str
    decision: Decision
    by: str
    channel: str
    at: datetime
    text: str | None = None
    origin: Origin | None = None
    signature: Signature | None = None
    command: SignedCommand | None = None
    amendment: Amendment | None = None
    comments: tuple[Comment, ...] = ()

    @property
    def origin_data(self) -> dict[str, str | int] | None:
        """The known fields of its origin, for storage, or None."""
        return None if self.origin is None else self.origin.to_data()


@frozen
class Decided:
    """The verdict that won, as stored in the request's row."""

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
        """Return the verdict as recorded at `at`, the server's time, with its verified signature."""
        return Decided(
            verdict.id, verdict.decision.value, verdict.by, verdict.channel, at, verdict.text, verdict.origin, signature
        )
