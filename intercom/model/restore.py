"""A restore: a person's request to return to a checkpoint, from the question to the new session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from intercom.model.checkpoint import Divergence
from intercom.model.verdict import Decided


class Files(StrEnum):
    """What a restore does with the files. `LEAVE` leaves them as they are. `BACK` restores files and keeps those added
    since. `EXACT` also removes those added since."""

    LEAVE = "leave"
    BACK = "back"
    EXACT = "exact"


class RestoreState(StrEnum):
    """The state of a restore. `COMMITTED`: it will be carried out, and nothing has changed yet. `HANDED_OVER`: the old
    session has ended, the new one exists, and files are being restored. `STUCK`: a file is in the way, and a person
    decides. Of the final states, `OUTDATED` was asked again because files had changed, `FAILED` changed nothing, and
    `GIVEN_UP` left the files as they were found."""

    ASKED = "asked"
    ACCEPTED = "accepted"
    COMMITTED = "committed"
    HANDED_OVER = "handed_over"
    DONE = "done"
    STUCK = "stuck"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    OUTDATED = "outdated"
    FAILED = "failed"
    GIVEN_UP = "given_up"


RESTORE_TRANSITIONS: dict[RestoreState, frozenset[RestoreState]] = {
    RestoreState.ASKED: frozenset(
        {RestoreState.ACCEPTED, RestoreState.CANCELLED, RestoreState.EXPIRED, RestoreState.OUTDATED}
    ),
    RestoreState.ACCEPTED: frozenset({RestoreState.COMMITTED, RestoreState.OUTDATED, RestoreState.FAILED}),
    RestoreState.COMMITTED: frozenset({RestoreState.HANDED_OVER, RestoreState.FAILED}),
    RestoreState.HANDED_OVER: frozenset({RestoreState.DONE, RestoreState.STUCK}),
    RestoreState.STUCK: frozenset({RestoreState.HANDED_OVER, RestoreState.GIVEN_UP}),
    RestoreState.DONE: frozenset(),
    RestoreState.CANCELLED: frozenset(),
    RestoreState.EXPIRED: frozenset(),
    RestoreState.OUTDATED: frozenset(),
    RestoreState.FAILED: frozenset(),
    RestoreState.GIVEN_UP: frozenset(),
}

#: States in which a restore waits for a person, and states in which it is carried out.
WAITING = frozenset({RestoreState.ASKED, RestoreState.STUCK})
UNDER_WAY = frozenset({RestoreState.ACCEPTED, RestoreState.COMMITTED, RestoreState.HANDED_OVER})


@frozen
class DivergenceSummary:
    """The differences of the workspace: the number of files of each kind and the first of them by path. `remarks` are
    lines about files that could not be compared or will not be restored."""

    modified: int = 0
    deleted: int = 0
    added: int = 0
    first: tuple[Divergence, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return self.modified + self.deleted + self.added


@frozen
class Restore:
    """A row of `restore`. `session_id` is the session it ends, if still open; `successor_id` is the new one.
    `safety_id` is the checkpoint of the state before the restore. `digest` identifies the differences that were found
    when it was asked. `steps` are the file operations of the restore, once it is committed."""

    id: str
    checkpoint_id: str
    session_id: str
    successor_id: str
    safety_id: str
    workspace_root: str
    state: RestoreState
    files: Files
    asked_by: str
    asked_via: str
    created_at: datetime
    updated_at: datetime
    label: str | None = None
    divergence: DivergenceSummary = field(factory=DivergenceSummary)
    digest: str = ""
    steps: tuple[Mapping[str, Any], ...] = ()
    note: str | None = None
    expires_at: datetime | None = None
    decided: Decided | None = None
