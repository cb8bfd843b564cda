"""What Slack is to show, the channel of a session, and which reply in a thread answers what."""

from __future__ import annotations

from sqlite_utils import Database

STATEMENTS = (
    "alter table session add column channel_id text",
    """
    create table outbox (
        id integer primary key autoincrement,
        key text not null unique,
        kind text not null check (kind in ('message', 'file')),
        state text not null check (state in ('queued', 'posting', 'posted', 'merged', 'refused')),
        channel text not null,
        session_id text,
        thread text,
        client_id text not null,
        urgency integer not null check (urgency between 0 and 3),
        content text,
        digest text not null,
        chars integer not null,
        lines integer not null,
        version integer not null check (version >= 1),
        shown integer not null default 0 check (shown between 0 and version),
        interim text,
        interim_until text,
        open integer not null default 0 check (open in (0, 1)),
        ts text,
        file_id text,
        attempts integer not null default 0,
        first_at text,
        not_before text,
        last_error text,
        merged_into integer,
        created_at text not null,
        posted_at text
    )
    """,
    # What waits is found by these, however many rows are done.
    "create index idx_outbox_waiting on outbox (channel, urgency, id) where state in ('queued', 'posting')",
    "create index idx_outbox_stale on outbox (channel, urgency, id) where state = 'posted' and shown < version",
    "create index idx_outbox_interim on outbox (channel, id) where interim is not null",
    "create index idx_outbox_due on outbox (not_before) where not_before is not null",
    "create index idx_outbox_open on outbox (id) where open = 1",
    "create index idx_outbox_merged on outbox (merged_into) where merged_into is not null",
    "create index idx_outbox_ts on outbox (channel, ts) where ts is not null",
    "create index idx_outbox_session on outbox (session_id)",
    "create index idx_outbox_created on outbox (created_at)",
    """
    create table slack_question (
        channel text not null,
        thread text not null,
        card_id text not null,
        decision text not null,
        asked_of text not null,
        at text not null,
        primary key (channel, thread)
    )
    """,
)


def apply(db: Database) -> None:
    for statement in STATEMENTS:
        db.execute(statement)
