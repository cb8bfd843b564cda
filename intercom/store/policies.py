"""Decisions of people about policies, and what of an accepted policy has been taken away since.

A policy counts by workspace root and content hash: of a root, the content that was accepted last, unless that content
was rejected later.
"""

from __future__ import annotations

from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.approval import RiskLevel
from intercom.model.policy import PolicyDecision
from intercom.store import rows
from intercom.store.lifecycle import decided_columns, decided_value
from intercom.store.rows import Row


@frozen
class PastRequest:
    """Something that was asked before: the files that a proposal changed, or what the policy was asked about an
    operation (JSON), None where no policy could have let it pass."""

    title: str
    risk: RiskLevel
    paths: tuple[str, ...] = ()
    question: str | None = None


def record(db: Database, decision: PolicyDecision) -> bool:
    """Put a decision on record; False, changing nothing, when its card is decided already. What is accepted may come
    in force whole: what had been taken away before is forgotten."""
    is_new = rows.insert(
        db,
        "policy_decision",
        {
            "id": decision.id,
            "workspace_root": decision.workspace_root,
            "sha": decision.sha256,
            "text": decision.text,
            "accepted": int(decision.accepted),
            **decided_columns(decision.decided),
        },
    )
    if is_new and decision.accepted:
        db.execute("delete from policy_narrowing where workspace_root = ?", (decision.workspace_root,))
    return is_new


def decisions(db: Database, root: str) -> tuple[PolicyDecision, ...]:
    """All decisions about policies of this workspace, oldest first."""
    found = rows.every(db, "select * from policy_decision where workspace_root = ? order by seq", (root,))
    return tuple(_decision(row) for row in found)


def decision(db: Database, id: str) -> PolicyDecision | None:
    """The decision on the card of this id."""
    row = rows.one(db, "select * from policy_decision where id = ?", (id,))
    return None if row is None else _decision(row)


def roots(db: Database) -> tuple[str, ...]:
    """The workspaces that have a decision."""
    return tuple(rows.column(db, "select distinct workspace_root from policy_decision order by workspace_root"))


def narrow(db: Database, root: str, text: str | None, at: datetime) -> None:
    """Note what an accepted policy has been narrowed to by its file, None for not at all: what was taken away stays
    so."""
    if text is None:
        db.execute("delete from policy_narrowing where workspace_root = ?", (root,))
        return
    row = {"workspace_root": root, "text": text, "at": clock.to_text(at)}
    rows.insert(
        db,
        "policy_narrowing",
        row,
        conflict="(workspace_root) do update set text = excluded.text, at = excluded.at",
    )


def narrowing(db: Database, root: str) -> str | None:
    """The text of what the accepted policy has been narrowed to, None where it has not."""
    row = rows.one(db, "select text from policy_narrowing where workspace_root = ?", (root,))
    return None if row is None else str(row["text"])


def past_requests(db: Database, root: str, limit: int) -> tuple[PastRequest, ...]:
    """The newest requests for an approval that were made in this workspace, newest first."""
    found = rows.every(
        db,
        "select request.id, request.title, request.risk_level, request.tool, request.policy_question"
        " from approval_request as request join session on session.id = request.session_id"
        " where session.workspace_root = ? order by request.created_at desc, request.rowid desc limit ?",
        (root, limit),
    )
    # Of an operation the question says more than its files do: one that lies elsewhere has none.
    proposals = [row["id"] for row in found if row["tool"] is None]
    paths: dict[str, list[str]] = {}
    for row in rows.every(
        db,
        f"select request_id, path, old_path from approval_file where request_id in ({rows.holders(proposals)})",
        proposals,
    ):
        paths.setdefault(row["request_id"], []).extend(path for path in (row["path"], row["old_path"]) if path)
    return tuple(
        PastRequest(row["title"], RiskLevel(row["risk_level"]), tuple(paths.get(row["id"], ())), row["policy_question"])
        for row in found
    )


def _decision(row: Row) -> PolicyDecision:
    decided = decided_value(row)
    assert decided is not None, "a row without a verdict is refused by the table"
    return PolicyDecision(
        row["id"], row["workspace_root"], row["sha"], row["text"], accepted=bool(row["accepted"]), decided=decided
    )
