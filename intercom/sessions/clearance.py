"""Clearance: a proposed change is checked, put on record, and shown; or the policy lets it pass."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from functools import partial
from pathlib import Path

import trio

from intercom.model import crash_points
from intercom.model.approval import ApprovalRequest, ApprovalStatus, FileChange
from intercom.model.errors import InvalidArguments, NotFound
from intercom.model.session import SessionMode
from intercom.model.verdict import Decided
from intercom.sessions import measures, outcomes, summary
from intercom.sessions.actor import SessionActor
from intercom.sessions.answers import ClearanceAnswer
from intercom.sessions.messages import Answered, AwaitClearance, Opened, Propose
from intercom.store import approvals, requests
from intercom.store.messages import Database
from intercom.workspace import patching, proposal
from intercom.workspace.messages import EvaluateFiles
from intercom.workspace.preview import preview


async def propose(session: SessionActor, asked: Propose) -> Opened[ClearanceAnswer]:
    """Put a change on record, once: the same proposal asked again re-attaches to the request it has."""
    session.require_open()
    session.touch("check_clearance")
    if asked.request_id is not None:
        return _opened(session, await _approval(session, asked.request_id), asked.call)
    if asked.title is None or asked.diff is None or asked.file_path is None:
        raise InvalidArguments("title, diff and file_path are needed for a new proposal (or request_id for an old one)")
    earlier = await session.transact(partial(requests.by_call, session_id=session.id, call=asked.call))
    if isinstance(earlier, ApprovalRequest):
        # Asked again by a client whose answer was lost: its files may have changed since, its request has not.
        return _opened(session, earlier, asked.call)
    plan, shown = await trio.to_thread.run_sync(_plan, session.row.workspace_root, asked.diff, asked.file_path)
    files = plan.changes
    key = proposal_key(session.id, files, asked)
    rule = await _auto_rule(session, files, asked)
    now = session.now()
    request = ApprovalRequest(
        id=session.context.new_id(),
        session_id=session.id,
        title=asked.title,
        description=asked.description,
        diff_content=asked.diff,
        file_path=asked.file_path,
        risk_level=asked.risk_level,
        status=ApprovalStatus.PENDING,
        original_hash=_original_hash(files, asked.file_path),
        created_at=now,
        key=key,
        files=files,
        expires_at=now + timedelta(seconds=session.context.config.timeouts.approval_seconds),
        call=asked.call,
        auto_rule=rule,
        preview=shown,
    )
    kept, is_new = await session.transact(partial(_keep, session=session, request=request))
    crash_points.reach("request.recorded")
    if is_new:
        # On record before it is shown: a crash in between shows it after the restart, never loses it.
        session.watch_expiry(kept)
        if kept.auto_rule is None:
            session.show_soon(kept)
        else:
            session.context.measured(measures.settled(kept, now))
            session.riders.verdicts[kept.id] = outcomes.late(kept)
            summary.let_pass(session, kept.title, kept.auto_rule)
    return _opened(session, kept, asked.call)


async def await_clearance(session: SessionActor, asked: AwaitClearance) -> Answered[ClearanceAnswer] | None:
    request = await _approval(session, asked.request_id)
    answer = session.unless_paused(outcomes.clearance(request))
    if answer is not None:
        return session.answered(asked.call, answer, own=request.id)
    session.wait(request, asked.call, asked.ticket)
    return None


def proposal_key(session_id: str, files: tuple[FileChange, ...], asked: Propose) -> str:
    """What names a proposal: session, paths, base hashes, diff hash and risk."""
    parts = [
        session_id,
        asked.risk_level.value,
        hashlib.sha256((asked.diff or "").encode("utf-8", "surrogatepass")).hexdigest(),
        [[change.path, change.old_path, change.before_hash] for change in files],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _plan(workspace_root: str, diff: str, file_path: str) -> tuple[patching.Plan, str | None]:
    """What the proposal does, and how to show it."""
    root, parsed = Path(workspace_root), proposal.parse(diff, file_path)
    plan = patching.plan(root, parsed)
    return plan, preview(root, parsed, plan)


def _original_hash(files: tuple[FileChange, ...], file_path: str) -> str:
    for change in files:
        if file_path.lstrip("./") in (change.path, change.old_path):
            return change.before_hash
    return files[0].before_hash


async def _auto_rule(session: SessionActor, files: tuple[FileChange, ...], asked: Propose) -> str | None:
    config = session.context.config.policy
    if config.remote_mode_asks_always and session.row.mode is SessionMode.REMOTE:
        return None
    touched = tuple(path for change in files for path in (change.path, change.old_path) if path is not None)
    return (await session.judge(EvaluateFiles(touched, asked.risk_level))).matched_rule


def _keep(db: Database, session: SessionActor, request: ApprovalRequest) -> tuple[ApprovalRequest, bool]:
    """Insert the request unless its key still names one; either way the row that stands."""
    earlier = approvals.reattachable(db, request.key)
    if earlier is not None:
        # Our own row is there when the writer fell between its commit and its answer.
        return earlier, earlier.id == request.id
    approvals.insert(db, request)
    session.record(db, "agent", "clearance_asked", request.title, request_id=request.id, file_path=request.file_path)
    if request.auto_rule is not None:
        decided = Decided(f"policy/{request.id}", "approve", "policy", "policy", request.created_at, request.auto_rule)
        approvals.decide(db, request.id, ApprovalStatus.APPROVED, decided)
        session.record(
            db, "policy", "auto_approved", request.title, request_id=request.id, matched_rule=request.auto_rule
        )
    kept = approvals.get(db, request.id)
    assert kept is not None, "just inserted"
    return kept, True


async def _approval(session: SessionActor, request_id: str) -> ApprovalRequest:
    request = await session.find(request_id)
    if not isinstance(request, ApprovalRequest):
        raise NotFound(f"request {request_id} is no clearance request", code="request_not_found")
    return request


def _opened(session: SessionActor, request: ApprovalRequest, call: str) -> Opened[ClearanceAnswer]:
    answer = session.unless_paused(outcomes.clearance(request))
    if answer is None:
        return Opened(request.id)
    return Opened(request.id, session.answered(call, answer, own=request.id))
