"""Tasks: requests that a client asks after, instead of keeping a call open."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    """
    create table task (
        id text primary key,
        session_id text not null references session (id),
        request_id text not null,
        tool text not null,
        call text not null,
        created_at text not null,
        cancelled_at text,
        cancelled_by text,
        unique (session_id, call)
    )
    """,
    "create index idx_task_session on task (session_id, created_at, id)",
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
