"""The protocol of the actor that takes and restores checkpoints."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.card import Card
from intercom.model.checkpoint import CheckpointTaken, Files
from intercom.model.decision import Verdict


@frozen
class TakeCheckpoint(Request[CheckpointTaken]):
    """Take a checkpoint of a session and the files of its workspace. `id` names the checkpoint: a repeated request
    takes it once. Refused with `not_found` for an unknown session, `file_error` if its workspace is gone."""

    id: str
    session_id: str
    label: str | None
    by: str
    channel: str


@frozen
class AskRestore(Request[Card]):
    """Compare a checkpoint with its workspace, and ask people whether to restore it. The answer is the card of that
    question, which every channel shows. `id` names the restore: a repeated request makes one. It closes an open
    question about the same session. Refused with `not_found` for an unknown checkpoint, `file_error` if the workspace
    is gone."""

    id: str
    checkpoint_id: str
    files: Files
    by: str
    channel: str


@frozen
class AnswerRestore(Request[Card]):
    """Proceed with a restore, or cancel it. A stuck restore is tried again, or given up. The answer is the card, as
    soon as the decision is recorded; later cards show the progress. Refused with `already_decided` if another decision
    was first. The same decision again is answered like the first time."""

    restore_id: str
    verdict: Verdict


@frozen
class SweepContents:
    """Checkpoints may have been deleted: remove the contents that no checkpoint names any more."""


@frozen
class LookBack:
    """Told by the actor to itself: continue what an earlier server run began."""


@frozen
class RestoreExpired:
    """A timer: nobody has decided this restore in time."""

    restore_id: str
