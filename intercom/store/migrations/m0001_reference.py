"""The five tables of the reference, as it gives them."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    """
    create table session (
        id text primary key not null,
        owner_user_id text not null,
        workspace_root text not null,
        status text not null check (status in ('created', 'active', 'paused', 'terminated', 'interrupted')),
        prompt text,
        mode text not null check (mode in ('remote', 'local', 'hybrid')),
        created_at text not null,
        updated_at text not null,
        terminated_at text,
        last_tool text,
        nudge_count integer not null default 0,
        stall_paused integer not null default 0,
        progress_snapshot text
    )
    """,
    """
    create table approval_request (
        id text primary key not null,
        session_id text not null references session (id),
        title text not null,
        description text,
        diff_content text not null,
        file_path text not null,
        risk_level text not null check (risk_level in ('low', 'high', 'critical')),
        status text not null check (
            status in ('pending', 'approved', 'rejected', 'expired', 'consumed', 'interrupted')
        ),
        original_hash text not null,
        slack_ts text,
        created_at text not null,
        consumed_at text
    )
    """,
    """
    create table checkpoint (
        id text primary key not null,
        session_id text not null references session (id),
        label text,
        session_state text not null,
        file_hashes text not null,
        workspace_root text not null,
        progress_snapshot text,
        created_at text not null
    )
    """,
    """
    create table continuation_prompt (
        id text primary key not null,
        session_id text not null references session (id),
        prompt_text text not null,
        prompt_type text not null check (
            prompt_type in ('continuation', 'clarification', 'error_recovery', 'resource_warning')
        ),
        elapsed_seconds integer,
        actions_taken integer,
        decision text,
        instruction text,
        slack_ts text,
        created_at text not null
    )
    """,
    """
    create table stall_alert (
        id text primary key not null,
        session_id text not null references session (id),
        last_tool text,
        last_activity_at text not null,
        idle_seconds integer not null,
        nudge_count integer not null default 0,
        status text not null check (status in ('pending', 'nudged', 'self_recovered', 'escalated', 'dismissed')),
        nudge_message text,
        progress_snapshot text,
        slack_ts text,
        created_at text not null
    )
    """,
    "create index idx_approval_session on approval_request (session_id)",
    "create index idx_checkpoint_session on checkpoint (session_id)",
    "create index idx_prompt_session on continuation_prompt (session_id)",
    "create index idx_stall_session on stall_alert (session_id)",
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
