"""A checkpoint: a session's state and the hashes of its workspace at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import frozen

from intercom.model.session import ProgressItem


@frozen
class Checkpoint:
    id: str
    session_id: str
    session_state: Mapping[str, Any]
    file_hashes: Mapping[str, str]
    workspace_root: str
    created_at: datetime
    label: str | None = None
    progress_snapshot: tuple[ProgressItem, ...] | None = None
