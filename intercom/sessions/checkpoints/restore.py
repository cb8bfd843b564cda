"""Restores a checkpoint: the question with what has changed first, then the way back.

The order makes it safe. The decision is recorded before the workspace is read again. If it then differs from what the
person saw, the person is asked again. The current state is stored as a checkpoint of its own, so the restore can be
undone. The new file contents are staged, and the restore is committed to them. From then on it is carried through any
crash. One transaction ends the old session and makes the new one. Then the files are moved into place, and the new
session waits for its agent.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import trio
from attrs import evolve

from intercom.model.card import Card, CardKind, CardState, Notice, end_of, subject
from intercom.model.checkpoint import Checkpoint, DivergenceSummary, Files, Restore, RestoreState
from intercom.model.decision import Decided, Decision, Verdict, signature_data
from intercom.model.errors import (
    AlreadyDecided,
    ApplyStuck,
    DatabaseError,
    FileError,
    IntercomError,
    InvalidState,
    NotFound,
    PathViolation,
)
from intercom.model.session import SessionStatus
from intercom.model.visible_text import count, one_line
from intercom.sessions.checkpoints import archive as checkpoints_archive
from intercom.sessions.checkpoints.archive import Archive, Compared
from intercom.sessions.checkpoints.checkpoint_messages import AskRestore, TakeCheckpoint
from intercom.sessions.checkpoints.restored_session import Successors
from intercom.sessions.signatures import Signatures
from intercom.store import audit, checkpoints, sessions
from intercom.store.checkpoints import restores
from intercom.store.requests import DECIDED
from intercom.store.rows import not_none
from intercom.store.writer_messages import Database
from intercom.workspace import transaction
from intercom.workspace.files import ABSENT
from intercom.workspace.transaction import Step

_STATES = {
    RestoreState.ASKED: CardState.PENDING,
    RestoreState.STUCK: CardState.PENDING,
    RestoreState.ACCEPTED: CardState.APPROVED,
    RestoreState.COMMITTED: CardState.APPROVED,
    RestoreState.HANDED_OVER: CardState.APPROVED,
    RestoreState.DONE: CardState.APPLIED,
    RestoreState.CANCELLED: CardState.REJECTED,
    RestoreState.EXPIRED: CardState.EXPIRED,
    RestoreState.OUTDATED: CardState.CLOSED,
    RestoreState.FAILED: CardState.CLOSED,
    RestoreState.GIVEN_UP: CardState.CLOSED,
}
_FILES = {
    Files.LEAVE: "The files stay as they are.",
    Files.BACK: "Files that were modified or deleted are put back; files that were added stay.",
    Files.EXACT: "Files that were modified or deleted are put back; files that were added are removed.",
}
#: How many diverged files a card names.
SHOWN = 30


def of_restore(restore: Restore) -> Card:
    """Return the card of a restore in its current state."""
    name = restore.label or restore.checkpoint_id[:8]
    stuck = restore.state is RestoreState.STUCK
    return Card(
        id=restore.id,
        kind=CardKind.RESTORE,
        session_id=restore.session_id,
        workspace_root=restore.workspace_root,
        title=f"Restore stopped: {name}" if stuck else f"Restore checkpoint {name}?",
        created_at=restore.created_at,
        state=_STATES[restore.state],
        body=_body(restore),
        expires_at=restore.expires_at if restore.state is RestoreState.ASKED else None,
        decided=restore.decided,
        note=restore.note or (_STUCK if stuck else None),
        proposal_hash=_hash(restore),
    )


def decided_about(restore: Restore) -> Card:
    """Return the card that the recorded decision was about: the question, or the stuck restore."""
    asked, stuck = (of_restore(evolve(restore, state=state)) for state in (RestoreState.ASKED, RestoreState.STUCK))
    signature = None if restore.decided is None else restore.decided.signature
    if restore.state is not RestoreState.HANDED_OVER or signature is None:
        return asked
    return stuck if signature.subject == subject(stuck) else asked


def _hash(restore: Restore) -> str:
    """Return the hash of what is decided: a label may name several checkpoints."""
    record = [restore.checkpoint_id, restore.files.value, restore.digest]
    return hashlib.sha256(json.dumps(record).encode("ascii")).hexdigest()


_STUCK = "correct the files and proceed, or cancel to leave them as they are"


def _body(restore: Restore) -> str:
    lines = [divergence_line(restore.divergence)]
    # An agent may have named the files: on one line each, none looks like a line of the card.
    lines += [one_line(f"{each.kind.value}: {each.path}") for each in restore.divergence.first[:SHOWN]]
    if restore.divergence.total > SHOWN:
        lines.append(f"and {restore.divergence.total - SHOWN} more")
    lines += map(one_line, restore.divergence.remarks)
    lines.append(_FILES[restore.files])
    lines.append(f"Asked by {restore.asked_by}. The session ends, and a new one continues from the checkpoint.")
    return "\n".join(lines)


def divergence_line(found: DivergenceSummary) -> str:
    """Describe in one line how much differs."""
    if not found.total:
        return "No file has changed since."
    return f"Since then {found.modified} modified, {found.deleted} deleted, {found.added} added."


def put(db: Database, restore: Restore, at: datetime) -> tuple[Restore, list[Restore]]:
    """Record a question, and close the questions about the same session that it replaces."""
    closed = []
    if restores.insert(db, restore):
        note = f"asked again as {restore.id}"
        for other in restores.waiting(db):
            if other.id != restore.id and (other.session_id, other.state) == (restore.session_id, RestoreState.ASKED):
                restores.advance(db, other.id, RestoreState.ASKED, RestoreState.OUTDATED, updated_at=at, note=note)
                closed.append(evolve(other, state=RestoreState.OUTDATED, note=note))
        data = {"restore_id": restore.id, "checkpoint_id": restore.checkpoint_id, "channel": restore.asked_via}
        audit.record(db, at, "restore_asked", restore.session_id, restore.asked_by, restore.label or "(no label)", data)
    return restores.known(db, restore.id), closed


def commit(db: Database, restore: Restore, steps: str, at: datetime) -> Restore:
    """Commit a restore: from here on it is carried through. Raises IntercomError (`unavailable`) while another one of
    the session is. A second restore would end the session again and orphan the first successor."""
    others = [each for each in restores.under_way(db) if each.session_id == restore.session_id]
    if any(each.state is RestoreState.COMMITTED and each.id != restore.id for each in others) or (
        restores.latest_successor(db, restore.session_id) != restore.session_id
    ):
        raise IntercomError("another restore of this session is being carried out", code="unavailable")
    return move(db, restore, RestoreState.COMMITTED, None, steps, at)


def outdate(db: Database, restore: Restore, replacement: Restore, why: str, at: datetime) -> Restore:
    note = f"{why} since; asked again as {replacement.id}"
    restores.advance(db, restore.id, RestoreState.ACCEPTED, RestoreState.OUTDATED, updated_at=at, note=note)
    restores.insert(db, replacement)
    return restores.known(db, restore.id)


def move(
    db: Database, restore: Restore, to: RestoreState, note: str | None, steps: str | None, at: datetime
) -> Restore:
    if restores.advance(db, restore.id, restore.state, to, updated_at=at, **not_none(note=note, steps=steps)):
        who = restore.decided.by if restore.decided is not None else "intercom"
        data = {"restore_id": restore.id, "state": to.value}
        if steps is not None:
            data["steps"] = steps_hash(steps)
        audit.record(db, at, "restore", restore.session_id, who, note or to.value, data)
    return restores.known(db, restore.id)


def steps_hash(text: str) -> str:
    """Return the hash of the steps that a restore was committed to."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def unfinished(db: Database) -> tuple[Restore, ...]:
    return (*restores.waiting(db), *restores.under_way(db), *restores.to_clean_up(db))


def decide(db: Database, id: str, verdict: Verdict, at: datetime, signatures: Signatures) -> tuple[bool, Restore]:
    """Return whether this verdict won, now or before, and the restore as it is then."""
    restore = restores.get(db, id)
    if restore is None:
        raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
    end_of(CardKind.RESTORE, verdict.decision)
    if restore.decided is not None and restore.decided.verdict_id == verdict.id:
        return True, restore
    to = {
        (RestoreState.ASKED, Decision.PROCEED): RestoreState.ACCEPTED,
        (RestoreState.ASKED, Decision.CANCEL): RestoreState.CANCELLED,
        (RestoreState.STUCK, Decision.PROCEED): RestoreState.HANDED_OVER,
        (RestoreState.STUCK, Decision.CANCEL): RestoreState.GIVEN_UP,
    }.get((restore.state, verdict.decision))
    late = restore.state is RestoreState.ASKED and restore.expires_at is not None and restore.expires_at <= at
    if to is None or late:
        return False, restore
    signature = signatures.admit(verdict, of_restore(restore), at)
    decided = Decided.of(verdict, at, signature)
    won = restores.advance(db, id, restore.state, to, updated_at=at, **DECIDED.write(decided))
    if won:
        data = {
            "restore_id": id,
            "channel": verdict.channel,
            "origin": verdict.origin_data,
            "signature": signature_data(signature),
        }
        audit.record(db, at, "decided", restore.session_id, verdict.by, verdict.decision.value, data)
    return won, restores.known(db, id)


def expire(db: Database, id: str, at: datetime) -> Restore | None:
    """Close a question whose time is over by the wall clock, and return it as it is then."""
    restore = restores.get(db, id)
    if restore is None or restore.state is not RestoreState.ASKED:
        return restore
    if restore.expires_at is not None and restore.expires_at > at:
        return restore
    note = "nobody said whether to proceed"
    restores.advance(db, id, RestoreState.ASKED, RestoreState.EXPIRED, updated_at=at, note=note)
    return restores.get(db, id)


def too_late(restore: Restore) -> AlreadyDecided:
    decided = restore.decided
    who = "" if decided is None else f": {decided.decision} by {decided.by} ({decided.channel})"
    return AlreadyDecided(
        f"restore {restore.id} is no longer open, it is {restore.state.value.replace('_', ' ')}{who};"
        " nothing was changed",
        request_id=restore.id,
        status=restore.state.value,
    )


async def ask_restore(archive: Archive, asked: AskRestore) -> Restore:
    """Compare, and record the question, once for this id. Raises NotFound for an unknown checkpoint, FileError if the
    workspace is gone, InvalidState as `_refuse_for_nothing`."""
    earlier = await archive.read(partial(restores.get, id=asked.id))
    if earlier is not None:
        return earlier
    checkpoint = await _checkpoint(archive, asked.checkpoint_id)
    async with archive.exclusive(checkpoint.workspace_root):
        compared = await trio.to_thread.run_sync(
            partial(checkpoints_archive.compare, archive, checkpoint, asked.files, keep=False)
        )
    ended = await archive.read(partial(restores.latest_successor, session_id=checkpoint.session_id))
    await _refuse_for_nothing(archive, checkpoint, ended, asked.files, compared)
    now = archive.deps.now()
    restore = Restore(
        id=asked.id,
        checkpoint_id=checkpoint.id,
        session_id=ended,
        successor_id=archive.deps.new_id(),
        safety_id=archive.deps.new_id(),
        workspace_root=checkpoint.workspace_root,
        state=RestoreState.ASKED,
        files=asked.files,
        asked_by=asked.by,
        asked_via=asked.channel,
        created_at=now,
        updated_at=now,
        label=checkpoint.label,
        divergence=compared.summary,
        digest=compared.digest,
        expires_at=now + timedelta(seconds=archive.deps.config.timeouts.approval_seconds),
    )
    kept, closed = await archive.transact(partial(put, restore=restore, at=now))
    for old in closed:
        archive.deps.card_router.tell(of_restore(old))
    archive.deps.card_router.tell(of_restore(kept))
    return kept


async def _refuse_for_nothing(
    archive: Archive, checkpoint: Checkpoint, session_id: str, files: Files, compared: Compared
) -> None:
    """Raise InvalidState for a restore that would end a session and restore none of the files that differ."""
    found = compared.summary
    if compared.steps or (files is not Files.LEAVE and not found.total):
        return
    session = await archive.read(partial(sessions.get, id=session_id))
    if session is None or session.status is SessionStatus.TERMINATED:
        return
    name = checkpoint.label or checkpoint.id[:8]
    if files is Files.LEAVE:
        why, advice = "the files would stay as they are", "ask for the files too: back, or exact"
    else:
        why, advice = "none of these files would be put back", "exact also removes what was added"
    counts = f"{found.modified} modified, {found.deleted} deleted, {found.added} added since"
    raise InvalidState(
        f"nothing was changed: checkpoint {name} ({counts}): {why}, and session {session_id[:8]} would end; {advice}",
        checkpoint_id=checkpoint.id,
        label=checkpoint.label,
        session_id=session_id,
        workspace_root=checkpoint.workspace_root,
        files=files.value,
        modified=found.modified,
        deleted=found.deleted,
        added=found.added,
        diverged=[{"path": each.path, "kind": each.kind.value} for each in found.first],
        remarks=list(found.remarks),
    )


async def carry_out(archive: Archive, successors: Successors, id: str) -> Restore:
    """Carry an accepted restore as far as possible: to its end, to a person's decision, or to a repeated question, and
    return that. Call it again after a crash, or once a person lets it continue."""
    while True:
        restore = await archive.read(partial(restores.known, id=id))
        if await _is_refused(archive, restore):
            continue
        match restore.state:
            case RestoreState.ACCEPTED:
                replacement = await _prepare(archive, restore)
                if replacement is not None:
                    return replacement
            case RestoreState.COMMITTED:
                await successors.hand_over(restore)
            case RestoreState.HANDED_OVER:
                await _put_files_back(archive, successors, restore)
            case RestoreState.GIVEN_UP:
                # The files stay as they are. The steps stay recorded until here, so this is repeated after a crash.
                await successors.welcome(restore)
                await _clean_up(archive, restore)
                return restore
            case RestoreState.FAILED:
                await _clean_up(archive, restore)
                return restore
            case _:
                return restore


_ENDS = frozenset({RestoreState.DONE, RestoreState.FAILED, RestoreState.GIVEN_UP})
#: The states in which a restore is carried out, each with the states that it cannot have reached before.
_LATER = {
    RestoreState.ACCEPTED: _ENDS | {RestoreState.COMMITTED, RestoreState.HANDED_OVER, RestoreState.STUCK},
    RestoreState.COMMITTED: _ENDS | {RestoreState.HANDED_OVER, RestoreState.STUCK},
    RestoreState.HANDED_OVER: _ENDS,
}


async def _is_refused(archive: Archive, restore: Restore) -> bool:
    """Whether the recorded decision does not count. The restore has then failed, or is stuck."""
    if restore.state not in _LATER:
        return False
    fault = await archive.read(partial(_fault, restore=restore, signatures=archive.deps.signatures))
    if fault is None:
        return False
    text = f"refused to restore {restore.label or restore.checkpoint_id}: {fault}; no file was changed"
    archive.deps.card_router.tell(Notice(text, "error", archive.deps.now()))
    to = RestoreState.STUCK if restore.state is RestoreState.HANDED_OVER else RestoreState.FAILED
    await _advance(archive, restore, to, text)
    return True


def _fault(db: Database, restore: Restore, signatures: Signatures) -> str | None:
    if not signatures.required:
        return None
    fault = signatures.fault_of_card(restore.decided, decided_about(restore), Decision.PROCEED)
    if fault is None:
        fault = signatures.fault_of_restore(db, restore, _LATER[restore.state])
    if fault is not None or restore.state is RestoreState.ACCEPTED:
        return fault
    steps = steps_hash(restores.steps(db, restore.id))
    is_committed = steps == audit.restore_steps(db, restore.session_id, restore.id)
    return None if is_committed else "what it would write is not what it was committed to"


async def _prepare(archive: Archive, restore: Restore) -> Restore | None:
    """Take a restore from accepted to committed, failed or outdated. Returns the new question if it is outdated."""
    async with archive.exclusive(restore.workspace_root):
        try:
            # An earlier attempt may have crashed between staging and committing.
            await _discard(archive, restore)
            checkpoint = await _checkpoint(archive, restore.checkpoint_id)
            compared = await trio.to_thread.run_sync(
                partial(checkpoints_archive.compare, archive, checkpoint, restore.files, keep=True)
            )
            newest = await archive.read(partial(restores.latest_successor, session_id=restore.session_id))
            why = _why_outdated(restore, compared, newest)
            if why is not None:
                return await _ask_again(archive, restore, compared, newest, why)
            await _refuse_for_nothing(archive, checkpoint, newest, restore.files, compared)
            # A checkpoint of the current state, so that the restore can be undone.
            columns = await trio.to_thread.run_sync(checkpoints.file_columns, compared.now)
            label = f"before restoring {restore.label or restore.checkpoint_id[:8]}"
            safety = TakeCheckpoint(restore.safety_id, restore.session_id, label, restore.asked_by, restore.asked_via)
            await checkpoints_archive.record(archive, safety, compared.now, columns)
            steps, text = await trio.to_thread.run_sync(_plan, restore, compared)
            await archive.transact(partial(restores.save_steps, id=restore.id, steps=text))
            await trio.to_thread.run_sync(_stage, archive, restore, steps)
        except (FileError, PathViolation, ApplyStuck, InvalidState, NotFound, DatabaseError) as failed:
            await _advance(archive, restore, RestoreState.FAILED, f"failed, and nothing was changed: {failed}")
            return None
        committed = await archive.transact(partial(commit, restore=restore, steps=text, at=archive.deps.now()))
    archive.deps.card_router.tell(of_restore(committed))
    return None


def _why_outdated(restore: Restore, compared: Compared, newest: str) -> str | None:
    """Return why people must be asked again, as the beginning of a sentence; None if they need not."""
    if newest != restore.session_id:
        return "the session was restored"
    if compared.digest != restore.digest:
        return "files have changed, or some cannot be kept any more," if compared.lost else "files have changed"
    # The summary is not signed, but it is what people were shown.
    return "what the card said has changed" if compared.summary != restore.divergence else None


async def _ask_again(archive: Archive, restore: Restore, compared: Compared, session_id: str, why: str) -> Restore:
    now = archive.deps.now()
    replacement = evolve(
        restore,
        session_id=session_id,
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"again/{restore.id}")),
        successor_id=archive.deps.new_id(),
        safety_id=archive.deps.new_id(),
        state=RestoreState.ASKED,
        created_at=now,
        updated_at=now,
        divergence=compared.summary,
        digest=compared.digest,
        decided=None,
        note=f"{why} since you were asked before",
        expires_at=now + timedelta(seconds=archive.deps.config.timeouts.approval_seconds),
    )
    old = await archive.transact(partial(outdate, restore=restore, replacement=replacement, why=why, at=now))
    archive.deps.card_router.tell(of_restore(old))
    archive.deps.card_router.tell(of_restore(replacement))
    return replacement


def _plan(restore: Restore, compared: Compared) -> tuple[tuple[Step, ...], str]:
    """Return the steps of the restore, and their text for the store."""
    root = Path(restore.workspace_root)
    steps = transaction.prepare(root, restore.id, compared.steps, compared.now.root_id)
    return steps, transaction.to_text(steps)


def _stage(archive: Archive, restore: Restore, steps: tuple[Step, ...]) -> None:
    with archive.contents.open() as contents:
        transaction.stage(Path(restore.workspace_root), steps, contents.read)


async def _put_files_back(archive: Archive, successors: Successors, restore: Restore) -> None:
    """Take a restore from handed over to done, or stuck."""
    await successors.until_quiet(restore)
    text = await archive.read(partial(restores.steps, id=restore.id))
    try:
        async with archive.deps.locks.hold(restore.workspace_root):
            done = await trio.to_thread.run_sync(_place, restore, text)
    except (ApplyStuck, FileError) as stuck:
        stopped = await _advance(archive, restore, RestoreState.STUCK, str(stuck))
        archive.deps.card_router.tell(
            Notice(f"a restore stopped half-way: {stuck}", "error", archive.deps.now(), stopped.successor_id)
        )
        return
    await successors.welcome(restore)
    where = f"session {restore.successor_id}"
    await _advance(archive, restore, RestoreState.DONE, f"restored as {where}{_counted(done)}")


def _place(restore: Restore, text: str) -> tuple[Step, ...]:
    steps = transaction.from_text(text, restore.id)
    if steps:
        transaction.roll_forward(Path(restore.workspace_root), steps)
    return steps


def _counted(done: tuple[Step, ...]) -> str:
    """Return how many files were put back, and how many removed, as the end of a sentence."""
    removed = sum(step.after == ABSENT for step in done)
    counts = ((len(done) - removed, "put back"), (removed, "removed"))
    return "".join(f"; {count(number, 'file')} {what}" for number, what in counts if number)


async def _clean_up(archive: Archive, restore: Restore) -> None:
    """Discard what is staged for a restore that ended without its files."""
    async with archive.deps.locks.hold(restore.workspace_root):
        await _discard(archive, restore)


async def stop(archive: Archive, id: str, why: str) -> Restore:
    """Stop a restore that fails again and again. It fails if nothing was changed yet; if files are being restored, it
    waits for a person."""
    restore = await archive.read(partial(restores.known, id=id))
    match restore.state:
        case RestoreState.ACCEPTED | RestoreState.COMMITTED:
            failed = await _advance(archive, restore, RestoreState.FAILED, f"failed, and nothing was changed: {why}")
            await _clean_up(archive, failed)
            return failed
        case RestoreState.HANDED_OVER:
            return await _advance(archive, restore, RestoreState.STUCK, why)
        case _:
            return restore


async def _discard(archive: Archive, restore: Restore) -> None:
    """Discard what is staged for a restore, and then its steps. The caller holds the workspace's lock."""
    text = await archive.read(partial(restores.steps, id=restore.id))
    steps = transaction.from_text(text, restore.id)
    # What cannot be removed stays under a name of ours, which is never taken for a file of the workspace.
    with suppress(IntercomError):
        await trio.to_thread.run_sync(transaction.discard, Path(restore.workspace_root), steps)
    await archive.transact(partial(restores.forget_steps, id=restore.id))


async def _advance(
    archive: Archive, restore: Restore, to: RestoreState, note: str | None = None, *, steps: str | None = None
) -> Restore:
    moved = await archive.transact(partial(move, restore=restore, to=to, note=note, steps=steps, at=archive.deps.now()))
    if to in _ENDS:
        archive.deps.signatures.note_use(restore.id, archive.deps.now())
    archive.deps.card_router.tell(of_restore(moved))
    return moved


async def _checkpoint(archive: Archive, id: str) -> Checkpoint:
    found = await archive.read(partial(checkpoints.get, id=id))
    if found is None:
        raise NotFound(f"no checkpoint has the id {id!r}; see checkpoints")
    return found
