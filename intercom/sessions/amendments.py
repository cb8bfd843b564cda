"""Amendments of approval requests: the record that replaces a proposal's if a person approves it with changes.

A person is shown the amended card first, and signs that one. When they decide, the amendment is made again from the
files as they are then, and must be what they saw. Nothing is written here: the record is replaced in the transaction of
the decision, so a request is either pending as it was proposed, or approved as it was amended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from attrs import evolve, frozen

from intercom.model import limits
from intercom.model.amendment import Amendment, DecisionDetails
from intercom.model.card import Card
from intercom.model.card_hunks import HunkOfCard, checked_comments
from intercom.model.decision import Decision, Verdict
from intercom.model.errors import InvalidArguments, InvalidState, RecordMismatch
from intercom.model.request import ApprovalRequest
from intercom.sessions import request_kinds
from intercom.sessions.request_kinds import Asked
from intercom.sessions.tools.check_clearance import original_hash
from intercom.store.requests import approvals
from intercom.store.writer_messages import Database
from intercom.workspace import amendment as workspace_amendment


@frozen
class PreparedDecision:
    """A decision of a person about a pending approval request, ready to be recorded.

    `request` is the record that they decide about: the amended one, or the proposal itself. `verdict` has the text
    that is recorded and signed. `details` are its structured form, if it has one.
    """

    proposed: ApprovalRequest
    request: ApprovalRequest
    verdict: Verdict
    details: DecisionDetails | None = None

    def is_about(self, request: Asked) -> bool:
        """Return whether it was made from this record; who waits for the answer, and until when, does not matter."""
        if not isinstance(request, ApprovalRequest):
            return False
        return request == evolve(
            self.proposed, slack_ts=request.slack_ts, call=request.call, expires_at=request.expires_at
        )

    def record(self, db: Database, at: datetime) -> dict[str, object]:
        """Store what is not in the decision itself, in its transaction. Returns what the audit entry says of it."""
        if self.details is None:
            return {}
        if not self.details.changes:
            approvals.note_details(db, self.request.id, self.details)
            return {"comments": len(self.details.comments)} if self.details.comments else {}
        kept = approvals.amend(db, self.proposed, self.request, self.verdict.id, at)
        return {"proposed_hash": self.proposed.proposal_hash, "proposed_sha256": kept, "changes": self.verdict.text}


@frozen
class AmendedCard:
    """A card as it would be approved. `hunks` are those of the proposal, by which an amendment names them. `text` is
    what the agent would be told. `contents` are the new contents that can be edited, by path."""

    card: Card
    hunks: tuple[HunkOfCard, ...]
    text: str | None
    contents: Mapping[str, str]


def look(request: ApprovalRequest, workspace_root: str, amendment: Amendment | None, note: str | None) -> AmendedCard:
    """Return the card of a pending request as it would be with this amendment. Reads files and changes nothing.

    Raises InvalidState for a request that has no parts or is not pending, PatchConflict if its files have changed,
    RecordMismatch if the card is not what its files say, or another one was shown; and InvalidArguments.
    """
    if request.status.value != "pending":
        raise InvalidState(f"request {request.id} is {request.status.value}: it is not open, so nothing can be changed")
    root = Path(workspace_root)
    proposed = workspace_amendment.read(root, request)
    record, details = request, None
    if amendment is not None:
        record, details = _amended(proposed, workspace_root, amendment, note)
    is_changed = details is not None and bool(details.changes)
    card = evolve(request_kinds.card_of(record, workspace_root), amended=is_changed)
    return AmendedCard(card, proposed.hunks, details.told if details else note, proposed.texts)


def prepare(request: ApprovalRequest, workspace_root: str, verdict: Verdict) -> PreparedDecision:
    """Return a person's decision about a pending request, with the record that it is about. Reads files if it is an
    amendment. Raises as `look`, and InvalidArguments for comments that are not about the card."""
    _check_use(request, verdict)
    note = (verdict.text or "").strip() or None
    if verdict.comments:
        comments = checked_comments(verdict.comments, request.preview or "", request.files)
        details = DecisionDetails(comments=comments, note=note)
        return PreparedDecision(request, request, _saying(verdict, details), details)
    if verdict.amendment is None:
        return PreparedDecision(request, request, verdict)
    proposed = workspace_amendment.read(Path(workspace_root), request)
    record, made = _amended(proposed, workspace_root, verdict.amendment, note)
    if made is None:
        return PreparedDecision(request, request, evolve(verdict, text=note))
    return PreparedDecision(request, record, _saying(verdict, made), made)


def _check_use(request: ApprovalRequest, verdict: Verdict) -> None:
    if verdict.comments and verdict.decision is not Decision.REJECT:
        raise InvalidArguments("comments request changes, so they go with a rejection; approve with a note instead")
    if verdict.amendment is not None and verdict.decision is not Decision.APPROVE:
        raise InvalidArguments("only an approval can be of a part; to reject it, leave the hunks and the text out")
    if verdict.comments and not request.is_amendable:
        raise InvalidState("this card has no diff of files to comment on; reject it with a reason")


def _saying(verdict: Verdict, details: DecisionDetails) -> Verdict:
    text = details.told
    if (too_long := limits.over("what the agent is told", text, limits.TEXT)) is not None:
        raise InvalidArguments(too_long)
    return evolve(verdict, text=text)


def _amended(
    proposed: workspace_amendment.Proposed, workspace_root: str, amendment: Amendment, note: str | None
) -> tuple[ApprovalRequest, DecisionDetails | None]:
    """Return the record of an amendment, and what was changed; the proposal and None if nothing was."""
    request = proposed.request
    made = workspace_amendment.amend(Path(workspace_root), proposed, amendment)
    record, details = request, None
    if made is not None:
        details = DecisionDetails(made.changes, note)
        record = evolve(
            request,
            diff_content=made.text,
            form=made.form,
            file_path=made.file_path,
            files=made.shown.changes,
            original_hash=original_hash(made.shown.changes, made.file_path),
            preview=made.shown.diff,
            remarks=made.shown.remarks,
            masked=made.shown.masked,
            details=details,
        )
        record = evolve(record, proposal_hash=record.hash_of_record(workspace_root))
    if amendment.shown not in (request.proposal_hash, record.proposal_hash):
        raise RecordMismatch(
            "this is not the card that was shown: the request, or a file of it, changed since; look at it again",
            shown=amendment.shown,
        )
    return record, details
