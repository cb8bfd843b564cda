"""Applying: the bytes that were approved become the bytes on disk, all of them, once, whatever crashes.

The order is the promise: files are staged beside their targets, the journal commits to them, they are renamed into
place, and one transaction says that it is done, spends the approval and keeps the answer under the call's name. A
crash before the commitment leaves nothing; after it, recovery carries the rest through.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio
from attrs import evolve

from intercom.model import crash_points
from intercom.model.approval import ApprovalRequest, ApprovalStatus
from intercom.model.card import Card, CardState
from intercom.model.errors import (
    AlreadyConsumed,
    AlreadyDecided,
    ApplyStuck,
    IntercomError,
    InvalidArguments,
    InvalidState,
    NotFound,
)
from intercom.model.verdict import Decision, Verdict
from intercom.sessions import cards, given
from intercom.sessions.actor import SessionActor
from intercom.sessions.answers import ApplyAnswer, FileWritten
from intercom.sessions.messages import Answered, Apply, Decide
from intercom.store import approvals, journal, requests
from intercom.store.journal import Entry, JournalState
from intercom.store.messages import Database
from intercom.workspace import apply as files
from intercom.workspace import patching, proposal
from intercom.workspace.step import Step


async def apply(session: SessionActor, asked: Apply) -> Answered[ApplyAnswer]:
    """Write an approved change. Raises the errors of check_diff; then nothing was written."""
    session.require_open()
    session.touch("check_diff")
    async with session.context.lock(session.row.workspace_root):
        request, entry = await session.transact(partial(_look, session=session, id=asked.request_id))
        _check_state(request)
        if entry is not None and entry.state is JournalState.STUCK:
            entry = await _retry_stuck(session, entry)
        if entry is None or entry.state is JournalState.ABANDONED:
            entry = await _commit(session, request, asked)
        answer = await _carry_through(session, entry, asked.call)
    return session.answered(asked.call, answer, own=request.id)


async def give_up(session: SessionActor, asked: Decide) -> Card:
    """A person's word on an apply that stopped half-way: leave the files as they are, and throw the rest away. The same
    verdict again is answered as the first time."""
    if asked.verdict.decision is not Decision.DISMISS:
        raise InvalidArguments("answer an apply that stopped half-way with dismiss, or put its files right")
    request, entry = await session.transact(partial(_look, session=session, id=cards.request_of(asked.request_id)))
    if entry is not None and await session.transact(partial(given.was, verdict=asked.verdict)):
        return evolve(cards.of_stuck(entry, request), state=CardState.CLOSED)
    if entry is None or entry.state is not JournalState.STUCK:
        raise AlreadyDecided(f"the apply of request {request.id} is not stuck any more; nothing was changed")
    async with session.context.lock(entry.workspace_root):
        await _discard(entry)
        await session.transact(partial(_given_up, session=session, entry=entry, verdict=asked.verdict))
    card = evolve(cards.of_stuck(entry, request), state=CardState.CLOSED)
    session.context.operators.tell(card)
    return card


async def recover(session: SessionActor) -> None:
    """After a crash: throw away what was only staged, carry through what was committed."""
    entries = await session.transact(lambda db: [e for e in journal.open(db) if e.session_id == session.id])
    for entry in entries:
        async with session.context.lock(entry.workspace_root):
            if entry.state is JournalState.STAGING:
                await _abandon(session, entry, "the server stopped before the change was committed")
            elif entry.state is JournalState.COMMITTED:
                try:
                    await _carry_through(session, entry)
                except ApplyStuck:
                    # Said on its card; a person decides. The session lives on.
                    continue


def _check_state(request: ApprovalRequest) -> None:
    if request.tool is not None:
        raise InvalidState(
            f"request {request.id} is leave for your own tool {request.tool}: use that, there is nothing to apply",
            code="not_approved",
        )
    match request.status:
        case ApprovalStatus.APPROVED:
            return
        case ApprovalStatus.CONSUMED:
            raise AlreadyConsumed(f"request {request.id} was applied at {request.consumed_at:%Y-%m-%d %H:%M:%S} UTC")
        case ApprovalStatus.PENDING:
            hint = "wait for the verdict with check_clearance and this request_id"
        case _:
            hint = "propose the change again with check_clearance"
    raise InvalidState(f"request {request.id} is {request.status.value}, not approved; {hint}", code="not_approved")


async def _commit(session: SessionActor, request: ApprovalRequest, asked: Apply) -> Entry:
    """Stage the files and commit the journal to them."""
    root = Path(session.row.workspace_root)
    plan = await trio.to_thread.run_sync(partial(_plan, root, request, asked.force))
    steps = files.prepare(root, plan, request.id)
    entry = Entry(
        request_id=request.id,
        session_id=session.id,
        workspace_root=str(root),
        state=JournalState.STAGING,
        steps=tuple(step.to_json() for step in steps),
        at=session.now(),
        call=asked.call,
    )
    if not await session.transact(partial(_begin, entry=entry)):
        raise InvalidState(f"request {request.id} is being applied already; call check_diff again shortly")
    crash_points.reach("journal.begun")
    try:
        await trio.to_thread.run_sync(files.stage, root, plan, steps)
    except (IntercomError, OSError) as failed:
        await _abandon(session, entry, str(failed))
        raise _readable(failed) from failed
    await session.transact(partial(_advance, entry=entry, to=JournalState.COMMITTED))
    crash_points.reach("journal.committed")
    if plan.diverged:
        which = ", ".join(plan.diverged)
        session.notify(f"{which} had changed since the proposal; written all the same (force)", "warning")
    return entry


async def _carry_through(session: SessionActor, entry: Entry, call: str | None = None) -> ApplyAnswer:
    """From committed to done; idempotent. `call` names the one that is answered with it, besides the one that began it.
    Raises ApplyStuck when files are neither as before nor as after."""
    steps = tuple(Step.from_json(step) for step in entry.steps)
    root = Path(entry.workspace_root)
    try:
        written = await trio.to_thread.run_sync(files.roll_forward, root, steps)
    except (IntercomError, OSError) as failed:
        await session.transact(partial(_stick, session=session, entry=entry, note=str(failed)))
        await _show_stuck(session, entry, str(failed))
        raise ApplyStuck(
            f"the change stopped half-way: {failed}; an operator has been told", request_id=entry.request_id
        ) from failed
    answer = ApplyAnswer(tuple(FileWritten(one.path, one.bytes) for one in written))
    request = await session.transact(partial(_finish, session=session, entry=entry, answer=answer, call=call))
    crash_points.reach("journal.finished")
    session.riders.verdicts.pop(request.id, None)
    session.show(request)
    return answer


async def _retry_stuck(session: SessionActor, entry: Entry) -> Entry:
    """The agent asks again after a person put the files right: try once more from where it stopped."""
    await session.transact(partial(_advance, entry=entry, to=JournalState.COMMITTED))
    request = await session.transact(partial(approvals.get, id=entry.request_id))
    assert request is not None, "a journal entry has its request"
    session.context.operators.tell(evolve(cards.of_stuck(entry, request), state=CardState.CLOSED))
    return entry


async def _abandon(session: SessionActor, entry: Entry, why: str) -> None:
    await _discard(entry)
    await session.transact(partial(_advance, entry=entry, to=JournalState.ABANDONED, note=why))


async def _discard(entry: Entry) -> None:
    """Throw away what is staged and not in its place."""
    steps = tuple(Step.from_json(step) for step in entry.steps)
    await trio.to_thread.run_sync(files.discard, Path(entry.workspace_root), steps)


async def _show_stuck(session: SessionActor, entry: Entry, why: str) -> None:
    request = await session.transact(partial(approvals.get, id=entry.request_id))
    assert request is not None, "a journal entry has its request"
    session.context.operators.tell(cards.of_stuck(evolve(entry, note=why), request))


def _plan(root: Path, request: ApprovalRequest, force: bool) -> patching.Plan:
    parsed = proposal.parse(request.diff_content, request.file_path)
    expected = {change.old_path or change.path: change.before_hash for change in request.files}
    return patching.plan(root, parsed, force=force, expected=expected)


def _look(db: Database, session: SessionActor, id: str) -> tuple[ApprovalRequest, Entry | None]:
    request = requests.find(db, id)
    if not isinstance(request, ApprovalRequest) or request.session_id != session.id:
        raise NotFound(f"no clearance request of this session has the id {id!r}", code="request_not_found")
    return request, journal.get(db, id)


def _given_up(db: Database, session: SessionActor, entry: Entry, verdict: Verdict) -> None:
    _advance(db, entry, JournalState.ABANDONED, f"given up by {verdict.by}")
    if not given.was(db, verdict):
        session.record(db, verdict.by, "apply_given_up", entry.note or "", request_id=entry.request_id)
        given.keep(db, session, verdict)


def _begin(db: Database, entry: Entry) -> bool:
    """Enter the apply; also True when it was entered before, and the writer fell before it could say so."""
    if journal.begin(db, entry):
        return True
    found = journal.get(db, entry.request_id)
    return found is not None and (found.state, found.call, found.at) == (entry.state, entry.call, entry.at)


def _advance(db: Database, entry: Entry, to: JournalState, note: str | None = None) -> None:
    current = journal.get(db, entry.request_id)
    if current is not None and current.state is to:
        # Moved before, when the writer fell between its commit and its answer.
        return
    if current is None or not journal.advance(db, entry.request_id, current.state, to, note):
        raise InvalidState(f"the apply of request {entry.request_id} moved on by itself; call check_diff again")


def _stick(db: Database, session: SessionActor, entry: Entry, note: str) -> None:
    journal.advance(db, entry.request_id, JournalState.COMMITTED, JournalState.STUCK, note)
    session.record(db, "intercom", "apply_stuck", note, request_id=entry.request_id)


def _finish(
    db: Database, session: SessionActor, entry: Entry, answer: ApplyAnswer, call: str | None
) -> ApprovalRequest:
    now = session.now()
    if not approvals.consume(db, entry.request_id, now):
        # Said before, when the writer fell between its commit and its answer.
        done = approvals.get(db, entry.request_id)
        assert done is not None
        return done
    approvals.mark_delivered(db, entry.request_id, now)
    journal.advance(db, entry.request_id, JournalState.COMMITTED, JournalState.DONE)
    for name in {entry.call, call} - {None}:
        session.answered_and_recorded(str(name), "check_diff", answer)(db)
    paths = [one.path for one in answer.files_written]
    session.record(db, "intercom", "applied", ", ".join(paths), request_id=entry.request_id, files=paths)
    request = approvals.get(db, entry.request_id)
    assert request is not None
    return request


def _readable(failed: Exception) -> IntercomError:
    if isinstance(failed, IntercomError):
        return failed
    return IntercomError(f"the files could not be staged: {failed}; nothing was changed", code="diff")
