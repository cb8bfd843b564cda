"""What a checkpoint knows of files besides their hashes, and the restores that are asked for and carried out."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    "alter table checkpoint add column file_facts text",
    "alter table checkpoint add column file_count integer not null default 0",
    "alter table checkpoint add column file_bytes integer not null default 0",
    "alter table checkpoint add column kept_count integer not null default 0",
    "create index idx_checkpoint_created on checkpoint (created_at)",
    """
    create table restore (
        id text primary key not null,
        checkpoint_id text not null,
        session_id text not null,
        successor_id text not null,
        safety_id text not null,
        workspace_root text not null,
        state text not null check (state in
            ('asked', 'accepted', 'committed', 'handed_over', 'done', 'stuck',
             'cancelled', 'expired', 'outdated', 'failed', 'given_up')),
        files text not null check (files in ('leave', 'back', 'exact')),
        label text,
        asked_by text not null,
        asked_via text not null,
        divergence text not null,
        digest text not null,
        steps text,
        note text,
        created_at text not null,
        expires_at text,
        updated_at text not null,
        verdict_id text,
        verdict text,
        decided_by text,
        decided_via text,
        decided_at text,
        decided_text text
    )
    """,
    "create index idx_restore_state on restore (state)",
    "create index idx_restore_successor on restore (successor_id)",
    "create index idx_restore_session on restore (session_id)",
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
