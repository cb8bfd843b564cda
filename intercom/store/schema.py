"""The database's tables, and the migrations from one version of them to the next.

`BASELINE_TABLES` is the schema at version 22, into which the earlier, unreleased migrations were squashed.
A change to it is a new `Migration` with the next number; its statements are in `schema_changes`. Migrations only go
forward; each is applied once, and recorded in `schema_version`. docs/reference/database.md has each column.

A table whose rows belong to a session also needs a line in `_OF_A_SESSION` of `intercom.store.retention`. Otherwise its
rows prevent that an old session is deleted, or stay after it if no key refers to the session.

Times are text that sorts by time (`intercom.model.clock`), flags are 0 or 1, lists and objects are JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.errors import DatabaseError
from intercom.store import rows
from intercom.store.schema_changes import (
    AMENDMENTS,
    API_TOKENS,
    GATEWAY,
    GRANTS,
    PUSH_SUBSCRIPTIONS,
    SCOPES,
    SPAWNED_AGENTS,
    UNSENT_DECISIONS,
    note_what_was_asked,
)

# The columns that all requests for a person have. Decisions: which one won, by its own id, and the operator's signature
# of it. `closed_at` is set if the request ended without a decision, `delivered_at` when the agent has the answer.
_REQUEST = """
        expires_at text,
        call text,
        verdict_id text,
        verdict text,
        decided_by text,
        decided_via text,
        decided_at text,
        decided_text text,
        delivered_at text,
        closed_at text"""

_REQUEST_STATUS = "check (status in ('pending', 'decided', 'expired', 'interrupted'))"

#: The condition of the index on the end of instructions: SQLite uses it only for queries with the same condition.
ENDS_OF_INSTRUCTIONS = (
    "kind in ('nudge_delivered', 'nudge_taken_back', 'steer_delivered', 'steer_taken_back', 'task_delivered',"
    " 'task_taken_back', 'standby_ended')"
)

#: The schema at version 22, into which the earlier, unreleased migrations were squashed.
BASELINE_TABLES = (
    # Agents' sessions. The columns up to `progress_snapshot` are part of the contract: their names are given from
    # outside, and stay. So are the first columns of `approval_request`, `checkpoint`, `continuation_prompt` and
    # `stall_alert`.
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
        progress_snapshot text,
        agent_key text,
        client_name text,
        channel_id text,
        paused_by text,
        paused_at text
    )
    """,
    "create index idx_session_status on session (status)",
    # An agent has at most one session that is not terminated.
    "create unique index idx_session_agent on session (agent_key)"
    " where agent_key is not null and status <> 'terminated'",
    #
    # Requests for a person.
    #
    # Proposed changes to files, and operations that clients' permission hooks ask about (`tool`).
    f"""
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
        consumed_at text,
        key text not null default '',
        auto_rule text,
        preview text,{_REQUEST},
        tool text,
        decided_origin text,
        proposal_hash text not null default '',
        root_inode text,
        remarks text,
        policy_question text,
        replaces text,
        signature text,
        masked text,
        form text check (form in ('patch', 'content'))
    )
    """,
    "create index idx_approval_session on approval_request (session_id)",
    "create index idx_approval_key on approval_request (key)",
    "create index idx_approval_status on approval_request (status)",
    # The files of an approval request, before and after.
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
    """,
    # Which hooks were told that an approved operation may go on: each hook (`slot`) once for each request.
    """
    create table permission_use (
        request_id text not null references approval_request (id),
        slot text not null,
        turn text not null,
        call text not null,
        used_at text not null,
        primary key (request_id, slot)
    )
    """,
    # Agents' questions whether and how to continue.
    f"""
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
        created_at text not null,
        status text not null default 'pending' {_REQUEST_STATUS},{_REQUEST},
        decided_origin text,
        signature text
    )
    """,
    "create index idx_prompt_session on continuation_prompt (session_id)",
    "create index idx_prompt_status on continuation_prompt (status)",
    # Agents on standby, which wait for work.
    f"""
    create table wait (
        id text primary key not null,
        session_id text not null references session (id),
        message text not null,
        status text not null {_REQUEST_STATUS},
        instruction text,
        slack_ts text,
        created_at text not null,{_REQUEST},
        decided_origin text,
        signature text
    )
    """,
    "create index idx_wait_session on wait (session_id)",
    "create index idx_wait_status on wait (status)",
    # Requests that a client polls (MCP tasks), instead of keeping its call open.
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
    # Agents that went quiet. A session has at most one alert that is open.
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
        created_at text not null,
        updated_at text
    )
    """,
    "create index idx_stall_session on stall_alert (session_id)",
    "create unique index idx_stall_active on stall_alert (session_id)"
    " where status in ('pending', 'nudged', 'escalated')",
    # People's messages to agents, and the tasks that wait for an agent of a session or of a workspace.
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
        written_at text,
        signature text,
        check (session_id is not null or workspace_root is not null)
    )
    """,
    "create index idx_instruction_session on instruction (session_id)",
    "create index idx_instruction_workspace on instruction (workspace_root) where workspace_root is not null",
    #
    # Checkpoints, and what changes files.
    #
    # A session's state and its files' hashes at one moment. The contents are in a database of their own.
    """
    create table checkpoint (
        id text primary key not null,
        session_id text not null references session (id),
        label text,
        session_state text not null,
        file_hashes text not null,
        workspace_root text not null,
        progress_snapshot text,
        created_at text not null,
        file_facts text,
        file_count integer not null default 0,
        file_bytes integer not null default 0,
        kept_count integer not null default 0
    )
    """,
    "create index idx_checkpoint_session on checkpoint (session_id)",
    "create index idx_checkpoint_created on checkpoint (created_at)",
    # Requests to return to a checkpoint, and how far each was carried out. No foreign keys: a restore outlives its
    # checkpoint, and names its successor before that session exists.
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
        decided_text text,
        decided_origin text,
        signature text
    )
    """,
    "create index idx_restore_state on restore (state)",
    "create index idx_restore_successor on restore (successor_id)",
    "create index idx_restore_session on restore (session_id)",
    # Approved changes that are being written, so that a crash leaves all of a change or nothing.
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
    #
    # Decisions as evidence, and who may decide.
    #
    # What was done by whom, chained by hash. The number of the newest entry outlives the entry (autoincrement).
    """
    create table audit (
        id integer primary key autoincrement,
        at text not null,
        kind text not null,
        session_id text,
        who text not null,
        summary text not null,
        data text,
        previous text,
        hash text
    )
    """,
    "create index idx_audit_session on audit (session_id)",
    "create index idx_audit_at on audit (at)",
    f"create index idx_audit_words on audit (kind) where {ENDS_OF_INSTRUCTIONS}",
    # People's decisions about the contents of workspaces' policy files.
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
        decided_origin text,
        signature text
    )
    """,
    "create index idx_policy_decision_root on policy_decision (workspace_root)",
    # What the policy file has removed from an accepted policy since: it stays removed after a restart.
    """
    create table policy_narrowing (
        workspace_root text primary key not null,
        text text not null,
        at text not null
    )
    """,
    # Processes of agents, which may not decide, also after a restart of the server. A pid alone names no process.
    """
    create table agent_process (
        pid integer not null,
        started integer not null,
        boot text not null,
        leader integer not null,
        leader_started integer not null,
        role text not null check (role in ('client', 'driver', 'ancestor', 'started')),
        session_id text not null default '',
        recorded_at text not null,
        primary key (boot, pid, started, session_id)
    )
    """,
    # Terminals that somebody has decided from: the first decision from a new one is reported.
    """
    create table operator_terminal (
        boot text not null,
        leader integer not null,
        leader_started integer not null,
        terminal text not null,
        first_at text not null,
        primary key (boot, leader, leader_started, terminal)
    )
    """,
    # The operator keys that were enrolled, each row signed.
    "create table operator_key (id text primary key, public text not null, name text not null,"
    " added_at text not null, added_by text not null, added_signature text not null,"
    " revoked_at text, revoked_by text, revoked_signature text)",
    # Signed commands that were carried out: a signature counts once.
    "create table signed_command (decision_id text primary key, at text not null)",
    #
    # What makes a repeated act safe, and what must reach others.
    #
    # The answers of calls and acts that had an effect: repeating one gives its first answer.
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
    # The processes of agents that people started, for a server that follows one that was killed.
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
    # What Slack is to show: one row for each message or file.
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
        posted_at text,
        asked_at text
    )
    """,
    # These find what waits, however many rows are finished.
    "create index idx_outbox_waiting on outbox (channel, urgency, id) where state in ('queued', 'posting')",
    "create index idx_outbox_stale on outbox (channel, urgency, id) where state = 'posted' and shown < version",
    "create index idx_outbox_interim on outbox (channel, id) where interim is not null",
    "create index idx_outbox_due on outbox (not_before) where not_before is not null",
    "create index idx_outbox_open on outbox (id) where open = 1",
    "create index idx_outbox_merged on outbox (merged_into) where merged_into is not null",
    "create index idx_outbox_ts on outbox (channel, ts) where ts is not null",
    "create index idx_outbox_session on outbox (session_id)",
    "create index idx_outbox_created on outbox (created_at)",
    # Questions in Slack threads: what the next reply there answers.
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


def _run(statements: Sequence[str], then: Callable[[Database], None] | None = None) -> Callable[[Database], None]:
    def apply(db: Database) -> None:
        for statement in statements:
            db.execute(statement)
        if then is not None:
            then(db)

    return apply


@frozen
class Migration:
    """A step to version `number` of the schema. `apply` runs inside a transaction."""

    number: int
    name: str
    apply: Callable[[Database], None]


#: In order, without gaps. The first creates the schema from nothing; its recorded name is not changed. Its number is
#: that of the last schema before the first release, so that databases of that time remain readable.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(22, "first", _run(BASELINE_TABLES)),
    Migration(23, "spawned agents, signed acts", _run(SPAWNED_AGENTS)),
    Migration(24, "scopes of answers", _run(SCOPES)),
    Migration(25, "gateway", _run(GATEWAY)),
    Migration(26, "amendments", _run(AMENDMENTS)),
    Migration(27, "grants", _run(GRANTS)),
    Migration(28, "unsent decisions, what was asked", _run(UNSENT_DECISIONS, note_what_was_asked)),
    Migration(29, "tokens of programs", _run(API_TOKENS)),
    Migration(30, "push subscriptions", _run(PUSH_SUBSCRIPTIONS)),
)

FIRST = MIGRATIONS[0].number
LATEST = MIGRATIONS[-1].number


def version(db: Database) -> int:
    """Return the version of the schema; 0 for an empty database.

    Raises DatabaseError if the file has tables but no record of ours: it belongs to another program.
    """
    tables = set(rows.column(db, "select name from sqlite_master where type = 'table'"))
    if not tables:
        return 0
    if "schema_version" not in tables:
        raise DatabaseError(
            "the database belongs to another program (it has no schema_version table);"
            " set [database] path to another file"
        )
    return rows.count(db, "select coalesce(max(version), 0) from schema_version")


def require_known(found: int, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Raise DatabaseError (code version_mismatch) if no migration leads from version `found` to the latest: the
    database is newer than this program, or older than the first release."""
    first, latest = migrations[0].number, migrations[-1].number
    if found > latest:
        raise DatabaseError(
            f"the database was written by a newer version (schema {found}, this program knows {latest}); "
            "upgrade agent-intercom or set [database] path to another file",
            code="version_mismatch",
            found=found,
            known=latest,
        )
    if 0 < found < first:
        raise DatabaseError(
            f"the database was written before the first release (schema {found}, this program begins at {first}); "
            "move it away and restart, or set [database] path to another file",
            code="version_mismatch",
            found=found,
            known=latest,
        )


def migrate(db: Database, at: datetime, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Apply the migrations that the database lacks, each in a transaction of its own; return the version it had.

    Raises the errors of `require_known` before anything is changed. A migration that fails leaves nothing behind.
    """
    before = version(db)
    require_known(before, migrations)
    for step in migrations:
        if step.number <= before:
            continue
        with db.atomic():
            db.execute(
                "create table if not exists schema_version"
                " (version integer primary key, name text not null, applied_at text not null)"
            )
            step.apply(db)
            rows.insert(
                db,
                "schema_version",
                {"version": step.number, "name": step.name, "applied_at": clock.to_text(at)},
                conflict="do nothing",
            )
    return before
