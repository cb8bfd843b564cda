"""What waits for a person: verdicts by their own id, deadlines, delivery, standbys, and the files of a proposal."""

from __future__ import annotations

from sqlite_utils import Database

#: What every request carries: what it waits under, until when, the verdict that won, and when the agent got it.
#: `closed_at` is when it ended without a verdict.
_REQUEST_COLUMNS = (
    "expires_at text",
    "call text",
    "verdict_id text",
    "verdict text",
    "decided_by text",
    "decided_via text",
    "decided_at text",
    "decided_text text",
    "delivered_at text",
    "closed_at text",
)

_WAIT_STATUS = "check (status in ('pending', 'decided', 'expired', 'interrupted'))"


def apply(db: Database) -> None:
    for column in ("agent_key text", "client_name text"):
        db.execute(f"alter table session add column {column}")
    db.execute(
        "create unique index idx_session_agent on session (agent_key)"
        " where agent_key is not null and status <> 'terminated'"
    )
    db.execute("create index idx_session_status on session (status)")

    for column in ("key text not null default ''", "auto_rule text", "preview text", *_REQUEST_COLUMNS):
        db.execute(f"alter table approval_request add column {column}")
    db.execute("create index idx_approval_key on approval_request (key)")
    db.execute("create index idx_approval_status on approval_request (status)")
    db.execute(
        """
        create table approval_file (
            request_id text not null references approval_request (id),
            position integer not null,
            path text not null,
            kind text not null check (kind in ('write', 'create', 'delete', 'rename')),
            before_hash text not null,
            after_hash text,
            old_path text,
            mode integer,
            added integer not null default 0,
            removed integer not null default 0,
            primary key (request_id, position)
        )
        """
    )

    for column in (f"status text not null default 'pending' {_WAIT_STATUS}", *_REQUEST_COLUMNS):
        db.execute(f"alter table continuation_prompt add column {column}")
    db.execute("update continuation_prompt set status = 'decided' where decision is not null")
    db.execute("create index idx_prompt_status on continuation_prompt (status)")

    db.execute(
        f"""
        create table wait (
            id text primary key not null,
            session_id text not null references session (id),
            message text not null,
            status text not null {_WAIT_STATUS},
            instruction text,
            slack_ts text,
            created_at text not null,
            {", ".join(_REQUEST_COLUMNS)}
        )
        """
    )
    db.execute("create index idx_wait_session on wait (session_id)")
    db.execute("create index idx_wait_status on wait (status)")

    db.execute("alter table stall_alert add column updated_at text")
    # one quiet agent, one open alert: of several from before this rule, the newest stays
    active = "status in ('pending', 'nudged', 'escalated')"
    db.execute(
        f"update stall_alert set status = 'dismissed' where {active} and exists (select 1 from stall_alert as later"
        f" where later.session_id = stall_alert.session_id and later.{active} and later.rowid > stall_alert.rowid)"
    )
    db.execute(f"create unique index idx_stall_active on stall_alert (session_id) where {active}")
