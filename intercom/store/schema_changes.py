"""What each migration after the schema of version 22 changes: statements of SQL, in the order of the migrations, and a
function where SQL is not enough.

`intercom.store.schema` numbers them. A statement or function that was released stays as it is.
"""

from __future__ import annotations

import hashlib
import json

from sqlite_utils import Database

#: The condition of the index on the entries about grants: SQLite uses it only for queries with the same condition.
GRANT_ENTRIES = "kind in ('grant_made', 'grant_used', 'grant_revoked')"

#: The same of the index on the entries of gateway calls.
GATEWAY_CALLS = "kind = 'gateway_call'"

_USED = '{"error":"this signature was used before; nothing was changed","code":"signature_required","details":{}}'

#: Agents that people start are spawned agents, under process monitors. A signed command is recorded with its answer, as
#: other acts are; of earlier ones the answer is not known, and they stay used.
SPAWNED_AGENTS = (
    "alter table child rename to spawned_agent",
    "alter table spawned_agent rename column keeper_pid to monitor_pid",
    "alter table spawned_agent rename column keeper_began to monitor_began",
    "drop index idx_child_state",
    "create index idx_spawned_agent_state on spawned_agent (state)",
    "update answered_call set name = 'spawned/' || substr(name, 7) where tool = 'process' and name like 'child/%'",
    "insert or ignore into answered_call (name, tool, answer, created_at)"
    f" select 'ctl/' || decision_id || '/signed', 'signed', '{_USED}', at from signed_command",
    "drop table signed_command",
)


#: The name of an answer begins with its scope (`idempotency.Scope`): agents choose the names of their calls.
SCOPES = (
    """
    update answered_call set name = case tool
        when 'process' then 'process/' || substr(name, 9)
        when 'verdict' then 'verdict/' || substr(name, 1, length(name) - 6)
        when 'unpause' then 'unpause/' || substr(name, 1, length(name) - 8)
        when 'session' then 'session/' || substr(name, 1, length(name) - 8)
        when 'signed' then 'signed/' || substr(name, 1, length(name) - 7)
        when 'slack.reply' then 'slack.reply/' || name
        when 'slack_command' then case
            when name like '%#answer' then 'slack_command.answer/' || substr(name, 1, length(name) - 7)
            when name like '%#process' then 'slack_command.process/' || substr(name, 1, length(name) - 8)
            else 'slack_command/' || name
        end
        else case
            when tool = 'switch_freq' and name like 'service/%' then 'mode/' || substr(name, 9)
            else 'call/' || coalesce(session_id, '') || '/' || name
        end
    end
    """,
    "alter table apply_journal drop column updated_at",
)


#: The gateway. Its calls are entries of the audit log. A pin is what a person allowed of a downstream's tool.
GATEWAY = (
    f"create index idx_audit_gateway on audit (kind) where {GATEWAY_CALLS}",
    """
    create table gateway_usage (
        downstream text not null,
        day text not null,
        calls integer not null default 0,
        cost integer not null default 0,
        primary key (downstream, day)
    )
    """,
    # A downstream that was ever pinned, whether or not it had tools then; and who has disabled it, if anybody.
    """
    create table gateway_downstream (
        name text primary key not null,
        pinned_at text,
        rejected_sha256 text,
        disabled_by text,
        disabled_at text
    )
    """,
    """
    create table gateway_pin (
        downstream text not null,
        tool text not null,
        definition text not null,
        sha256 text not null,
        allowed_at text not null,
        allowed_by text not null,
        decision_id text,
        primary key (downstream, tool)
    )
    """,
    """
    create table gateway_evidence (
        id text primary key not null,
        run_id text not null,
        invocation_id text not null,
        tool text not null,
        method text not null,
        at text not null,
        data text not null,
        metadata text not null
    )
    """,
    "create index idx_gateway_evidence_run on gateway_evidence (run_id)",
    "create index idx_gateway_evidence_at on gateway_evidence (at)",
)


#: What people change of a proposal before they approve it. `proposed` is the request as the agent made it.
AMENDMENTS = (
    "alter table approval_request add column details text",
    """
    create table amendment (
        request_id text primary key not null references approval_request (id),
        verdict_id text not null,
        proposed text not null,
        amended_at text not null
    )
    """,
)


#: Grants: what a person permitted in advance. Their uses are entries of the audit log, which a row cannot take back.
GRANTS = (
    """
    create table grant (
        id text primary key not null,
        session_id text not null references session (id),
        scope text not null,
        seconds integer not null,
        uses integer not null,
        created_at text not null,
        granted_by text not null, granted_via text not null,
        request_id text not null,
        title text not null,
        signature text, revoked_at text, revoked_by text
    )
    """,
    "create index idx_grant_session on grant (session_id)",
    f"create index idx_audit_grants on audit (session_id) where {GRANT_ENTRIES}",
)


#: Which decisions no result has carried. A program that does not know this table must not open the database: it would
#: send a decision and leave its row.
UNSENT_DECISIONS = (
    """
    create table unsent_decision (
        request_id text primary key not null,
        session_id text not null references session (id),
        verdict_id text not null
    )
    """,
    "create index idx_unsent_decision_session on unsent_decision (session_id)",
    "alter table approval_request add column asked_sha256 text",
    "create index idx_approval_asked on approval_request (asked_sha256) where asked_sha256 is not null",
)


#: The tokens of programs. No program is an admin.
API_TOKENS = (
    """
    create table api_token (
        id text primary key not null,
        name text not null,
        role text not null check (role in ('viewer', 'operator')),
        sha256 text not null unique,
        created_at text not null,
        created_by text not null,
        expires_at text not null,
        revoked_at text,
        revoked_by text
    )
    """,
)


#: Browsers that are sent messages while the page is closed.
PUSH_SUBSCRIPTIONS = (
    """
    create table push_subscription (
        id text primary key not null,
        endpoint text not null,
        public text not null,
        auth text not null,
        subscribed_by text not null,
        subscribed_via text not null,
        label text not null,
        created_at text not null
    )
    """,
)


def note_what_was_asked(db: Database) -> None:
    """Fill in `asked_sha256` of the requests that asking again may find, as their agents made them."""
    ids = db.execute(
        "select id from approval_request where tool is null and (status in ('pending', 'approved')"
        " or (status = 'rejected' and delivered_at is null))"
    ).fetchall()
    for (id,) in ids:
        [(risk, file_path, text, proposed)] = db.execute(
            "select risk_level, file_path, diff_content, proposed from approval_request as request"
            " left join amendment on request_id = request.id where request.id = ?",
            (id,),
        ).fetchall()
        asked = [risk, file_path, text]
        if proposed is not None:
            try:
                record = json.loads(proposed)
                asked = [record["risk_level"], record["file_path"], record["diff_content"]]
            except (ValueError, TypeError, LookupError, RecursionError):
                # Another program has broken the record. Asking again makes another request.
                continue
        digest = hashlib.sha256(json.dumps(asked, separators=(",", ":")).encode("ascii")).hexdigest()
        db.execute("update approval_request set asked_sha256 = ? where id = ?", (digest, id))
