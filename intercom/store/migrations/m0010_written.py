"""When words were written to an agent that has not said that it read them: a task among them is nobody else's then."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute("alter table instruction add column written_at text")
