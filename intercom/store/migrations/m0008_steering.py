"""Who paused a session when; and words for agents that need no session yet, since tasks are left for a workspace."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    "alter table session add column paused_by text",
    "alter table session add column paused_at text",
    # a pause of before this was not put on record with who and when
    "update session set paused_by = '', paused_at = updated_at where status = 'paused'",
    # a column that must be filled can not be made one that may be empty
    "alter table instruction rename to instruction_before",
    "drop index idx_instruction_session",
    """
    create table instruction (
        id text primary key not null,
        session_id text references session (id),
        workspace_root text,
        kind text not null,
        text text not null,
        given_by text not null,
        given_via text not null default '',
        created_at text not null,
        taken_at text,
        delivered_at text,
        closed_at text,
        check (session_id is not null or workspace_root is not null)
    )
    """,
    "insert into instruction (id, session_id, kind, text, given_by, created_at, delivered_at)"
    " select id, session_id, kind, text, given_by, created_at, delivered_at from instruction_before order by rowid",
    "drop table instruction_before",
    "create index idx_instruction_session on instruction (session_id)",
    "create index idx_instruction_workspace on instruction (workspace_root) where workspace_root is not null",
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
