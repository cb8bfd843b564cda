"""When Slack was last asked to post a message: whoever sends after a crash knows for how long it may still come."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute("alter table outbox add column asked_at text")
