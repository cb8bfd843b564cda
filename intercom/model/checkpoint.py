"""Checkpoints: a session's state and its files at one instant, how the files differ since, and the wish to go back.

It is stored in two parts: the hashes of regular files, which other programs read too, and the remaining facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from intercom.model.decision import Decided
from intercom.model.json_types import JsonObject
from intercom.model.session import ProgressItem


@frozen
class FileState:
    """One file. `hash` is the SHA-256 of its bytes; for a symbolic link it is that of the target, which is `link`.
    `mode` holds the permission bits, or 0 for a link. `kept` means that its content can be restored."""

    hash: str
    mode: int
    link: str | None = None
    kept: bool = True

    @property
    def fingerprint(self) -> str:
        """Kind and content as one text. States with one fingerprint have the same content; their modes may differ."""
        return f"{'file' if self.link is None else 'link'}:{self.hash}"


@frozen
class LeftOut:
    """A reason why files are not in a manifest, their number (at least), and some examples."""

    why: str
    count: int
    examples: tuple[str, ...] = ()


@frozen
class Manifest:
    """The files of a workspace. `files` is keyed by the path in the workspace, with `/` between names; `size` is their
    total size in bytes. `whole` is false if a limit ended the scan early. `skipped` are paths, also of directories,
    that were seen but could not be included. `unclear` are requested paths that could not be read. `root_id` identifies
    the workspace directory, if this was just made from it."""

    files: Mapping[str, FileState]
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()
    whole: bool = True
    skipped: tuple[str, ...] = ()
    unclear: frozenset[str] = field(default=frozenset(), eq=False)
    root_id: int | None = field(default=None, eq=False)

    def hashes(self) -> dict[str, str]:
        """Return the hashes of the regular files, by path."""
        return {path: state.hash for path, state in self.files.items() if state.link is None}

    def facts(self) -> JsonObject:
        """Return everything else, as JSON data. The most common mode is stored only once."""
        regular = {path: state for path, state in self.files.items() if state.link is None}
        common = Counter(state.mode for state in regular.values()).most_common(1)
        mode = common[0][0] if common else 0o644
        return {
            "mode": mode,
            "modes": {path: state.mode for path, state in regular.items() if state.mode != mode},
            "links": {path: [state.hash, state.link] for path, state in self.files.items() if state.link is not None},
            "not_kept": [path for path, state in regular.items() if not state.kept],
            "size": self.size,
            "whole": self.whole,
            "skipped": list(self.skipped),
            "left_out": [[each.why, each.count, list(each.examples)] for each in self.left_out],
        }


def manifest_of(hashes: Mapping[str, str], facts: Mapping[str, Any]) -> Manifest:
    """Rebuild a manifest from its `hashes` and `facts`, which may have been stored as JSON. Without facts (a row of
    another program) it is not whole, and no content is kept."""
    mode, modes = facts.get("mode", 0o644), facts.get("modes", {})
    not_kept = set(facts.get("not_kept", ())) if facts else set(hashes)
    files = {path: FileState(hash, modes.get(path, mode), None, path not in not_kept) for path, hash in hashes.items()}
    files |= {path: FileState(hash, 0, target) for path, (hash, target) in facts.get("links", {}).items()}
    return Manifest(
        files=files,
        size=facts.get("size", 0),
        left_out=tuple(LeftOut(why, count, tuple(some)) for why, count, some in facts.get("left_out", ())),
        whole=facts.get("whole", False),
        skipped=tuple(facts.get("skipped", ())),
    )


class DivergenceKind(StrEnum):
    MODIFIED = "modified"
    DELETED = "deleted"
    ADDED = "added"


@frozen
class Divergence:
    """A file that differs from the checkpoint."""

    path: str
    kind: DivergenceKind


@frozen
class Checkpoint:
    """A row of `checkpoint`. `file_hashes` covers regular files. `file_facts` holds the rest: modes, links, omissions.
    Together they are a `Manifest`."""

    id: str
    session_id: str
    session_state: Mapping[str, Any]
    file_hashes: Mapping[str, str]
    workspace_root: str
    created_at: datetime
    label: str | None = None
    progress_snapshot: tuple[ProgressItem, ...] | None = None
    file_facts: Mapping[str, Any] = field(factory=dict)

    @property
    def manifest(self) -> Manifest:
        return manifest_of(self.file_hashes, self.file_facts)


@frozen
class CheckpointLine:
    """A checkpoint as a list shows it. `files` and `size` (bytes) describe its workspace. `kept` is the number of files
    that can be restored."""

    id: str
    session_id: str
    workspace_root: str
    created_at: datetime
    label: str | None = None
    files: int = 0
    size: int = 0
    kept: int = 0


@frozen
class CheckpointTaken:
    """A recorded checkpoint. `left_out` lists what of the workspace it does not hold, or cannot put back."""

    checkpoint: CheckpointLine
    left_out: tuple[LeftOut, ...] = ()


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
#: States in which what was staged for a restore is discarded.
CLEANED_UP = frozenset({RestoreState.FAILED, RestoreState.GIVEN_UP})


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
    when it was asked."""

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
    note: str | None = None
    expires_at: datetime | None = None
    decided: Decided | None = None
