"""A restore: a person's wish to go back to a checkpoint, from the question to the session that follows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from intercom.model.checkpoint import Divergence
from intercom.model.verdict import Decided


class Files(StrEnum):
    """What becomes of the files: left as they are; put back, and those added since left; or made exactly as they were,
    those added since removed."""

    LEAVE = "leave"
    BACK = "back"
    EXACT = "exact"


class RestoreState(StrEnum):
    """`COMMITTED`: it will be carried through, and nothing has changed yet. `HANDED_OVER`: the old session has ended
    and the new one is there; files are being put back. `STUCK`: a file stands in the way, and a person decides. The
    others are ends: `OUTDATED` was asked anew because files had changed, `FAILED` changed nothing, `GIVEN_UP` left the
    files as they were found."""

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

#: Where a restore waits for a person, and where it is being carried out.
WAITING = frozenset({RestoreState.ASKED, RestoreState.STUCK})
UNDER_WAY = frozenset({RestoreState.ACCEPTED, RestoreState.COMMITTED, RestoreState.HANDED_OVER})


@frozen
class DivergenceSummary:
    """How the workspace differs: how many files of each kind, the first of them by path, and lines about what could not
    be compared or will not be put back."""

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
    """A row of `restore`. `session_id` is the session that it ends (if it is not over), `successor_id` the one that
    follows, `safety_id` the checkpoint of how things were before it. `digest` names what was found to differ when it
    was asked; `steps` are what putting the files back takes, once it is committed."""

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
