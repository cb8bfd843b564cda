"""Lines of a request's diff that hold secrets, as they may leave the machine: known when the diff is made."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    db.execute("alter table approval_request add column masked text")
