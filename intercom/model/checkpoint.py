"""A checkpoint: a session's state and its workspace files at one instant, and the differences since."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from intercom.model.manifest import Manifest, manifest_of
from intercom.model.session import ProgressItem


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
