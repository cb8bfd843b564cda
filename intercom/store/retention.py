"""Retention: deletes what ended long enough ago, children before parents."""

from __future__ import annotations

from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.store import audit, rows
from intercom.store.audit_chain import PRUNED, PURGED
from intercom.store.sessions import OPEN_RESTORE

#: Rows that are deleted with their session, in the required order.
_OF_A_SESSION = (
    ("restore", "successor_id in {old}"),
    ("outbox", "session_id in {old}"),
    ("grant", "session_id in {old}"),
    ("unsent_decision", "session_id in {old}"),
    ("spawned_agent", "session_id in {old}"),
    ("task", "session_id in {old}"),
    ("instruction", "session_id in {old}"),
    ("apply_journal", "session_id in {old}"),
    ("wait", "session_id in {old}"),
    ("permission_use", "request_id in (select id from approval_request where session_id in {old})"),
    ("amendment", "request_id in (select id from approval_request where session_id in {old})"),
    ("approval_file", "request_id in (select id from approval_request where session_id in {old})"),
    ("stall_alert", "session_id in {old}"),
    ("checkpoint", "session_id in {old}"),
    ("continuation_prompt", "session_id in {old}"),
    ("approval_request", "session_id in {old}"),
    ("session", "id in {old}"),
)

#: Messages that Slack shows as they should be, and whose session, if any, is deleted.
_DONE_WITH = (
    "state in ('posted', 'merged', 'refused') and open = 0 and (state <> 'posted' or shown = version)"
    " and (session_id is null or session_id not in (select id from session))"
)


def purge(
    db: Database, cutoff: datetime, at: datetime, limit: int = 200, checkpoints_before: datetime | None = None
) -> dict[str, int]:
    """Delete what is older than `cutoff`, and checkpoints older than `checkpoints_before`, if given.

    This covers sessions terminated before `cutoff` with all their rows, audit entries, answered calls, what Slack
    showed or asked outside of sessions, and the gateway's usage and evidence, except evidence of existing sessions.
    Kept are sessions with an unfinished apply and those that an unfinished restore needs. The audit log loses only its
    oldest entries, as a whole (`audit.prune`).

    One call deletes at most `limit` sessions, oldest first, as many records of evidence, which may be large, and a
    hundred times as many other rows. So it does not block the writer for long. Call again while a count is at its
    limit. Returns how many rows were deleted, by table, and records the numbers in the audit log.
    """
    text = clock.to_text(cutoff)
    ids = rows.column(
        db,
        "select id from session where status = 'terminated' and terminated_at < ? and not exists"
        " (select 1 from apply_journal as journal where journal.session_id = session.id"
        " and journal.state in ('staging', 'committed', 'stuck'))"
        f" and id not in (select checkpoint.session_id from checkpoint, restore where {OPEN_RESTORE}"
        " and checkpoint.id = restore.checkpoint_id)"
        f" and id not in (select session_id from restore where {OPEN_RESTORE})"
        f" and id not in (select successor_id from restore where {OPEN_RESTORE})"
        " order by terminated_at, rowid limit ?",
        (text, limit),
    )
    old = f"({rows.placeholders(ids)})"
    gone = {
        table: rows.affected(db, f"delete from {table} where {where.format(old=old)}", ids)
        for table, where in _OF_A_SESSION
    }
    by_age = [
        ("answered_call", "name", "created_at", cutoff, "true"),
        ("outbox", "id", "created_at", cutoff, _DONE_WITH),
        ("slack_question", "rowid", "at", cutoff, "true"),
        ("gateway_usage", "rowid", "day", cutoff, "true"),
        ("gateway_evidence", "id", "at", cutoff, "run_id not in (select id from session)"),
        ("instruction", "id", "created_at", cutoff, "session_id is null and closed_at is not null"),
        (
            "restore",
            "id",
            "created_at",
            cutoff,
            f"not {OPEN_RESTORE} and successor_id not in (select id from session)",
        ),
    ]
    if checkpoints_before is not None:
        needed = f"id not in (select checkpoint_id from restore where {OPEN_RESTORE})"
        by_age.append(("checkpoint", "id", "created_at", checkpoints_before, needed))
    for table, key, age, before, also in by_age:
        most = limit if table == "gateway_evidence" else limit * 100
        gone[table] = gone.get(table, 0) + rows.affected(
            db,
            f"delete from {table} where {key} in"
            f" (select {key} from {table} where {age} < ? and {also} order by {age} limit ?)",
            (clock.to_text(before), most),
        )
    pruned = audit.prune(db, cutoff, limit * 100) or {}
    gone["audit"] = pruned[PRUNED]["count"] if pruned else 0
    if any(gone.values()):
        summary = f"purged {gone['session']} sessions ended before {text}"
        audit.record(db, at, PURGED, None, "retention", summary, gone | pruned)
    return gone
