"""Agents that people started: which process is whose, for a server that comes after one that was killed."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    """
    create table child (
        session_id text primary key not null references session (id),
        state text not null check (state in ('starting', 'running', 'waiting', 'ending', 'over')),
        created_at text not null,
        started_by text not null,
        label text,
        run integer not null default 1,
        restarts integer not null default 0,
        keeper_pid integer,
        keeper_began real,
        pid integer,
        began real,
        ran_at text,
        restart_at text,
        why text check (why in ('ended', 'not_started', 'cleared', 'shutdown')),
        exit_code integer,
        exit_signal integer,
        exit_oom integer not null default 0,
        exited integer not null default 0,
        said text
    )
    """,
    "create index idx_child_state on child (state)",
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
