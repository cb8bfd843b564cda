"""One step of an apply, as the journal stores it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from intercom.model.approval import ChangeKind, FileChange


@frozen
class Step:
    """What is needed to finish one file of an apply, or to discard it before the commit.

    `temp` is the staged file's name, beside `path`; None for a deletion. `before_hash` is that of `old_path` for a
    rename. `mode` holds permission bits. `made` are the directories that staging creates, outermost first. `size` is
    the size of the new content in bytes. `root_inode` is the inode number of the workspace directory, None if unknown.
    """

    path: str
    old_path: str | None
    kind: str
    temp: str | None
    before_hash: str
    after_hash: str | None
    mode: int | None
    made: tuple[str, ...] = ()
    size: int = 0
    root_inode: int | None = None

    @property
    def change(self) -> ChangeKind:
        return ChangeKind(self.kind)

    def carries_out(self, file: FileChange) -> bool:
        """Whether this step makes exactly this change."""
        mine = (self.path, self.old_path, self.change, self.before_hash, self.after_hash)
        return mine == (file.path, file.old_path, file.kind, file.before_hash, file.after_hash)

    def to_json(self) -> dict[str, Any]:
        """Return the step as a JSON object."""
        return {**attrs.asdict(self), "made": list(self.made)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Step:
        """Return the step of a `to_json` object, also if that was written by another version."""
        known = {name: data[name] for name in attrs.fields_dict(Step) if name in data}
        return Step(**{**known, "made": tuple(data["made"])})


@frozen
class Written:
    """A file that an apply has written or removed, and its size in bytes (0 if removed)."""

    path: str
    bytes: int
