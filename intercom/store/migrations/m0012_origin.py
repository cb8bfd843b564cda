"""Where a decision came from: the process, its terminal and its parent, as JSON."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    for table in ("approval_request", "continuation_prompt", "wait", "restore"):
        db.execute(f"alter table {table} add column decided_origin text")
