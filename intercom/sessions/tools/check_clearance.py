"""check_clearance: a proposed change is checked, recorded and shown to a person, or the policy approves it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import ClassVar

import trio
from attrs import evolve, field, frozen

from intercom.model import limits
from intercom.model.decision import Decided
from intercom.model.errors import InvalidArguments
from intercom.model.field_docs import doc
from intercom.model.grant import grant_of_rule
from intercom.model.policy import PolicyAnswer
from intercom.model.request import ApprovalRequest, ApprovalStatus, FileChange, ProposalForm, RiskLevel
from intercom.sessions import request_kinds
from intercom.sessions.messages import RecordedRequest, ToolRequest
from intercom.sessions.policy_trial import question_of
from intercom.sessions.request_kinds import ClearanceAnswer
from intercom.sessions.session import grant_checks
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.new_requests import record_request
from intercom.sessions.tools.tool import WAIT_AGAIN, Hints, Tool
from intercom.store import requests
from intercom.store.requests import approvals
from intercom.workspace import change_plan, proposal
from intercom.workspace.files import recorded_ids
from intercom.workspace.preview import Preview, over, preview
from intercom.workspace.proposal import BEGINNINGS

DESCRIPTION = """\
Call this before you write a file: a person approves or rejects the change. Once it is "approved", check_diff writes \
it. Do not write it by yourself.
Give the change as diff, a unified diff of one file or several, or as content, the whole new content of one file. The \
call waits until a person answers.
- "approved": call check_diff with the request_id; it writes exactly what was approved. With changes, a person left \
parts out or edited them: read the files again afterwards.
- "rejected": do not make this change; follow the reason. With comments, change what they ask and propose it again.
- "timeout": nobody answered in time. Treat it as not approved; ask again later or use standby.
- "pending": still undecided. Do not write; call again with only this request_id to continue waiting.
Asking again for the same change while it is undecided joins the earlier request; nobody is asked twice."""

_NOT_APPROVED_YET = (
    "not approved yet: do not write the change by other means; call check_clearance again with this request_id to"
    " continue waiting"
)


@frozen
class CheckClearance(ToolRequest[RecordedRequest[ClearanceAnswer]]):
    """Propose a change to a person: a `diff`, or the whole new `content` of one file, taken literally. With
    `request_id`, only re-attach to that request."""

    nothing_required: ClassVar[bool] = True

    title: str | None = field(
        default=None,
        metadata=doc(
            "One line that says what the change is. Needed for a new proposal.", min_length=1, most=limits.TITLE
        ),
    )
    diff: str | None = field(
        default=None,
        metadata=doc(
            "The change as a unified diff of one file or several. It begins with the --- line or with diff --git: no"
            " prose, no code block. A new proposal needs diff or content, not both."
        ),
    )
    file_path: str | None = field(
        default=None,
        metadata=doc(
            "The file it changes, relative to the workspace root; for a diff of several files, one of them."
            " Needed for a new proposal.",
            min_length=1,
        ),
    )
    description: str | None = field(
        default=None, metadata=doc("Why, and what a reviewer should know.", most=limits.TEXT)
    )
    risk_level: RiskLevel = field(default=RiskLevel.LOW, metadata=doc("How much harm a mistake could do."))
    request_id: str | None = field(default=None, metadata=doc(WAIT_AGAIN, min_length=1, most=limits.NAME))
    content: str | None = field(
        default=None,
        metadata=doc("The whole new content of the file, taken literally: it may be empty, or look like a patch."),
    )

    @property
    def waits_while_paused(self) -> bool:
        return self.request_id is None


async def handle(session: SessionActor, asked: CheckClearance) -> RecordedRequest[ClearanceAnswer]:
    """Record a change, once. A repeated proposal re-attaches to its open request. Raises InvalidArguments."""
    session.require_open()
    session.touch("check_clearance")
    if asked.request_id is not None:
        return session.reply_to_call(await session.find_of(ApprovalRequest, asked.request_id), asked.call)
    text = asked.diff if asked.content is None else asked.content
    if asked.title is None or text is None or asked.file_path is None:
        raise InvalidArguments(
            "title, file_path and one of diff and content are needed for a new proposal (or request_id for an old one)"
        )
    if asked.diff is not None and asked.content is not None:
        raise InvalidArguments("diff and content are two forms of the same change; send one of them")
    earlier = await session.transact(requests.by_call, session_id=session.id, call=asked.call)
    if isinstance(earlier, ApprovalRequest):
        # A repeated call: its answer was lost. Its request is still valid, even if the files have changed since.
        return session.reply_to_call(earlier, asked.call)
    form, plan, shown = await trio.to_thread.run_sync(
        _plan, session.row.workspace_root, text, asked.file_path, asked.content is not None
    )
    files = shown.changes
    key = proposal_key(session.id, files, asked.risk_level, text, form)
    rule = (await judge(session, files, asked.risk_level)).matched_rule
    question = question_of(files, asked.risk_level)
    granted = () if rule is not None else await grant_checks.covering(session, question, None)
    now = session.now()
    request = ApprovalRequest(
        id=session.deps.new_id(),
        session_id=session.id,
        title=asked.title,
        description=asked.description,
        diff_content=text,
        form=form,
        file_path=asked.file_path,
        risk_level=asked.risk_level,
        status=ApprovalStatus.PENDING,
        original_hash=original_hash(files, asked.file_path),
        created_at=now,
        key=key,
        files=files,
        expires_at=now + timedelta(seconds=session.deps.config.timeouts.approval_seconds),
        call=asked.call,
        auto_rule=rule,
        root_inode=plan.root_id,
        preview=shown.diff,
        remarks=shown.remarks,
        masked=shown.masked,
    )
    request = evolve(request, proposal_hash=request.hash_of_record(session.row.workspace_root))
    here = () if plan.root_id is None else recorded_ids(plan.root_id)
    decided = None if rule is None else Decided(f"policy/{request.id}", "approve", "policy", "policy", now, rule)
    kept, _ = await record_request(
        session,
        request,
        partial(approvals.reattachable, key=key, root_ids=here),
        rule=rule,
        decided=decided,
        decide=lambda db, new: grant_checks.approve(db, session, granted, new),
    )
    return session.reply_to_call(kept, asked.call)


async def ask_to_overwrite(session: SessionActor, approved: ApprovalRequest, call: str) -> ApprovalRequest:
    """Ask, once, whether an approved whole file is to overwrite a file that has changed since. A repeated call returns
    the same request. It is approved at once if the configuration lets the agent decide and signatures are not required.

    Raises PatchConflict for a patch, which would be another change on another base.
    """
    by = "the policy" if approved.auto_rule is not None else approved.decided.by if approved.decided else "nobody"
    by = "a grant" if grant_of_rule(approved.auto_rule) is not None else by
    shown = await trio.to_thread.run_sync(_shown_over, session.row.workspace_root, approved, by)
    file, now = shown.changes[0], session.now()
    request = evolve(
        approved,
        id=session.deps.new_id(),
        title=approved.title if approved.replaces is not None else f"Write over a changed file: {approved.title}",
        status=ApprovalStatus.PENDING,
        original_hash=file.before_hash,
        created_at=now,
        key=proposal_key(session.id, shown.changes, approved.risk_level, approved.diff_content, ProposalForm.CONTENT),
        form=ProposalForm.CONTENT,
        files=shown.changes,
        expires_at=now + timedelta(seconds=session.deps.config.timeouts.approval_seconds),
        slack_ts=None,
        call=call,
        auto_rule=None,
        decided=None,
        details=None,
        delivered_at=None,
        preview=shown.diff,
        remarks=shown.remarks,
        masked=shown.masked,
        replaces=approved.id,
    )
    request = evolve(request, proposal_hash=request.hash_of_record(session.row.workspace_root))
    decided = None
    if session.deps.config.apply.agent_may_force and not session.deps.signatures.required:
        decided = Decided(
            f"force/{request.id}", "approve", "agent", request_kinds.FORCE, now, "[apply] agent_may_force"
        )
    kept, is_new = await record_request(
        session, request, partial(approvals.reattachable, key=request.key), decided=decided
    )
    if is_new and decided is not None:
        session.notify(f"{file.path} had changed since the proposal; written anyway (force)", "warning")
    return kept


def proposal_key(
    session_id: str, files: tuple[FileChange, ...], risk: RiskLevel, text: str, form: ProposalForm | None
) -> str:
    """Return the key that identifies a proposal: session, paths, base hashes, the text's hash and risk."""
    parts: list[object] = [
        session_id,
        risk.value,
        hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        [[change.path, change.old_path, change.before_hash] for change in files],
    ]
    if form is ProposalForm.CONTENT and text.startswith(BEGINNINGS):
        # Only such a text can be read in two ways.
        parts.append(form.value)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _plan(
    workspace_root: str, text: str, file_path: str, is_content: bool
) -> tuple[ProposalForm, change_plan.Plan, Preview]:
    """Return how the text is read, what it changes, and how people are shown that."""
    root = Path(workspace_root)
    read = proposal.whole(text, file_path) if is_content else proposal.parse(text, file_path)
    plan = change_plan.plan(root, read)
    return read.form, plan, preview(root, plan)


def _shown_over(workspace_root: str, approved: ApprovalRequest, by: str) -> Preview:
    """Return the preview of an approved whole file over the current file, with what was approved."""
    root = Path(workspace_root)
    parsed = proposal.recorded(approved.diff_content, approved.file_path, approved.form)
    plan = change_plan.plan_again(root, parsed, approved.files, root_id=approved.root_inode, diverged=True)
    return over(preview(root, plan), by, approved.preview, approved.masked)


def original_hash(files: tuple[FileChange, ...], file_path: str) -> str:
    """Return the hash before of the file that a request names; of its first file if it names none of them."""
    for change in files:
        if file_path.lstrip("./") in (change.path, change.old_path):
            return change.before_hash
    return files[0].before_hash


async def judge(session: SessionActor, files: Sequence[FileChange], risk: RiskLevel) -> PolicyAnswer:
    """Ask the policy in force whether a change of these files passes without a person, and by which rule."""
    if grant_checks.asks_always(session):
        return PolicyAnswer(False, why="in remote mode a person is always asked")
    return await session.judge(question_of(files, risk))


TOOL = Tool(
    name="check_clearance",
    legacy_name="ask_approval",
    title="Ask for clearance",
    description=DESCRIPTION,
    takes=CheckClearance,
    result=ClearanceAnswer,
    hints=Hints(idempotent=True, open_world=True),
    handle=handle,
    pending=lambda id: ClearanceAnswer("pending", id, message=_NOT_APPROVED_YET),
    offers_tasks=True,
)
