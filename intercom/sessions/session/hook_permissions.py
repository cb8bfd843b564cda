"""Permissions: a client's permission hook asks whether the client may do something itself.

The policy is asked first, then a person. A person's permission is used once: the transaction that says "do it" to a
hook consumes it under the name of the hook's call. So a repetition after a crash neither consumes it twice nor loses
it.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import trio
from attrs import evolve, frozen

from intercom.model import crash_points, limits
from intercom.model.card import CardKind
from intercom.model.decision import Decision
from intercom.model.errors import InvalidArguments
from intercom.model.grant import Grant, grant_of_rule
from intercom.model.metrics import Settled
from intercom.model.request import (
    NEW_FILE,
    ApprovalRequest,
    ApprovalStatus,
    Operation,
    OperationKind,
    Remark,
    RiskLevel,
)
from intercom.sessions import request_kinds
from intercom.sessions.messages import Answered, AskPermission, RecordedRequest
from intercom.sessions.policy_trial import NO_COMMAND, is_command, to_text
from intercom.sessions.request_kinds import PermissionAnswer, from_json
from intercom.sessions.session import grant_checks
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.grant_checks import COVERED
from intercom.sessions.session.new_requests import insert
from intercom.sessions.session.state import SessionState
from intercom.store.grants import GrantUse
from intercom.store.requests import approvals
from intercom.store.writer_messages import Database
from intercom.workspace.client_operation import OperationPreview, is_inside, preview_operation, risk_of, within
from intercom.workspace.policy import Query
from intercom.workspace.policy_watcher import Evaluate, EvaluateFiles

#: Kinds that differ by directory, because names in their arguments are relative to it.
_BY_PLACE = (OperationKind.COMMAND, OperationKind.READ, OperationKind.OTHER)
#: The prefix of the agent's reason, one line below the operation's text.
_WHY = "why: "
#: A longer command, in characters, is also shown beside the card, where nothing is cut off.
_LONG = 1500


async def ask(session: SessionActor, asked: AskPermission) -> RecordedRequest[PermissionAnswer]:
    """Judge an operation, or ask a person: once, while it is undecided."""
    session.require_open()
    operation = asked.operation
    for name, text, most in (
        ("the tool's name", operation.tool, limits.NAME),
        ("what the tool is used for", operation.title, limits.PATH + limits.TITLE),
        ("what the tool is used with", operation.text, limits.WHOLE),
    ):
        if (too_long := limits.over(name, text, most)) is not None:
            raise InvalidArguments(too_long)
    root = Path(session.row.workspace_root)
    # The agent names the paths. If a file system hangs, only this thread waits for it.
    seen = await trio.to_thread.run_sync(_look, root, asked.operation, abandon_on_cancel=True)
    question = _question(asked.operation, seen)
    request = evolve(_request(session, asked, seen.preview, seen.risk), policy_question=to_text(question))
    rule = await _rule(session, asked.operation, question)
    granted = () if rule is not None else await grant_checks.covering(session, question, asked.operation.tool)
    answer, kept = await session.transact(
        _settle, session=session, asked=asked, request=request, rule=rule, granted=granted
    )
    if isinstance(answer, _Untrusted):
        raise session.refuse(answer.request, answer.fault)
    session.touch(asked.operation.tool)
    if kept is None:
        if answer.rule is not None and grant_of_rule(answer.rule) is not None:
            crash_points.reach("permission.used")
            session.deps.measured(Settled(asked.call, CardKind.APPROVAL, "approve", request_kinds.GRANTED, 0.0))
            await grant_checks.passed(session, answer.rule, request.title)
        elif answer.rule is not None:
            session.deps.measured(Settled(asked.call, CardKind.APPROVAL, "approve", "policy", 0.0))
            session.note_auto_approved(request.title, answer.rule)
        return RecordedRequest("", Answered(answer))
    if answer.status == "allowed":
        session.deps.signatures.note_use(kept.id, session.now())
        crash_points.reach("permission.used")
        session.change(SessionState.drop, (kept.id,))
        session.change(SessionState.detach, (asked.call,))
        session.show(kept)
        return RecordedRequest(kept.id, Answered(answer))
    if answer.status != "pending":
        return RecordedRequest(kept.id, session.answered(asked.call, answer, own=kept.id, alone=True))
    if kept.id == request.id:
        crash_points.reach("request.recorded")
        session.follow(kept)
    return RecordedRequest(kept.id)


@frozen
class _Seen:
    """What an operation does in the workspace. `in_place` says that it runs there. `read` is the canonical path of the
    file it reads, if that is in the workspace."""

    preview: OperationPreview
    risk: RiskLevel
    in_place: bool
    read: str | None


@frozen
class _Untrusted:
    """A request whose recorded decision does not count, and why."""

    request: ApprovalRequest
    fault: str


def _look(root: Path, operation: Operation) -> _Seen:
    """Make every file system query of an operation, in a thread."""
    preview = preview_operation(root, operation)
    read = None if operation.path is None else within(root, operation.cwd, operation.path)
    return _Seen(preview, risk_of(root, operation, preview), is_inside(root, operation.cwd), read)


def _request(
    session: SessionActor, asked: AskPermission, preview: OperationPreview, level: RiskLevel
) -> ApprovalRequest:
    operation, now = asked.operation, session.now()
    remarks = preview.remarks
    if operation.risk_reason is not None:
        remarks = (Remark(None, operation.risk_reason), *remarks)
    if preview.outside:
        seen_from = "" if operation.cwd is None else f", as seen from {operation.cwd}"
        remarks = (Remark(None, f"outside of the workspace: {', '.join(preview.outside)}{seen_from}"), *remarks)
    text = "\n".join(filter(None, (_card_text(operation), operation.why and f"{_WHY}{operation.why}"))) or None
    named = (*preview.inside, *preview.outside)
    request = ApprovalRequest(
        id=session.deps.new_id(),
        session_id=session.id,
        title=operation.title,
        description=text,
        diff_content=preview.diff or (operation.text if len(operation.text or "") > _LONG else "") or "",
        file_path=named[0] if named else operation.cwd or session.row.workspace_root,
        risk_level=level,
        status=ApprovalStatus.PENDING,
        original_hash=preview.changes[0].before_hash if preview.changes else NEW_FILE,
        created_at=now,
        key=_key(session, operation, preview),
        files=preview.changes,
        expires_at=now + timedelta(seconds=session.deps.config.timeouts.approval_seconds),
        call=asked.call,
        tool=operation.tool,
        preview=preview.diff or None,
        remarks=remarks,
        masked=preview.masked,
    )
    return evolve(request, proposal_hash=request.hash_of_record(session.row.workspace_root))


def _card_text(operation: Operation) -> str:
    """Return the operation's text as a card shows it. If a line could be taken for the agent's reason, which follows
    below, every line gets a leading bar, which a reason never has."""
    text = operation.text or ""
    if any(unicodedata.normalize("NFKC", line).strip().casefold().startswith("why") for line in text.splitlines()):
        return "\n".join(f"| {line}" for line in text.split("\n"))
    return text


def _key(session: SessionActor, operation: Operation, preview: OperationPreview) -> str:
    """Return the key of an operation: the session, the action, the directory, and the files it starts from."""
    based = [[change.path, change.old_path, change.before_hash] for change in preview.changes]
    # Paths outside are identified by their names in order, relative to the directory.
    named = [[touch.path, touch.move_to] for touch in operation.touches] if preview.outside else []
    where = operation.cwd if operation.kind in _BY_PLACE or preview.outside else None
    parts = ["operation", session.id, operation.identity, where, based, named]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _question(operation: Operation, seen: _Seen) -> Evaluate | EvaluateFiles | None:
    """Return the policy question about an operation; None if no policy may allow it."""
    preview, level = seen.preview, seen.risk
    if preview.outside or not seen.in_place:
        return None
    match operation.kind:
        case OperationKind.COMMAND if operation.into is not None:
            # The same text is harmless in one program and a command in another.
            return None
        case OperationKind.COMMAND if operation.unsandboxed:
            # The author of the rule may have counted on the sandbox.
            return None
        case OperationKind.COMMAND:
            return Evaluate(Query(operation.text or "", (), None, level))
        case OperationKind.WRITE:
            return EvaluateFiles(preview.inside, level, in_place=True) if preview.inside else None
        case OperationKind.READ if operation.path is not None:
            return None if seen.read is None else Evaluate(Query(operation.tool, NO_COMMAND, seen.read, level, "read"))
        case _:
            return Evaluate(Query(operation.tool, NO_COMMAND, None, level))


async def _rule(session: SessionActor, operation: Operation, question: Evaluate | EvaluateFiles | None) -> str | None:
    """Return the rule of the policy in force that allows the operation, if any."""
    if question is None or grant_checks.asks_always(session):
        return None
    rule = (await session.judge(question)).matched_rule
    return None if rule is not None and is_command(question) and not rule.startswith("command:") else rule


def _settle(
    db: Database,
    session: SessionActor,
    asked: AskPermission,
    request: ApprovalRequest,
    rule: str | None,
    granted: Sequence[Grant],
) -> tuple[PermissionAnswer | _Untrusted, ApprovalRequest | None]:
    """Decide the hook's answer in one transaction. Returns it with the request that it is about, if any. What a person
    has decided, or has yet to decide, about the same operation goes before a grant."""
    name = _named(asked, request)
    told = session.recorded_answer(db, name)
    if told is not None:
        return _told_again(db, session, from_json(PermissionAnswer, told), request.key, rule, name)
    if rule is not None:
        return _passed(db, session, asked, request, "policy", rule), None
    covering = approvals.covering(db, request.key, asked.slot, asked.turn, session.now() - COVERED)
    if (
        covering is not None
        and _is_on_card(approvals.get(db, covering), request, asked.operation)
        and _covers(db, session, covering)
    ):
        return _use(db, session, asked, covering, name)
    earlier = approvals.reattachable(db, request.key)
    if earlier is not None:
        fault = _fault(session, earlier) or session.deps.signatures.fault_of_use(db, earlier)
        if fault is not None:
            return _Untrusted(earlier, fault), None
    if (
        earlier is not None
        and earlier.status is ApprovalStatus.APPROVED
        and not (_is_genuine(session, earlier) and _is_on_card(earlier, request, asked.operation))
    ):
        approvals.void(db, earlier.id, session.now())
        session.record(
            db, "intercom", "approval_voided", "it is not what was shown and approved", request_id=earlier.id
        )
        earlier = None
    if earlier is None:
        use = GrantUse(name, request.key, asked.turn, asked.slot)
        grant = grant_checks.take(db, session, granted, use, request.title)
        if grant is not None:
            return _passed(db, session, asked, request, request_kinds.GRANTED, grant.rule), None
        insert(db, session, request, client=asked.client)
        return PermissionAnswer("pending", request.id), request
    if earlier.status is ApprovalStatus.APPROVED and approvals.consume(db, earlier.id, session.now()):
        return _use(db, session, asked, earlier.id, name)
    is_open = earlier.status is ApprovalStatus.PENDING
    return PermissionAnswer("pending", earlier.id) if is_open else request_kinds.permission(earlier), earlier


def _passed(
    db: Database, session: SessionActor, asked: AskPermission, request: ApprovalRequest, by: str, rule: str
) -> PermissionAnswer:
    """Record that a policy or a grant allows the operation, and return the answer."""
    answer = PermissionAnswer("allowed", rule=rule)
    about = {"matched_rule": rule, "file_path": request.file_path, "text": asked.operation.text}
    session.record(db, by, "auto_approved", request.title, **about)
    session.record_answer(db, _named(asked, request), request.tool or "", answer)
    return answer


def _is_genuine(session: SessionActor, request: ApprovalRequest) -> bool:
    """Return whether an approval has a decision, and is still about what was decided."""
    by_decision = request.decided is not None and request.decided.decision == Decision.APPROVE
    return by_decision and request.hash_of_record(session.row.workspace_root) == request.proposal_hash


def _is_on_card(decided: ApprovalRequest | None, request: ApprovalRequest, operation: Operation) -> bool:
    """Return whether the card of `decided` shows this operation, from which `request` was made just now. The key
    identifies the operation, not its card: the card is in the store, which can be edited before a person looks. The
    agent's reason may differ."""
    if decided is None or decided.risk_level.rank < request.risk_level.rank:
        return False
    text, said = _card_text(operation), decided.description or ""
    why = said.removeprefix(text).removeprefix("\n")
    if not said.startswith(text) or (why and ("\n" in why or not why.startswith(_WHY))):
        return False
    # A fetch, or a call of another server's tool, is the same in every directory.
    at_a_place = bool(operation.touches) or operation.kind in _BY_PLACE
    return _drawn(decided, at_a_place) == _drawn(request, at_a_place)


def _drawn(request: ApprovalRequest, at_a_place: bool) -> tuple[object, ...]:
    path = request.file_path if at_a_place else None
    return (request.title, path, request.files, request.diff_content, request.preview, request.remarks, request.masked)


def _fault(session: SessionActor, request: ApprovalRequest) -> str | None:
    return session.deps.signatures.fault(request, session.row.workspace_root)


def _covers(db: Database, session: SessionActor, request_id: str) -> bool:
    """Return whether the first use of the covering approval is recent by the audit log too, not only by its row."""
    signatures = session.deps.signatures
    if not signatures.required:
        return True
    used = signatures.first_use(db, session.id, request_id)
    return used is None or used >= session.now() - COVERED


def _told_again(
    db: Database, session: SessionActor, answer: PermissionAnswer, key: str, rule: str | None, name: str
) -> tuple[PermissionAnswer | _Untrusted, None]:
    """Return the answer of a repeated hook call. With an operator key the recorded answer proves nothing: it needs a
    person's decision, a recorded use of a grant, or the current policy."""
    if answer.status == "allowed" and session.deps.signatures.required:
        request = None if answer.request_id is None else approvals.get(db, answer.request_id)
        used = (session.id, key, ApprovalStatus.CONSUMED)
        if request is not None and (request.session_id, request.key, request.status) == used:
            fault = _fault(session, request)
            return (answer if fault is None else _Untrusted(request, fault)), None
        if rule is None and not grant_checks.was_used(db, session, answer.rule, name):
            return PermissionAnswer("denied", reason="no recorded decision allows this any more; ask again"), None
    return answer, None


def _named(asked: AskPermission, request: ApprovalRequest) -> str:
    """Return the call's name for this operation. A client may reuse a name for another operation."""
    return f"{asked.call}#{request.key[:32]}"


def _use(
    db: Database, session: SessionActor, asked: AskPermission, request_id: str, name: str
) -> tuple[PermissionAnswer | _Untrusted, ApprovalRequest | None]:
    """Use the approval, and answer "do it" to this hook, once."""
    now = session.now()
    before = approvals.get(db, request_id)
    fault = None if before is None else _fault(session, before)
    if before is not None and fault is not None:
        return _Untrusted(before, fault), None
    approvals.use(db, request_id, asked.slot, asked.turn, asked.call, now)
    approvals.mark_delivered(db, request_id, now)
    used = approvals.get(db, request_id)
    assert used is not None, "just used"
    answer = PermissionAnswer("allowed", request_id, reason=used.decided.text if used.decided else None)
    session.record(db, "intercom", "permission_used", used.title, request_id=request_id, slot=asked.slot)
    session.record_answer(db, name, used.tool or "", answer)
    return answer, used
