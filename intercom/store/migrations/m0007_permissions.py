"""Leave that clients' permission hooks ask for, and each use that was made of it."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    "alter table approval_request add column tool text",
    """
    create table permission_use (
        request_id text not null references approval_request (id),
        slot text not null,
        turn text not null,
        call text not null,
        used_at text not null,
        primary key (request_id, slot)
    )
    """,
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
