"""How the text of a proposal was read: as a patch, or as a file's whole content."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute("alter table approval_request add column form text check (form in ('patch', 'content'))")
