"""Signed decisions: a signature beside each decision, the operator keys, and the signed commands carried out."""

from __future__ import annotations

from sqlite_utils import Database


def apply(db: Database) -> None:
    for table in ("approval_request", "continuation_prompt", "wait", "restore", "policy_decision"):
        db.execute(f"alter table {table} add column signature text")
    db.execute(
        "create table operator_key (id text primary key, public text not null, name text not null,"
        " added_at text not null, added_by text not null, added_signature text not null,"
        " revoked_at text, revoked_by text, revoked_signature text)"
    )
    db.execute("create table signed_command (decision_id text primary key, at text not null)")
