"""The policy content in force per workspace, so that a restart does not let a widening through unseen."""

from __future__ import annotations

from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.store import rows


def get(db: Database, root: str) -> tuple[str, str] | None:
    """The (SHA-256 in hex, text) accepted last for a workspace root, or None."""
    row = rows.one(db, "select sha, text from policy_in_force where workspace_root = ?", (root,))
    return None if row is None else (row["sha"], row["text"])


def put(db: Database, root: str, sha: str, text: str, by: str, at: datetime) -> None:
    """Set what is in force for a workspace root; `by` names who accepted it, or says why nobody had to."""
    row = {"workspace_root": root, "sha": sha, "text": text, "accepted_by": by, "at": clock.to_text(at)}
    replaced = ", ".join(f"{name} = excluded.{name}" for name in row if name != "workspace_root")
    rows.insert(db, "policy_in_force", row, conflict=f"(workspace_root) do update set {replaced}")
