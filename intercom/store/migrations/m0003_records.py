"""What must outlive a crash besides the requests: applies under way, answers given, words queued, the audit trail."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    """
    create table apply_journal (
        request_id text primary key not null references approval_request (id),
        session_id text not null references session (id),
        workspace_root text not null,
        state text not null check (state in ('staging', 'committed', 'done', 'abandoned', 'stuck')),
        steps text not null,
        note text,
        call text,
        created_at text not null,
        updated_at text not null
    )
    """,
    "create index idx_journal_state on apply_journal (state)",
    "create index idx_journal_session on apply_journal (session_id)",
    """
    create table answered_call (
        name text primary key not null,
        session_id text,
        tool text not null,
        answer text not null,
        created_at text not null
    )
    """,
    "create index idx_call_created on answered_call (created_at)",
    """
    create table instruction (
        id text primary key not null,
        session_id text not null references session (id),
        kind text not null,
        text text not null,
        given_by text not null,
        created_at text not null,
        delivered_at text
    )
    """,
    "create index idx_instruction_session on instruction (session_id)",
    """
    create table audit (
        id integer primary key autoincrement,
        at text not null,
        kind text not null,
        session_id text,
        who text not null,
        summary text not null,
        data text
    )
    """,
    "create index idx_audit_session on audit (session_id)",
    "create index idx_audit_at on audit (at)",
    """
    create table policy_in_force (
        workspace_root text primary key not null,
        sha text not null,
        text text not null,
        accepted_by text not null,
        at text not null
    )
    """,
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
