"""Which approved request another one takes the place of, because a file has changed since."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute("alter table approval_request add column replaces text")
