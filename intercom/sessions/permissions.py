"""Permissions: leave for what a client is about to do itself, asked for by its permission hook.

The policy first, then a person. Leave that a person gives is used once: the transaction that says "do it" to a hook
spends it, under the name of the hook's call, so that asking again after a crash neither spends it twice nor loses it.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from intercom.model import crash_points
from intercom.model.approval import NEW_FILE, ApprovalRequest, ApprovalStatus, RiskLevel
from intercom.model.card import CardKind
from intercom.model.errors import NotFound
from intercom.model.measure import Settled
from intercom.model.operation import Operation, OperationKind
from intercom.model.session import SessionMode
from intercom.sessions import outcomes, summary
from intercom.sessions.actor import SessionActor
from intercom.sessions.answers import PermissionAnswer, from_json
from intercom.sessions.messages import Answered, Opened
from intercom.sessions.permission_messages import AskPermission, AwaitPermission
from intercom.store import approvals, calls, permissions
from intercom.store.messages import Database
from intercom.workspace import risk
from intercom.workspace.foreseen import Foreseen, foresee, place, within
from intercom.workspace.messages import Evaluate, EvaluateFiles
from intercom.workspace.policy import Query

#: How long after one hook's event another may follow for the same use of a tool.
COVERED = timedelta(minutes=5)
#: With an operator among its words nothing is a command to the policy: a rule for a program is none for a tool.
_NO_COMMAND = (";",)
#: What is another operation in another directory: names in its arguments lead from there.
_BY_PLACE = (OperationKind.COMMAND, OperationKind.READ, OperationKind.OTHER)
#: A command longer than this is shown beside the card too, where nothing of it is cut off, in characters.
_LONG = 1500


async def ask(session: SessionActor, asked: AskPermission) -> Opened[PermissionAnswer]:
    """Judge an operation, or put it before a person: once, while it is undecided."""
    session.require_open()
    root = Path(session.row.workspace_root)
    # The agent names the paths: one may lie where the system answers no more, and only this thread waits for it.
    seen = await trio.to_thread.run_sync(_look, root, asked.operation, abandon_on_cancel=True)
    request = _request(session, asked, seen.foreseen, seen.risk)
    rule = await _rule(session, asked.operation, seen)
    answer, kept = await session.transact(partial(_settle, session=session, asked=asked, request=request, rule=rule))
    session.touch(asked.operation.tool)
    if kept is None:
        if answer.rule is not None:
            session.context.measured(Settled(asked.call, CardKind.APPROVAL, "approve", "policy", 0.0))
            summary.let_pass(session, request.title, answer.rule)
        return Opened("", Answered(answer))
    if answer.status == "allowed":
        crash_points.reach("permission.used")
        session.riders.verdicts.pop(kept.id, None)
        session.riders.unload((asked.call,))
        session.show(kept)
        return Opened(kept.id, Answered(answer))
    if answer.status != "pending":
        return Opened(kept.id, session.answered(asked.call, answer, own=kept.id, alone=True))
    if kept.id == request.id:
        crash_points.reach("request.recorded")
        session.watch_expiry(kept)
        session.show_soon(kept)
    return Opened(kept.id)


async def wait(session: SessionActor, asked: AwaitPermission) -> Answered[PermissionAnswer] | None:
    """Wait for the verdict on an operation."""
    request = await session.find(asked.request_id)
    if not isinstance(request, ApprovalRequest) or request.tool is None:
        raise NotFound(f"request {asked.request_id} asks no leave for an operation", code="request_not_found")
    answer = session.unless_paused(outcomes.permission(request))
    if answer is not None:
        return session.answered(asked.call, answer, own=request.id, alone=True)
    session.wait(request, asked.call, asked.ticket, alone=True)
    return None


@frozen
class _Seen:
    """What an operation comes to in the workspace: `in_place` says that it happens there, and `read` is the canonical
    path of the file it reads, if that lies there."""

    foreseen: Foreseen
    risk: RiskLevel
    in_place: bool
    read: str | None


def _look(root: Path, operation: Operation) -> _Seen:
    """Everything that asks the file system, for a thread."""
    foreseen = foresee(root, operation)
    read = None if operation.path is None else within(root, operation.cwd, operation.path)
    return _Seen(foreseen, risk.of(root, operation, foreseen), place(root, operation.cwd), read)


def _request(session: SessionActor, asked: AskPermission, foreseen: Foreseen, level: RiskLevel) -> ApprovalRequest:
    operation, now = asked.operation, session.now()
    notes = [f"outside of the workspace: {', '.join(foreseen.outside)}"] if foreseen.outside else []
    if foreseen.outside and operation.cwd is not None:
        notes.append(f"as seen from {operation.cwd}")
    if operation.why:
        notes.append(f"the agent says: {operation.why}")
    text = "\n".join([*((operation.text,) if operation.text else ()), *notes]) or None
    named = (*foreseen.inside, *foreseen.outside)
    return ApprovalRequest(
        id=session.context.new_id(),
        session_id=session.id,
        title=operation.title,
        description=text,
        diff_content=foreseen.diff or (operation.text if len(operation.text or "") > _LONG else "") or "",
        file_path=named[0] if named else operation.cwd or session.row.workspace_root,
        risk_level=level,
        status=ApprovalStatus.PENDING,
        original_hash=foreseen.changes[0].before_hash if foreseen.changes else NEW_FILE,
        created_at=now,
        key=_key(session, operation, foreseen),
        files=foreseen.changes,
        expires_at=now + timedelta(seconds=session.context.config.timeouts.approval_seconds),
        call=asked.call,
        tool=operation.tool,
    )


def _key(session: SessionActor, operation: Operation, foreseen: Foreseen) -> str:
    """What makes two operations one: the session, what is done, where, and the files it starts from."""
    based = [[change.path, change.old_path, change.before_hash] for change in foreseen.changes]
    # What lies elsewhere is known by the names it was given, in their order, which lead from there.
    named = [[touch.path, touch.move_to] for touch in operation.touches] if foreseen.outside else []
    where = operation.cwd if operation.kind in _BY_PLACE or foreseen.outside else None
    parts = ["operation", session.id, operation.identity, where, based, named]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


async def _rule(session: SessionActor, operation: Operation, seen: _Seen) -> str | None:
    """The rule of the policy in force that lets the operation pass, if one does."""
    config = session.context.config.policy
    if config.remote_mode_asks_always and session.row.mode is SessionMode.REMOTE:
        return None
    foreseen, level = seen.foreseen, seen.risk
    if foreseen.outside or not seen.in_place:
        return None
    match operation.kind:
        case OperationKind.COMMAND if operation.into is not None:
            # The same words are harmless in one program and a command in another.
            return None
        case OperationKind.COMMAND:
            # A rule for a tool of this name is no rule for a program of this name.
            rule = (await session.judge(Evaluate(Query(operation.text or "", (), None, level)))).matched_rule
            return rule if rule is not None and rule.startswith("command:") else None
        case OperationKind.WRITE:
            if not foreseen.inside:
                return None
            return (await session.judge(EvaluateFiles(foreseen.inside, level))).matched_rule
        case OperationKind.READ if operation.path is not None:
            if seen.read is None:
                return None
            query = Query(operation.tool, _NO_COMMAND, seen.read, level, "read")
            return (await session.judge(Evaluate(query))).matched_rule
        case _:
            return (await session.judge(Evaluate(Query(operation.tool, _NO_COMMAND, None, level)))).matched_rule


def _settle(
    db: Database, session: SessionActor, asked: AskPermission, request: ApprovalRequest, rule: str | None
) -> tuple[PermissionAnswer, ApprovalRequest | None]:
    """What the hook is answered, and the request that it is about, if it is about one. All in one transaction."""
    name = _named(asked, request)
    told = calls.answer(db, name)
    if told is not None:
        return from_json(PermissionAnswer, told), None
    if rule is not None:
        answer = PermissionAnswer("allowed", rule=rule)
        about = {"matched_rule": rule, "file_path": request.file_path, "text": asked.operation.text}
        session.record(db, "policy", "auto_approved", request.title, **about)
        session.answered_and_recorded(name, request.tool or "", answer)(db)
        return answer, None
    covering = permissions.covering(db, request.key, asked.slot, asked.turn, session.now() - COVERED)
    if covering is not None:
        return _use(db, session, asked, covering, name)
    earlier = approvals.reattachable(db, request.key)
    if earlier is None:
        approvals.insert(db, request)
        session.record(
            db,
            "agent",
            "permission_asked",
            request.title,
            request_id=request.id,
            tool=request.tool,
            client=asked.client,
        )
        return PermissionAnswer("pending", request.id), request
    if earlier.status is ApprovalStatus.APPROVED and approvals.consume(db, earlier.id, session.now()):
        return _use(db, session, asked, earlier.id, name)
    return outcomes.permission(earlier) or PermissionAnswer("pending", earlier.id), earlier


def _named(asked: AskPermission, request: ApprovalRequest) -> str:
    """The call's name for this very operation: a client that uses a name again for another one is answered anew."""
    return f"{asked.call}#{request.key[:32]}"


def _use(
    db: Database, session: SessionActor, asked: AskPermission, request_id: str, name: str
) -> tuple[PermissionAnswer, ApprovalRequest]:
    """Say "do it" to this hook, once."""
    now = session.now()
    permissions.use(db, request_id, asked.slot, asked.turn, asked.call, now)
    approvals.mark_delivered(db, request_id, now)
    used = approvals.get(db, request_id)
    assert used is not None, "just used"
    answer = PermissionAnswer("allowed", request_id, reason=used.decided.text if used.decided else None)
    session.record(db, "intercom", "permission_used", used.title, request_id=request_id, slot=asked.slot)
    session.answered_and_recorded(name, used.tool or "", answer)(db)
    return answer, used
