"""Queries on approval requests and the files they would change."""

from __future__ import annotations

import json
from datetime import datetime

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.approval import (
    ApprovalRequest,
    ApprovalStatus,
    ChangeKind,
    FileChange,
    ProposalForm,
    Remark,
    RiskLevel,
)
from intercom.store import rows
from intercom.store.lifecycle import Lifecycle, decided_columns, decided_value
from intercom.store.rows import Row

#: An apply in progress owns its request: it must not lapse or be interrupted until the journal entry is finished.
_NOT_BEING_APPLIED = (
    "not exists (select 1 from apply_journal as journal where journal.request_id = approval_request.id"
    " and journal.state in ('staging', 'committed', 'stuck'))"
)


def _to_row(request: ApprovalRequest) -> Row:
    return {
        "id": request.id,
        "session_id": request.session_id,
        "title": request.title,
        "description": request.description,
        "diff_content": request.diff_content,
        "file_path": request.file_path,
        "risk_level": request.risk_level.value,
        "status": request.status.value,
        "original_hash": request.original_hash,
        "slack_ts": request.slack_ts,
        "created_at": clock.to_text(request.created_at),
        "consumed_at": rows.time_text(request.consumed_at),
        "key": request.key,
        "auto_rule": request.auto_rule,
        "preview": request.preview,
        "remarks": json.dumps([[remark.path, remark.text] for remark in request.remarks]) if request.remarks else None,
        "masked": json.dumps(request.masked) if request.masked else None,
        "tool": request.tool,
        "form": None if request.form is None else request.form.value,
        "proposal_hash": request.proposal_hash,
        "root_inode": None if request.root_inode is None else str(request.root_inode),
        "policy_question": request.policy_question,
        "replaces": request.replaces,
        "expires_at": rows.time_text(request.expires_at),
        "call": request.call,
        "delivered_at": rows.time_text(request.delivered_at),
        **decided_columns(request.decided),
    }


def _from_row(db: Database, row: Row) -> ApprovalRequest:
    return ApprovalRequest(
        id=row["id"],
        session_id=row["session_id"],
        title=row["title"],
        description=row["description"],
        diff_content=row["diff_content"],
        file_path=row["file_path"],
        risk_level=RiskLevel(row["risk_level"]),
        status=ApprovalStatus(row["status"]),
        original_hash=row["original_hash"],
        slack_ts=row["slack_ts"],
        created_at=clock.from_text(row["created_at"]),
        consumed_at=rows.time_value(row["consumed_at"]),
        key=row["key"],
        auto_rule=row["auto_rule"],
        preview=row["preview"],
        remarks=tuple(Remark(path, text) for path, text in json.loads(row["remarks"] or "[]")),
        masked=tuple((number, line) for number, line in json.loads(row["masked"] or "[]")),
        tool=row["tool"],
        form=None if row["form"] is None else ProposalForm(row["form"]),
        proposal_hash=row["proposal_hash"],
        root_inode=None if row["root_inode"] is None else int(row["root_inode"]),
        policy_question=row["policy_question"],
        replaces=row["replaces"],
        expires_at=rows.time_value(row["expires_at"]),
        call=row["call"],
        delivered_at=rows.time_value(row["delivered_at"]),
        decided=decided_value(row),
        files=_files(db, row["id"]),
    )


def _files(db: Database, request_id: str) -> tuple[FileChange, ...]:
    found = rows.every(db, "select * from approval_file where request_id = ? order by position", (request_id,))
    return tuple(
        FileChange(
            path=row["path"],
            kind=ChangeKind(row["kind"]),
            before_hash=row["before_hash"],
            after_hash=row["after_hash"],
            old_path=row["old_path"],
            mode=row["mode"],
            added=row["added"],
            removed=row["removed"],
        )
        for row in found
    )


_life: Lifecycle[ApprovalRequest, ApprovalStatus] = Lifecycle(
    table="approval_request",
    to_row=_to_row,
    from_row=_from_row,
    undelivered=("approved", "rejected", "expired"),
    told=lambda decided: {},
)

get = _life.get
select = _life.select
pending = _life.pending
owed = _life.owed
interrupted = _life.interrupted
due = _life.due
decide = _life.decide
expire = _life.expire
mark_delivered = _life.mark_delivered
annul = _life.annul


def insert(db: Database, request: ApprovalRequest) -> bool:
    """Insert a new request with its files. Returns False and changes nothing if its id exists."""
    if not _life.insert(db, request):
        return False
    for position, file in enumerate(request.files):
        row = {
            "request_id": request.id,
            "position": position,
            "path": file.path,
            "kind": file.kind.value,
            "before_hash": file.before_hash,
            "after_hash": file.after_hash,
            "old_path": file.old_path,
            "mode": file.mode,
            "added": file.added,
            "removed": file.removed,
        }
        rows.insert(db, "approval_file", row, conflict="do nothing")
    return True


def reattachable(db: Database, key: str) -> ApprovalRequest | None:
    """Return the newest request with this key that asking again attaches to, or None if it must make a new one. That
    request is pending, approved and not consumed, or rejected and not delivered."""
    found = _life.select(
        db,
        "key = ? and (status in ('pending', 'approved') or (status = 'rejected' and delivered_at is null))"
        " order by created_at desc, rowid desc limit 1",
        (key,),
    )
    return found[0] if found else None


def consume(db: Database, id: str, at: datetime) -> bool:
    """Move an approval from approved to consumed, once. Returns False if it is unknown or in another state."""
    return rows.changed(
        db,
        "update approval_request set status = 'consumed', consumed_at = ? where id = ? and status = 'approved'",
        (clock.to_text(at), id),
    )


def expire_replacing(db: Database, id: str, at: datetime) -> tuple[str, ...]:
    """Expire pending requests to replace this one, which are no longer needed. Returns their ids."""
    return _life.close(db, "expired", at, "status = 'pending' and replaces = :replaced", {"replaced": id})


def is_one_unspent(db: Database, session_id: str) -> bool:
    """Whether this session has an approval that may still be applied."""
    found = rows.one(
        db, "select 1 from approval_request where session_id = ? and status = 'approved' limit 1", (session_id,)
    )
    return found is not None


def lapse(db: Database, approved_before: datetime, at: datetime) -> tuple[str, ...]:
    """Expire approvals decided before `approved_before` that were never applied. Returns their ids, oldest first.
    Leaves out approvals whose apply is in progress or stuck."""
    where = f"status = 'approved' and decided_at < :before and {_NOT_BEING_APPLIED}"
    return _life.close(db, "expired", at, where, {"before": clock.to_text(approved_before)})


def void(db: Database, id: str, at: datetime) -> bool:
    """Expire an approval that may not be applied. Returns False if it is in another state or being applied."""
    return bool(
        _life.close(db, "expired", at, f"id = :id and status = 'approved' and {_NOT_BEING_APPLIED}", {"id": id})
    )


def move(db: Database, request: ApprovalRequest, session_id: str, key: str, proposal_hash: str) -> bool:
    """Move a pending request to another session, with its key and hash there. Returns False if it is no longer
    pending in its own session."""
    return rows.changed(
        db,
        "update approval_request set session_id = ?, key = ?, proposal_hash = ?"
        " where id = ? and session_id = ? and status = 'pending'",
        (session_id, key, proposal_hash, request.id, request.session_id),
    )


def interrupt(db: Database, session_id: str, at: datetime) -> tuple[str, ...]:
    """Interrupt requests of an ended session that are pending, or approved and not applied. Leaves out those whose
    apply is in progress or stuck. Returns their ids, oldest first."""
    where = f"session_id = :session and status in ('pending', 'approved') and {_NOT_BEING_APPLIED}"
    return _life.close(db, "interrupted", at, where, {"session": session_id})
