"""Builds the card of a restore. All functions are pure."""

from __future__ import annotations

import hashlib
import json

from attrs import evolve

from intercom.model.card import Card, CardKind, CardState, subject
from intercom.model.checkpoint import DivergenceKind
from intercom.model.restore import DivergenceSummary, Files, Restore, RestoreState

_STATES = {
    RestoreState.ASKED: CardState.PENDING,
    RestoreState.STUCK: CardState.PENDING,
    RestoreState.ACCEPTED: CardState.APPROVED,
    RestoreState.COMMITTED: CardState.APPROVED,
    RestoreState.HANDED_OVER: CardState.APPROVED,
    RestoreState.DONE: CardState.APPLIED,
    RestoreState.CANCELLED: CardState.REJECTED,
    RestoreState.EXPIRED: CardState.EXPIRED,
    RestoreState.OUTDATED: CardState.CLOSED,
    RestoreState.FAILED: CardState.CLOSED,
    RestoreState.GIVEN_UP: CardState.CLOSED,
}
_WORDS = {
    DivergenceKind.MODIFIED: "modified",
    DivergenceKind.DELETED: "deleted",
    DivergenceKind.ADDED: "added",
}
_FILES = {
    Files.LEAVE: "The files stay as they are.",
    Files.BACK: "Files that were modified or deleted are put back; files that were added stay.",
    Files.EXACT: "Files that were modified or deleted are put back; files that were added are removed.",
}
#: How many diverged files a card names.
SHOWN = 30


def of_restore(restore: Restore) -> Card:
    """Return the card of a restore in its current state."""
    name = restore.label or restore.checkpoint_id[:8]
    stuck = restore.state is RestoreState.STUCK
    return Card(
        id=restore.id,
        kind=CardKind.RESTORE,
        session_id=restore.session_id,
        workspace_root=restore.workspace_root,
        title=f"Restore stopped: {name}" if stuck else f"Restore checkpoint {name}?",
        created_at=restore.created_at,
        state=_STATES[restore.state],
        body=_body(restore),
        expires_at=restore.expires_at if restore.state is RestoreState.ASKED else None,
        decided=restore.decided,
        note=restore.note or (_STUCK if stuck else None),
        proposal_hash=_hash(restore),
    )


def decided_about(restore: Restore) -> Card:
    """Return the card that the recorded decision was about: the question, or the stuck restore."""
    asked, stuck = (of_restore(evolve(restore, state=state)) for state in (RestoreState.ASKED, RestoreState.STUCK))
    signature = None if restore.decided is None else restore.decided.signature
    if restore.state is not RestoreState.HANDED_OVER or signature is None:
        return asked
    return stuck if signature.subject == subject(stuck) else asked


def _hash(restore: Restore) -> str:
    """Return the hash of what is decided: a label may name several checkpoints."""
    record = [restore.checkpoint_id, restore.files.value, restore.digest]
    return hashlib.sha256(json.dumps(record).encode("ascii")).hexdigest()


_STUCK = "put the files right and proceed, or cancel to leave them as they are"


def _body(restore: Restore) -> str:
    lines = [divergence_line(restore.divergence)]
    lines += [f"{_WORDS[each.kind]}: {each.path}" for each in restore.divergence.first[:SHOWN]]
    if restore.divergence.total > SHOWN:
        lines.append(f"and {restore.divergence.total - SHOWN} more")
    lines += restore.divergence.remarks
    lines.append(_FILES[restore.files])
    lines.append(f"Asked by {restore.asked_by}. The session ends, and another goes on from the checkpoint.")
    return "\n".join(lines)


def divergence_line(found: DivergenceSummary) -> str:
    """Describe in one line how much differs."""
    if not found.total:
        return "No file has changed since."
    return f"Since then {found.modified} modified, {found.deleted} deleted, {found.added} added."
