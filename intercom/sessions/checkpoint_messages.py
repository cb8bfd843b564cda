"""The protocol of the actor that takes checkpoints and restores them."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.card import Card
from intercom.model.checkpoint import CheckpointLine
from intercom.model.manifest import LeftOut
from intercom.model.restore import Files
from intercom.model.verdict import Verdict


@frozen
class CheckpointTaken:
    """A checkpoint is on record. `left_out` says what of the workspace it does not hold, or can not put back."""

    checkpoint: CheckpointLine
    left_out: tuple[LeftOut, ...] = ()


@frozen
class TakeCheckpoint(Request[CheckpointTaken]):
    """Record how a session and the files of its workspace stand. `id` names the checkpoint that is to be: asked again,
    it is taken once. Refused (`not_found`) for an unknown session, (`file_error`) where its workspace is gone."""

    id: str
    session_id: str
    label: str | None
    by: str
    channel: str


@frozen
class AskRestore(Request[Card]):
    """Compare a checkpoint with its workspace, and ask people whether to go back to it. Answered with the card of that
    question, which every channel is shown. `id` names the restore: asked again, there is one. A question about the same
    session that waits is closed by this one. Refused (`not_found`) for an unknown checkpoint, (`file_error`) where the
    workspace is gone."""

    id: str
    checkpoint_id: str
    files: Files
    by: str
    channel: str


@frozen
class AnswerRestore(Request[Card]):
    """Proceed with a restore, or cancel it; a restore that is stuck is tried again, or given up. Answered, as soon as
    that is on record, with the card; how it goes on is told by cards. Refused (`already_decided`) when another verdict
    was first; the same verdict again is answered as the first time."""

    restore_id: str
    verdict: Verdict


@frozen
class SweepContents:
    """Checkpoints may have gone: contents that none of them names any more can go too."""


@frozen
class LookBack:
    """Told by the actor itself: carry on with what an earlier life of the server left."""


@frozen
class RestoreExpired:
    """A timer: nobody has said whether to proceed with this restore."""

    restore_id: str
