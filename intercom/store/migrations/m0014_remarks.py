"""What the diff of a request cannot show, said in words per file when the request is made, and kept with it."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute("alter table approval_request add column remarks text")
