"""check_diff: the approved bytes are written to disk, all of them, once, even across crashes.

Before anything is written, the change is worked out again from the recorded text and the current files. Its paths and
hashes must be those of the proposal, which a person saw. An approval whose record was changed is void.

The order of the steps makes an apply whole, also across a crash. First the journal names the files that are staged, and
they are written next to their targets. Then the journal commits to them, and they are renamed into place. Last, one
transaction marks the apply as done, consumes the approval and records the answer under the call's name. A crash before
the commit leaves nothing. After a crash that comes later, recovery finishes the apply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import trio
from attrs import evolve, field, frozen

from intercom.model import crash_points, limits
from intercom.model.card import Card, CardKind, CardState, Notice, end_of
from intercom.model.decision import Decision, Verdict
from intercom.model.errors import (
    AlreadyConsumed,
    AlreadyDecided,
    ApplyStuck,
    DatabaseError,
    DiffError,
    IntercomError,
    InvalidState,
    NotFound,
    PatchConflict,
    PathViolation,
    RecordMismatch,
)
from intercom.model.field_docs import doc
from intercom.model.request import ApprovalRequest, ApprovalStatus
from intercom.model.visible_text import count, one_line
from intercom.sessions import request_kinds
from intercom.sessions.agent_keys import ONE_AGENT
from intercom.sessions.messages import Answered, Decide, RecordedRequest, ToolRequest
from intercom.sessions.request_kinds import MESSAGE, ClearanceAnswer
from intercom.sessions.session import grant_checks
from intercom.sessions.session.actor import UNREADABLE, SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools import check_clearance
from intercom.sessions.tools.tool import Hints, Tool
from intercom.store import idempotency, requests
from intercom.store.apply_journal import Entry, JournalState, journal
from intercom.store.idempotency import Scope
from intercom.store.outbox import Content
from intercom.store.requests import approvals
from intercom.store.rows import not_none
from intercom.store.store_and_reader import StoreUnavailable
from intercom.store.writer_messages import Database
from intercom.workspace import change_plan, proposal, transaction
from intercom.workspace.preview import FileVersions, is_on_card, is_part_of_card, preview
from intercom.workspace.transaction import Step

DESCRIPTION = """\
Write a change once check_clearance says that it is "approved": exactly that, all of its files or none. Only \
"applied" means that it is written.
Read the files again before you continue. On anything else nothing was written, except perhaps on "unavailable" (call \
again with the same request_id) and "apply_stuck" (a person decides):
- patch_conflict: the file has changed since; make a new proposal. With force, a person is asked whether to write an \
approved whole file over it, and the call waits for the answer: "rejected" and "timeout" mean no, "pending" means to \
call again with only that request_id.
- not_approved, already_consumed, request_not_found, path_violation: the message says what to do."""

_NOT_OVERWRITTEN_YET = (
    "the file has changed since it was approved, and a person decides whether to write over it; nothing is written:"
    " call check_diff again with this request_id to continue waiting"
)
_GIVEN_UP = "given up"
_NOT_OVERWRITTEN = "nothing was written: read the file as it is now, and propose against that"


@frozen
class CheckDiff(ToolRequest[RecordedRequest["ApplyAnswer"]]):
    """Write an approved change to disk. Refused with the errors of check_diff; then nothing was written, except with
    `apply_stuck`, which an operator was told. If the session goes down meanwhile (`Down`), the change is written, or
    will be, or not: ask again. `force` is for a whole file that has changed since. A person is then asked: await that
    request, and ask this again with its id."""

    request_id: str = field(
        metadata=doc("The id that check_clearance gave with its approval.", min_length=1, most=limits.NAME)
    )
    force: bool = field(
        default=False,
        metadata=doc(
            "If the file has changed since it was approved: ask a person whether to write the approved whole file over"
            " it, and wait. Never applies a patch to a changed file."
        ),
    )


@frozen
class FileWritten:
    path: str = field(metadata=doc("The file, relative to the workspace root."))
    bytes: int = field(metadata=doc("Its new size."))


@frozen
class ApplyAnswer:
    """The answer of check_diff. `status` is applied. If a file has changed since and a person decides whether to
    overwrite it, `status` is pending, rejected or timeout, and `request_id` is that question's."""

    files_written: tuple[FileWritten, ...] = field(default=(), metadata=doc("The files that were written."))
    status: str = field(default="applied", metadata=doc('"applied", "pending", "rejected" or "timeout".'))
    request_id: str | None = field(
        default=None, metadata=doc("The id of the question whether to write over a changed file.")
    )
    reason: str | None = field(default=None, metadata=doc("Why a person said no, if they said why."))
    message: str | None = field(default=None, metadata=MESSAGE)


async def handle(session: SessionActor, asked: CheckDiff) -> RecordedRequest[ApplyAnswer]:
    """Write an approved change. Raises the errors of check_diff; then nothing was written, unless it is ApplyStuck."""
    recorded = await session.recorded(asked.call, ApplyAnswer)
    if recorded is not None:
        return RecordedRequest(asked.request_id, Answered(recorded))
    session.require_open()
    session.touch("check_diff")
    async with session.deps.locks.hold(session.row.workspace_root):
        request, entry, used = await session.transact(_look, session, asked.request_id)
        if request.replaces is not None and request.status is ApprovalStatus.PENDING:
            return RecordedRequest(request.id)
        # Whatever follows tells the decision: a refusal too, and what was done on an approval.
        session.note_known(request.id)
        _check_state(request)
        session.trusted(request)
        if used is not None:
            raise session.refuse(request, used)
        if entry is not None and entry.state is JournalState.STAGING:
            # An earlier call ended before its commit: nothing is in place, and perhaps not all was staged.
            entry = await _abandon(session, entry, "an earlier call ended before the change was committed")
        again = entry is not None
        if entry is not None and entry.state is JournalState.STUCK:
            with _left_to_recovery():
                entry = await _retry_stuck(session, entry)
        if entry is None or entry.state is JournalState.ABANDONED:
            try:
                entry = await _plan_and_commit(session, request, asked.call)
            except PatchConflict:
                if not asked.force:
                    raise
                request = await check_clearance.ask_to_overwrite(session, request, asked.call)
                if request.status is not ApprovalStatus.APPROVED:
                    return RecordedRequest(request.id)
                session.note_known(request.id)
                session.trusted(request)
                _, _, used = await session.transact(_look, session, request.id)
                if used is not None:
                    raise session.refuse(request, used) from None
                entry = await _plan_and_commit(session, request, asked.call)
        with _left_to_recovery():
            answer = await _carry_through(session, entry, asked.call, again=again)
    return RecordedRequest(request.id, session.answered(asked.call, answer, own=request.id))


async def give_up(session: SessionActor, asked: Decide) -> Card:
    """Give up an apply that stopped half-way, as a person decided: leave the files as they are, discard the rest, and
    void the approval, with those that it replaced. If the change is wanted after all, it is proposed again.

    The same verdict again is answered like the first time. Raises AlreadyDecided if it is not stuck any more."""
    end_of(CardKind.APPLY, asked.verdict.decision)
    request, entry, _ = await session.transact(_look, session, request_kinds.request_of(asked.request_id))
    if entry is not None and await session.transact(idempotency.was_done, scope=Scope.DECISION, id=asked.verdict.id):
        return evolve(request_kinds.card_of_stuck(entry, request), state=CardState.CLOSED)
    if entry is None or entry.state is not JournalState.STUCK:
        raise AlreadyDecided(f"the apply of request {request.id} is not stuck any more; nothing was changed")
    session.deps.signatures.admit(asked.verdict, request_kinds.card_of_stuck(entry, request), session.now())
    async with session.deps.locks.hold(entry.workspace_root):
        await _discard(entry)
        voided = await session.transact(_record_abandoned, session=session, entry=entry, verdict=asked.verdict)
    session.change(SessionState.drop, (each.id for each in voided))
    for each in voided:
        session.show(each, note=f"{_GIVEN_UP} by {asked.verdict.by}")
    card = evolve(request_kinds.card_of_stuck(entry, request), state=CardState.CLOSED)
    session.deps.card_router.tell(card)
    return card


async def recover(session: SessionActor) -> None:
    """Recover after a crash: discard what was only staged, finish what was committed."""
    entries = await session.transact(lambda db: [e for e in journal.unfinished(db) if e.session_id == session.id])
    for entry in entries:
        async with session.deps.locks.hold(entry.workspace_root):
            if entry.state is JournalState.STAGING:
                await _abandon(session, entry, "the server stopped before the change was committed")
            elif entry.state is JournalState.COMMITTED:
                try:
                    request, _, used = await session.transact(_look, session, entry.request_id)
                except NotFound as gone:
                    await _close_orphan(session, entry, gone.message)
                    continue
                refused = session.refuse_if_void(request) if used is None else session.refuse(request, used)
                if refused is not None:
                    await _stop(session, entry, refused.message)
                    continue
                try:
                    await _carry_through(session, entry, again=True)
                except ApplyStuck:
                    # Its card tells people, and a person decides. The session goes on.
                    continue


def _check_state(request: ApprovalRequest) -> None:
    if request.tool is not None:
        raise InvalidState(
            f"request {request.id} is a permission for your own tool {request.tool}: use that, there is nothing to"
            " apply",
            code="not_approved",
        )
    match request.status:
        case ApprovalStatus.APPROVED:
            return
        case ApprovalStatus.CONSUMED:
            raise AlreadyConsumed(f"request {request.id} was applied at {request.consumed_at:%Y-%m-%d %H:%M:%S} UTC")
        case ApprovalStatus.PENDING:
            hint = "wait for the decision with check_clearance and this request_id"
        case _:
            hint = "propose the change again with check_clearance"
    raise InvalidState(f"request {request.id} is {request.status.value}, not approved; {hint}", code="not_approved")


async def _plan_and_commit(session: SessionActor, request: ApprovalRequest, call: str) -> Entry:
    """Check the decision and its record, plan the change, stage its files, and commit the journal to them. Raises
    PatchConflict if a file has changed since."""
    root = Path(session.row.workspace_root)
    await _check_decision(session, request)
    try:
        _check_record(session, request)
        plan = await trio.to_thread.run_sync(_plan, root, request)
        await trio.to_thread.run_sync(_check_shown, root, request, plan)
    except RecordMismatch as changed:
        await _void(session, request, f"request {request.id} was changed after it was decided: {changed}")
        raise
    steps = await trio.to_thread.run_sync(_prepare, root, request, plan)
    entry = Entry(
        request_id=request.id,
        session_id=session.id,
        workspace_root=str(root),
        state=JournalState.STAGING,
        steps=transaction.to_text(steps),
        at=session.now(),
        call=call,
    )
    if not await session.transact(_begin, entry=entry):
        raise InvalidState(f"request {request.id} is being applied already; call check_diff again shortly")
    with _left_to_recovery():
        try:
            await trio.to_thread.run_sync(transaction.stage, root, steps, plan.contents.get)
        except (IntercomError, OSError) as failed:
            await _abandon(session, entry, str(failed))
            raise _readable(failed) from failed
        entry = await _advance(session, entry, JournalState.COMMITTED)
    crash_points.reach("journal.committed")
    return entry


@contextmanager
def _left_to_recovery() -> Iterator[None]:
    """Raise StoreUnavailable instead of DatabaseError. In this block an apply is recorded and not finished, and files
    may have changed. The refusal would say that nothing was written. Instead the session actor crashes, and `recover`
    finishes the apply when it starts again, as soon as the database can be written."""
    try:
        yield
    except DatabaseError as failed:
        raise StoreUnavailable(f"{failed}; the apply is finished, or undone, as soon as that is possible") from failed


async def _check_decision(session: SessionActor, request: ApprovalRequest) -> None:
    """Check that an approved request was really approved, and that the policy still allows it if the policy approved
    it. Voids the approval and raises InvalidState otherwise."""
    if request.decided is None or request.decided.decision != Decision.APPROVE:
        why = f"request {request.id} is marked as approved, but no decision to approve it is recorded"
    elif request.decided.channel == request_kinds.FORCE:
        if session.deps.config.apply.agent_may_force:
            return
        why = f"request {request.id} was forced by the agent, and [apply] agent_may_force does not allow that"
    else:
        refusal = await _policy_refusal(session, request)
        if refusal is None:
            return
        why = refusal
    await _void(session, request, why)
    raise InvalidState(f"{why}; nothing was written, propose the change again", code="not_approved")


async def _policy_refusal(session: SessionActor, request: ApprovalRequest) -> str | None:
    """Return why the policy does not allow its own approval any more; None if it does, or if a person decided. Raises
    IntercomError (unavailable) while the policy cannot be read. The same for the grant that let it pass."""
    if request.decided is not None and request.decided.channel == request_kinds.GRANTED:
        return await grant_checks.refusal(session, request)
    if request.decided is None or request.decided.channel != "policy":
        return None
    answer = await check_clearance.judge(session, request.files, request.risk_level)
    if answer.auto_approved:
        return None
    if answer == UNREADABLE:
        raise IntercomError(f"{answer.why}; nothing was written", code="unavailable")
    return f"the policy does not let it pass any more: {answer.why}"


def _check_shown(root: Path, request: ApprovalRequest, plan: change_plan.Plan) -> None:
    """Raise RecordMismatch if people were shown something else than what the plan does. The recorded diff could be
    edited before a person looks, and then the signature covers the edited diff."""
    if not is_on_card(request, preview(root, plan)):
        raise RecordMismatch("the diff that people were shown is not the one of its files")


def _prepare(root: Path, request: ApprovalRequest, plan: change_plan.Plan) -> tuple[Step, ...]:
    return transaction.prepare(root, request.id, change_plan.steps(root, plan), plan.root_id)


def _check_shown_of_rest(root: Path, request: ApprovalRequest, steps: Sequence[Step]) -> None:
    """Raise RecordMismatch if the rest of a committed apply is not what people were shown. The old content of finished
    files is gone."""
    versions = {
        number: FileVersions(request.files[number], before, after)
        for number, before, after in change_plan.unfinished(root, steps, request.files)
    }
    if not is_part_of_card(request, versions):
        raise RecordMismatch(
            "the diff that people were shown is not the one of its files, so it is not what was approved"
        )


def _check_record(session: SessionActor, request: ApprovalRequest) -> None:
    """Raise RecordMismatch if the recorded proposal is not the one that was decided."""
    if request.hash_of_record(session.row.workspace_root) != request.proposal_hash:
        raise RecordMismatch(
            f"the record of request {request.id} is not what was shown and approved;"
            " nothing was written, propose the change again"
        )


def _check_steps(session: SessionActor, request: ApprovalRequest, entry: Entry) -> tuple[Step, ...]:
    """Return the steps of an apply that was committed before, after a check of its record and its decision: a journal
    is no approval. Raises RecordMismatch, and SignatureRefused if the decision does not count."""
    decided = request.decided
    if request.status is not ApprovalStatus.APPROVED or decided is None or decided.decision != Decision.APPROVE:
        raise RecordMismatch(f"no decision to approve request {request.id} is recorded, so it is not what was approved")
    session.trusted(request)
    _check_record(session, request)
    if entry.workspace_root != session.row.workspace_root:
        raise RecordMismatch(f"it was approved for {session.row.workspace_root}, not {entry.workspace_root}")
    steps = _steps(entry)
    path = change_plan.difference(steps, request.files)
    if path is not None:
        raise RecordMismatch(f"the journal's step for {path} is not what was approved")
    return steps


async def _void(session: SessionActor, request: ApprovalRequest, why: str) -> None:
    """Void an approval that may not be applied, and tell people."""
    found = await session.transact(_voided, session, request, why)
    session.change(SessionState.drop, (request.id,))
    session.show(found, note=f"void, nothing was written: {why}")
    text = f"an approval was refused when it was to be applied ({request.title}): {why}"
    session.deps.card_router.tell(Notice(text, "error", session.now()))


async def _carry_through(
    session: SessionActor, entry: Entry, call: str | None = None, *, again: bool = False
) -> ApplyAnswer:
    """Finish a committed apply; idempotent. `call` names the call that gets the answer, in addition to the one that
    began the apply. `again` says that the journal was read back: then the policy checks its own approval once more.
    Raises ApplyStuck if files are neither in the state before nor in the state after, and InvalidState for an apply
    that is not committed: a crash among its files would leave some of them."""
    root = Path(entry.workspace_root)
    request = await session.transact(_committed, entry)
    try:
        steps = _check_steps(session, request, entry)
        if again:
            if (refusal := await _policy_refusal(session, request)) is not None:
                raise RecordMismatch(refusal)
            await trio.to_thread.run_sync(_check_shown_of_rest, root, request, steps)
        await trio.to_thread.run_sync(transaction.roll_forward, root, steps)
    except DatabaseError:
        raise
    except (IntercomError, OSError) as failed:
        await _stop(session, entry, str(failed))
        raise ApplyStuck(
            f"the change stopped half-way: {failed}; an operator has been told", request_id=entry.request_id
        ) from failed
    moved = {step.moved_from for step in steps}
    answer = ApplyAnswer(tuple(FileWritten(step.path, step.size) for step in steps if step.path not in moved))
    line = Notice(_applied(answer), "success", session.now(), session.id, None, f"applied/{request.id}")
    content = await session.drawn(line)
    finish = partial(_finish, session=session, entry=entry, answer=answer, call=call, line=line, content=content)
    done, others, is_new = await session.transact(finish)
    if is_new:
        session.notify(line.text, line.level, key=None if content is None else line.key)
    if content is not None and session.deps.chat is not None:
        session.deps.chat.wake()
    for each in (done, *others):
        if each.status is ApprovalStatus.CONSUMED:
            session.deps.signatures.note_use(each.id, session.now())
    session.change(SessionState.drop, (each.id for each in (done, *others)))
    session.show(done)
    for each in others:
        if each.status is ApprovalStatus.EXPIRED:
            session.settle(each)
        else:
            session.show(each)
    return answer


def _applied(answer: ApplyAnswer) -> str:
    """Return what was written, for people."""
    written = answer.files_written
    where = one_line(written[0].path) if len(written) == 1 else count(len(written), "file")
    return f"applied, {count(sum(each.bytes for each in written), 'byte')}: {where}"


async def _retry_stuck(session: SessionActor, entry: Entry) -> Entry:
    """Mark a stuck apply as committed again, so that it continues. A person may have repaired the files."""
    entry = await _advance(session, entry, JournalState.COMMITTED)
    request = await session.transact(_request, entry)
    session.deps.card_router.tell(evolve(request_kinds.card_of_stuck(entry, request), state=CardState.CLOSED))
    return entry


async def _abandon(session: SessionActor, entry: Entry, why: str) -> Entry:
    await _discard(entry)
    return await _advance(session, entry, JournalState.ABANDONED, why)


async def _advance(session: SessionActor, entry: Entry, to: JournalState, note: str | None = None) -> Entry:
    """Move an entry to another state. Returns it as it is then; raises as `_move`."""
    await session.transact(_move, entry, to, note)
    return evolve(entry, state=to, note=note or entry.note)


async def _discard(entry: Entry) -> None:
    """Discard the files that are staged and not in place, as far as they are known and can be removed. What stays has a
    name of ours, which is never taken for a file of the workspace."""
    with suppress(IntercomError):
        await trio.to_thread.run_sync(transaction.discard, Path(entry.workspace_root), _steps(entry))


def _steps(entry: Entry) -> tuple[Step, ...]:
    try:
        return transaction.from_text(entry.steps, entry.request_id)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise RecordMismatch("the steps in the journal cannot be read, so they are not what was approved") from None


async def _close_orphan(session: SessionActor, entry: Entry, why: str) -> None:
    """Give up an apply whose request was moved or deleted with SQL, and tell people: its files may be half written."""
    await _discard(entry)
    text = f"an apply was given up, and its files in {entry.workspace_root} may be half written: {why}"
    await session.transact(_record_orphan, session, entry, text)
    session.notify(text, "error")


async def _stop(session: SessionActor, entry: Entry, why: str) -> None:
    """Record that an apply stopped half-way, and show it to people."""
    request = await session.transact(_stick, session, entry, why)
    session.deps.card_router.tell(request_kinds.card_of_stuck(evolve(entry, note=why), request))


def _plan(root: Path, request: ApprovalRequest) -> change_plan.Plan:
    try:
        parsed = proposal.recorded(request.diff_content, request.file_path, request.form)
    except (DiffError, PathViolation) as fault:
        # It was readable when it was proposed.
        raise RecordMismatch(f"its text is another: {fault}") from None
    return change_plan.plan_again(root, parsed, request.files, root_id=request.root_inode)


def _look(db: Database, session: SessionActor, id: str) -> tuple[ApprovalRequest, Entry | None, str | None]:
    """Return the request, its journal entry, and why the approval may not take effect (again), or None."""
    request = requests.find(db, id)
    if not isinstance(request, ApprovalRequest) or request.session_id != session.id:
        raise NotFound(
            f"this session has no clearance request with the id {id!r}; {ONE_AGENT}", code="request_not_found"
        )
    return request, journal.get(db, id), session.deps.signatures.fault_of_use(db, request)


def _voided(db: Database, session: SessionActor, request: ApprovalRequest, why: str) -> ApprovalRequest:
    now = session.now()
    if approvals.void(db, request.id, now):
        approvals.mark_delivered(db, request.id, now)
        session.record(db, "intercom", "approval_voided", why, request_id=request.id)
    return approvals.get(db, request.id) or request


def _record_abandoned(
    db: Database, session: SessionActor, entry: Entry, verdict: Verdict
) -> tuple[ApprovalRequest, ...]:
    """Record that an apply was given up. Returns the requests that are void with it."""
    _move(db, entry, JournalState.ABANDONED, f"{_GIVEN_UP} by {verdict.by}")
    request, now = _request(db, entry), session.now()
    given_up = (request, *_replaced(db, session, request))
    for each in given_up:
        if approvals.void(db, each.id, now):
            approvals.mark_delivered(db, each.id, now)
    if session.record_decision(db, verdict):
        session.record(
            db,
            verdict.by,
            "apply_given_up",
            entry.note or "",
            request_id=entry.request_id,
            channel=verdict.channel,
            origin=verdict.origin_data,
        )
    found = (approvals.get(db, each.id) for each in given_up)
    return tuple(each for each in found if each is not None and each.status is ApprovalStatus.EXPIRED)


def _record_orphan(db: Database, session: SessionActor, entry: Entry, why: str) -> None:
    if journal.advance(db, entry.request_id, JournalState.COMMITTED, JournalState.STUCK, note=why):
        journal.advance(db, entry.request_id, JournalState.STUCK, JournalState.ABANDONED)
        session.record(db, "intercom", "security", why, request_id=entry.request_id)


def _begin(db: Database, entry: Entry) -> bool:
    """Record the apply. Also True if this very entry was recorded before and the writer crashed before it answered.
    Raises InvalidState (not_approved) if the approval has lapsed meanwhile: once it is recorded, it does not."""
    _check_state(_request(db, entry))
    if journal.begin(db, entry):
        return True
    found = journal.get(db, entry.request_id)
    return found is not None and (found.state, found.call, found.at) == (entry.state, entry.call, entry.at)


def _move(db: Database, entry: Entry, to: JournalState, note: str | None = None) -> bool:
    """Move an entry from the state that it has here to another one. Returns False if it was moved before: the writer
    crashed between its commit and its answer. Raises InvalidState if it is in a third state."""
    if journal.advance(db, entry.request_id, entry.state, to, **not_none(note=note)):
        return True
    current = journal.get(db, entry.request_id)
    if current is None or current.state is not to:
        raise InvalidState(f"the apply of request {entry.request_id} moved on by itself; call check_diff again")
    return False


def _stick(db: Database, session: SessionActor, entry: Entry, note: str) -> ApprovalRequest:
    if _move(db, entry, JournalState.STUCK, note):
        session.record(db, "intercom", "apply_stuck", note, request_id=entry.request_id)
    return _request(db, entry)


def _committed(db: Database, entry: Entry) -> ApprovalRequest:
    """Return the request of a committed apply. Raises InvalidState for one in another state."""
    current = journal.get(db, entry.request_id)
    if current is None or current.state is not JournalState.COMMITTED:
        state = "gone" if current is None else current.state.value
        raise InvalidState(
            f"the apply of request {entry.request_id} is {state} and not committed, so nothing was written;"
            " call check_diff again"
        )
    return _request(db, entry)


def _request(db: Database, entry: Entry) -> ApprovalRequest:
    request = approvals.get(db, entry.request_id)
    assert request is not None, "a journal entry has its request"
    return request


def _replaced(db: Database, session: SessionActor, request: ApprovalRequest) -> list[ApprovalRequest]:
    """Return the request that this one replaced, the one that that replaced, and so on. A request of another session is
    left out: this one was moved from there."""
    found: list[ApprovalRequest] = []
    replaced = None if request.replaces is None else approvals.get(db, request.replaces)
    while replaced is not None and replaced.session_id == session.id:
        found.append(replaced)
        replaced = None if replaced.replaces is None else approvals.get(db, replaced.replaces)
    return found


def _finish(
    db: Database,
    session: SessionActor,
    entry: Entry,
    answer: ApplyAnswer,
    call: str | None,
    line: Notice,
    content: Content | None,
) -> tuple[ApprovalRequest, tuple[ApprovalRequest, ...], bool]:
    """Record that the apply is done, and queue the line about it for the chat. Returns the request, those settled with
    it (the requests it replaced, and the open ones that would replace it), and whether it was not recorded before."""
    now = session.now()
    is_new = approvals.consume(db, entry.request_id, now)
    if is_new:
        approvals.mark_delivered(db, entry.request_id, now)
        if not journal.advance(db, entry.request_id, JournalState.COMMITTED, JournalState.DONE):
            # Not a refusal, which would say that nothing was written.
            raise RuntimeError(f"the apply of request {entry.request_id} was carried through and is not committed")
        for name in {entry.call, call} - {None}:
            session.record_answer(db, str(name), "check_diff", answer)
        paths = [one.path for one in answer.files_written]
        session.record(db, "intercom", "applied", ", ".join(paths), request_id=entry.request_id, files=paths)
        if content is not None:
            assert session.deps.chat is not None, "it was drawn for the chat"
            session.deps.chat.put(db, session.id, line, content)
    # If it was consumed before, the writer crashed between its commit and its answer.
    done = _request(db, entry)
    others = _replaced(db, session, done)
    for each in others:
        approvals.consume(db, each.id, now)
        approvals.mark_delivered(db, each.id, now)
    closed = [id for each in (done, *others) for id in approvals.expire_replacing(db, each.id, now)]
    settled = (approvals.get(db, id) for id in (*(each.id for each in others), *closed))
    return done, tuple(each for each in settled if each is not None), is_new


def _readable(failed: Exception) -> IntercomError:
    if isinstance(failed, ApplyStuck):
        # Before the commit nothing is stuck: it is a conflict with what somebody else did meanwhile.
        return PatchConflict(f"{failed}; nothing was changed, ask for clearance again", paths=failed.details["paths"])
    if isinstance(failed, IntercomError):
        return failed
    return IntercomError(f"the files could not be staged: {failed}; nothing was changed", code="diff")


def after_decision(asked: CheckDiff, decided: Answered[ClearanceAnswer]) -> CheckDiff | Answered[ApplyAnswer]:
    """Return what follows a person's decision about writing over a changed file."""
    answer = decided.answer
    if answer.status == "approved":
        return CheckDiff(answer.request_id, call=asked.call)
    refused = ApplyAnswer((), answer.status, answer.request_id, answer.reason, _NOT_OVERWRITTEN)
    return Answered(refused, decided.late_verdicts, decided.instructions)


TOOL = Tool(
    name="check_diff",
    legacy_name="accept_diff",
    title="Apply an approved change",
    description=DESCRIPTION,
    takes=CheckDiff,
    result=ApplyAnswer,
    hints=Hints(destructive=True, idempotent=True),
    handle=handle,
    pending=lambda id: ApplyAnswer((), "pending", id, message=_NOT_OVERWRITTEN_YET),
    after_decision=after_decision,
)
