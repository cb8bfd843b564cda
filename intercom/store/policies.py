"""Decisions of people about workspace policies, and what the policy file has removed from an accepted one since.

A policy is identified by workspace root and content hash. In force is the last accepted one, unless rejected later.
"""

from __future__ import annotations

from datetime import datetime

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.policy import PolicyDecision
from intercom.model.request import RiskLevel
from intercom.store import rows
from intercom.store.requests import DECIDED
from intercom.store.rows import Table

_DECISIONS = Table("policy_decision", PolicyDecision, names={"sha256": "sha"}, parts={"decided": DECIDED})


@frozen
class PastRequest:
    """An earlier request: the files of a proposal, or `question`, what the policy was asked about an operation.
    `question` is JSON; None if no policy could have allowed the operation."""

    title: str
    risk: RiskLevel
    paths: tuple[str, ...] = ()
    question: str | None = None


def record(db: Database, decision: PolicyDecision) -> bool:
    """Record a decision. Returns False and changes nothing if its card is already decided. Accepting a policy
    deletes its narrowing: all of it may take effect again."""
    is_new = _DECISIONS.insert(db, decision)
    if is_new and decision.accepted:
        db.execute("delete from policy_narrowing where workspace_root = ?", (decision.workspace_root,))
    return is_new


def decisions(db: Database, root: str) -> tuple[PolicyDecision, ...]:
    """Return all decisions about policies of this workspace, oldest first."""
    return _DECISIONS.select(db, "workspace_root = ? order by seq", (root,))


def decision(db: Database, id: str) -> PolicyDecision | None:
    """Return the decision on the card with this id, or None."""
    return _DECISIONS.get(db, id)


def roots(db: Database) -> tuple[str, ...]:
    """Return the workspace roots that have a decision."""
    return tuple(rows.column(db, "select distinct workspace_root from policy_decision order by workspace_root"))


def narrow(db: Database, root: str, text: str | None, at: datetime) -> None:
    """Record what the policy file narrowed an accepted policy to; None: not narrowed. Removed parts stay removed."""
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
    """Return the text that the accepted policy is narrowed to; None if it is not narrowed."""
    row = rows.one(db, "select text from policy_narrowing where workspace_root = ?", (root,))
    return None if row is None else str(row["text"])


def past_requests(db: Database, root: str, limit: int) -> tuple[PastRequest, ...]:
    """Return the newest approval requests of this workspace, newest first."""
    found = rows.every(
        db,
        "select request.id, request.title, request.risk_level, request.tool, request.policy_question"
        " from approval_request as request join session on session.id = request.session_id"
        " where session.workspace_root = ? order by request.created_at desc, request.rowid desc limit ?",
        (root, limit),
    )
    # For an operation the question tells more than the files: a file outside the workspace is not among them.
    proposals = [row["id"] for row in found if row["tool"] is None]
    paths: dict[str, list[str]] = {}
    for row in rows.every(
        db,
        f"select request_id, path, old_path from approval_file where request_id in ({rows.placeholders(proposals)})",
        proposals,
    ):
        paths.setdefault(row["request_id"], []).extend(path for path in (row["path"], row["old_path"]) if path)
    return tuple(
        PastRequest(row["title"], RiskLevel(row["risk_level"]), tuple(paths.get(row["id"], ())), row["policy_question"])
        for row in found
    )
