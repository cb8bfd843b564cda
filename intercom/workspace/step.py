"""A step of an apply, as the journal keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from intercom.model.approval import ChangeKind, FileChange


@frozen
class Step:
    """What one file of an apply needs to be finished, or undone before it began, by whoever reads it later.

    `temp` is the staged file's name, beside `path`; None for a deletion. `before_hash` is that of `old_path` for a
    rename. `mode` holds permission bits. `made` are the directories that staging makes, outermost first. `size` is the
    number of bytes of the content to be. `root_inode` is the inode number of the workspace directory, None where it is
    not known.
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
        """Whether this is how exactly this change is made."""
        mine = (self.path, self.old_path, self.change, self.before_hash, self.after_hash)
        return mine == (file.path, file.old_path, file.kind, file.before_hash, file.after_hash)

    def to_json(self) -> dict[str, Any]:
        """The step as JSON holds it."""
        return {**attrs.asdict(self), "made": list(self.made)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Step:
        """What `to_json` gave, also after a journey through JSON, and by an older version."""
        known = {name: data[name] for name in attrs.fields_dict(Step) if name in data}
        return Step(**{**known, "made": tuple(data["made"])})


@frozen
class Written:
    """A file of the workspace that an apply has dealt with: its path, and how many bytes it now holds (0 when it was
    removed)."""

    path: str
    bytes: int
