"""The hash that names exactly what a person decides about, and which directory the workspace was."""

from __future__ import annotations

from sqlite_utils import Database

from intercom.model.approval import ChangeKind, FileChange, RiskLevel, proposal_hash
from intercom.store import rows
from intercom.store.rows import Row


def apply(db: Database) -> None:
    db.execute("alter table approval_request add column proposal_hash text not null default ''")
    db.execute("alter table approval_request add column root_inode text")
    # What waits, or waits to be applied, goes on under the hash that it would have been given.
    unfinished = rows.every(
        db,
        "select request.*, session.workspace_root as root from approval_request as request"
        " join session on session.id = request.session_id where request.status in ('pending', 'approved')",
    )
    for row in unfinished:
        rows.changed(db, "update approval_request set proposal_hash = ? where id = ?", (_hash(db, row), row["id"]))


def _hash(db: Database, row: Row) -> str:
    # Read here, not by the store's own functions: those know columns that later steps add.
    found = rows.every(db, "select * from approval_file where request_id = ? order by position", (row["id"],))
    files = [
        FileChange(
            file["path"],
            ChangeKind(file["kind"]),
            file["before_hash"],
            file["after_hash"],
            file["old_path"],
            file["mode"],
        )
        for file in found
    ]
    operation = None if row["tool"] is None else row["key"]
    return proposal_hash(row["session_id"], row["root"], RiskLevel(row["risk_level"]), files, operation=operation)
