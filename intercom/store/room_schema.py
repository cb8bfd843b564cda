"""The rooms' tables on SQLite and on PostgreSQL, and the migrations from one version of them to the next.

Both databases have one text, with their own types filled in. Every key begins with the room's id, so that the tables
can be spread over several PostgreSQL servers by it. docs/reference/rooms-database.md has each column.

`FIRST` is the schema of the first version. A change to it is a new `RoomMigration` with the next number. Migrations
only go forward; each is applied once, and recorded in `schema_version`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import DatabaseError
from intercom.store import rows
from intercom.store.rows import Connection
from intercom.store.schema import Migration

#: The most characters of a room's texts that PostgreSQL's index has: a `tsvector` may not exceed a megabyte.
INDEXED_CHARACTERS = 120_000

#: What is filled in. On SQLite, `number` is a row's own number, which its full text index knows it by: a hidden rowid
#: may change when somebody runs VACUUM.
SQLITE_WORDS = {
    "id": "text",
    "time": "text",
    "json": "text",
    "big": "integer",
    "key": "unique",
    "number": "number integer primary key,",
    "message_words": "",
    "session_words": "",
}
POSTGRESQL_WORDS = {
    "id": "uuid",
    "time": "timestamptz",
    "json": "jsonb",
    "big": "bigint",
    "key": "primary key",
    "number": "",
    "message_words": (
        ", words tsvector generated always as (to_tsvector('simple', coalesce(content ->> 'text', ''))) stored"
    ),
    "session_words": (
        ", words tsvector generated always as (to_tsvector('simple',"
        f" left(title || ' ' || description || ' ' || session_doc, {INDEXED_CHARACTERS}))) stored"
    ),
}

FIRST = (
    # Rooms. The document is the last column: SQLite reads a row up to the last column that is asked for.
    """
    create table sessions (
        {number}
        id {id} not null {key},
        title text not null,
        description text not null,
        created_by_team_id {id} not null,
        created_at {time} not null,
        updated_at {time} not null,
        status text not null check (status in ('active', 'closed')),
        closed_at {time},
        last_sequence {big} not null default 0,
        session_doc_version integer not null default 0,
        paused_at {time},
        paused_by text,
        pause_reason text,
        messages_since_progress integer not null default 0,
        acts_since_person integer not null default 0,
        conclusion text,
        passcode_hash text,
        has_concluder integer not null default 0 check (has_concluder in (0, 1)),
        session_doc text not null default ''
        {session_words}
    )
    """,
    # The list of rooms, newest first.
    "create index idx_sessions_created on sessions (created_at, id)",
    "create index idx_sessions_status on sessions (status, created_at, id)",
    # Teams.
    """
    create table participants (
        session_id {id} not null references sessions (id),
        team_id {id} not null,
        team_name text not null,
        role text not null check (role in ('member', 'reader', 'operator', 'concluder')),
        token_hash text not null,
        joined_at {time} not null,
        last_seen_at {time} not null,
        cursor {big} not null default 0,
        left_at {time},
        dropped_at {time},
        primary key (session_id, team_id)
    )
    """,
    # Finds the other rooms of a team, if a team may be in one room only.
    "create index idx_participants_name on participants (team_name)",
    # Feeds. Rows are never changed or deleted.
    """
    create table messages (
        {number}
        session_id {id} not null references sessions (id),
        sequence {big} not null check (sequence > 0),
        id text not null,
        posted_by_team_id {id},
        author text,
        role text check (role in ('member', 'reader', 'operator', 'concluder')),
        type text not null check (type in ('chat', 'system')),
        content {json} not null,
        posted_at {time} not null,
        key text
        {message_words},
        {key} (session_id, sequence),
        unique (session_id, id)
    )
    """,
    # Messages without a key do not collide.
    "create unique index idx_messages_key on messages (session_id, posted_by_team_id, key) where key is not null",
    # Which teams have read which message.
    """
    create table message_acks (
        session_id {id} not null references sessions (id),
        sequence {big} not null,
        team_id {id} not null,
        team_name text not null,
        at {time} not null,
        primary key (session_id, sequence, team_id)
    )
    """,
    # All versions of the documents.
    """
    create table session_doc_history (
        session_id {id} not null references sessions (id),
        version integer not null check (version > 0),
        content text not null,
        written_by_team_id {id},
        author text not null,
        written_at {time} not null,
        act text not null,
        primary key (session_id, version),
        unique (session_id, act)
    )
    """,
    # Settings that all nodes share.
    "create table room_setting (name text primary key not null, value text not null)",
)

#: Full text on SQLite: indexes over the texts where they are, kept up to date by triggers.
FIRST_ON_SQLITE = (
    "create view message_text as"
    " select number, case type when 'chat' then json_extract(content, '$.text') end as text from messages",
    "create virtual table message_search using fts5"
    " (text, content = 'message_text', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 0')",
    "create virtual table session_search using fts5 (title, description, session_doc,"
    " content = 'sessions', content_rowid = 'number', tokenize = 'unicode61 remove_diacritics 0')",
    """
    create trigger message_added after insert on messages when new.type = 'chat' begin
        insert into message_search (rowid, text) values (new.number, json_extract(new.content, '$.text'));
    end
    """,
    """
    create trigger session_added after insert on sessions begin
        insert into session_search (rowid, title, description, session_doc)
        values (new.number, new.title, new.description, new.session_doc);
    end
    """,
    """
    create trigger session_changed after update of title, description, session_doc on sessions begin
        insert into session_search (session_search, rowid, title, description, session_doc)
        values ('delete', old.number, old.title, old.description, old.session_doc);
        insert into session_search (rowid, title, description, session_doc)
        values (new.number, new.title, new.description, new.session_doc);
    end
    """,
)

#: Full text on PostgreSQL: the columns `words`.
FIRST_ON_POSTGRESQL = (
    "create index idx_messages_words on messages using gin (words)",
    "create index idx_sessions_words on sessions using gin (words)",
)


LINKED_EVIDENCE = (
    # Copies of gateways' records, which may be large: `record` is the last column, as the document is in `sessions`.
    # Their JSON is text on both databases, because `jsonb` refuses NUL, which a tool may return. Rows are never changed
    # or deleted.
    """
    create table linked_evidence (
        session_id {id} not null references sessions (id),
        evidence_id text not null,
        author text not null,
        linked_at {time} not null,
        linked_by_team_id {id},
        record text not null,
        primary key (session_id, evidence_id)
    )
    """,
)


@frozen
class RoomMigration:
    """A step to version `number` of the schema: statements for both databases, then those for one of them."""

    number: int
    name: str
    statements: Sequence[str] = ()
    on_sqlite: Sequence[str] = ()
    on_postgresql: Sequence[str] = ()

    def for_sqlite(self) -> tuple[str, ...]:
        return (*_filled_in(self.statements, SQLITE_WORDS), *self.on_sqlite)

    def for_postgresql(self) -> tuple[str, ...]:
        return (*_filled_in(self.statements, POSTGRESQL_WORDS), *self.on_postgresql)


def _filled_in(statements: Sequence[str], words: Mapping[str, str]) -> tuple[str, ...]:
    return tuple([statement.format_map(words) for statement in statements])


#: In order, without gaps.
MIGRATIONS = (
    RoomMigration(1, "first", FIRST, FIRST_ON_SQLITE, FIRST_ON_POSTGRESQL),
    RoomMigration(2, "linked evidence", LINKED_EVIDENCE),
)

LATEST = MIGRATIONS[-1].number

# --- SQLite ----------------------------------------------------------------------------------------------------------


def _run(statements: Sequence[str]) -> Callable[[Database], None]:
    def apply(db: Database) -> None:
        for statement in statements:
            db.execute(statement)

    return apply


#: The same, as `open_database` and `Writer` take them.
SQLITE = tuple([Migration(step.number, step.name, _run(step.for_sqlite())) for step in MIGRATIONS])


def newest_message(db: Connection) -> int:
    """Return a number that rises with every message. SQLite only."""
    return rows.count(db, "select coalesce(max(number), 0) from messages")


# --- PostgreSQL ------------------------------------------------------------------------------------------------------

#: The key of the lock that a node holds while it migrates.
_LOCK = 74_230_016

_TABLES = (
    *("sessions", "participants", "messages", "message_acks", "session_doc_history", "room_setting"),
    "linked_evidence",
)


def migrate_postgresql(db: Connection, at: datetime, migrations: Sequence[RoomMigration] = MIGRATIONS) -> int:
    """Apply the migrations that the database lacks; return the version it had, 0 for none.

    `db` is in a transaction, which the caller commits. Nodes that start at once wait for each other. Raises
    DatabaseError, before anything is changed, if the schema is newer than this program (code version_mismatch) or the
    tables belong to another program.
    """
    rows.value(db, "select pg_advisory_xact_lock(?)", (_LOCK,))
    before = version_on_postgresql(db)
    latest = migrations[-1].number
    if before > latest:
        raise DatabaseError(
            f"the rooms' database was written by a newer version (schema {before}, this program knows {latest});"
            " upgrade agent-intercom, or use another database",
            code="version_mismatch",
            found=before,
            known=latest,
        )
    missing = [step for step in migrations if step.number > before]
    if missing:
        db.execute(
            "create table if not exists schema_version"
            " (version integer primary key, name text not null, applied_at text not null)"
        )
    for step in missing:
        for statement in step.for_postgresql():
            db.execute(statement)
        row = {"version": step.number, "name": step.name, "applied_at": clock.to_text(at)}
        rows.insert(db, "schema_version", row, conflict="do nothing")
    return before


def version_on_postgresql(db: Connection) -> int:
    """Return the version of the schema; 0 for a database without the rooms' tables. Raises DatabaseError if it has
    such tables and no record of ours: they belong to another program."""
    tables = set(rows.column(db, "select tablename from pg_tables where schemaname = current_schema()"))
    if "schema_version" in tables:
        return rows.count(db, "select coalesce(max(version), 0) from schema_version")
    if taken := sorted(tables.intersection(_TABLES)):
        raise DatabaseError(f"the database has a table {taken[0]} of another program; create an empty one for rooms")
    return 0
