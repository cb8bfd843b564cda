"""A policy counts when a person accepted its content. What was in force before was accepted by nobody, so it goes."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    "drop table policy_in_force",
    """
    create table policy_decision (
        seq integer primary key autoincrement,
        id text unique not null,
        workspace_root text not null,
        sha text not null,
        text text not null,
        accepted integer not null check (accepted in (0, 1)),
        verdict_id text not null,
        verdict text not null,
        decided_by text not null,
        decided_via text not null,
        decided_at text not null,
        decided_text text,
        decided_origin text
    )
    """,
    "create index idx_policy_decision_root on policy_decision (workspace_root)",
    """
    create table policy_narrowing (
        workspace_root text primary key not null,
        text text not null,
        at text not null
    )
    """,
    "alter table approval_request add column policy_question text",
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
