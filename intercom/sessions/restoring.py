"""Restoring: first a question that shows what has changed, then, once a person agrees, the restore itself.

The order makes it safe. The decision is recorded before the workspace is read again. If it then differs from what the
person saw, the person is asked again. The current state is stored as a checkpoint of its own, so the restore can be
undone. The new file contents are staged, and the restore is committed to them. From then on it is carried through any
crash. One transaction ends the old session and makes the new one. Then the files are moved into place, and the new
session waits for its agent.
"""

from __future__ import annotations

import json
import uuid
from datetime import timedelta
from functools import partial
from pathlib import Path

import trio
from attrs import evolve

from intercom.model import crash_points
from intercom.model.card import Notice
from intercom.model.checkpoint import Checkpoint
from intercom.model.errors import ApplyStuck, DatabaseError, FileError, IntercomError, InvalidState, NotFound
from intercom.model.restore import Files, Restore, RestoreState
from intercom.model.session import SessionStatus
from intercom.model.verdict import Decision
from intercom.sessions import checkpoint_taking, comparing, restore_records
from intercom.sessions.archive import Archive
from intercom.sessions.checkpoint_messages import AskRestore, TakeCheckpoint
from intercom.sessions.comparing import Compared
from intercom.sessions.restore_cards import decided_about, of_restore
from intercom.sessions.signatures import Signatures
from intercom.sessions.successors import Successors
from intercom.store import audit, checkpoints, restores, sessions
from intercom.store.messages import Database
from intercom.workspace import putting_back
from intercom.workspace.put_back_plan import PutBack


async def ask(archive: Archive, asked: AskRestore) -> Restore:
    """Compare, and record the question, once for this id. Raises NotFound for an unknown checkpoint, FileError if the
    workspace is gone, InvalidState as `_refuse_for_nothing`."""
    earlier = await archive.read(partial(restores.get, id=asked.id))
    if earlier is not None:
        return earlier
    checkpoint = await _checkpoint(archive, asked.checkpoint_id)
    async with archive.work:
        compared = await trio.to_thread.run_sync(
            partial(comparing.compare, archive, checkpoint, asked.files, keep=False)
        )
    ended = await archive.read(partial(restores.newest_of_line, session_id=checkpoint.session_id))
    await _refuse_for_nothing(archive, checkpoint, ended, asked.files, compared)
    now = archive.context.now()
    restore = Restore(
        id=asked.id,
        checkpoint_id=checkpoint.id,
        session_id=ended,
        successor_id=archive.context.new_id(),
        safety_id=archive.context.new_id(),
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
        expires_at=now + timedelta(seconds=archive.context.config.timeouts.approval_seconds),
    )
    kept, closed = await archive.transact(partial(restore_records.put, restore=restore, at=now))
    crash_points.reach("restore.asked")
    for old in closed:
        archive.context.operators.tell(of_restore(old))
    archive.context.operators.tell(of_restore(kept))
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
        restore = await archive.read(partial(restores.get, id=id))
        assert restore is not None, "restores outlive those who carry them out"
        refused = await _refused(archive, restore)
        if refused is not None:
            return refused
        match restore.state:
            case RestoreState.ACCEPTED:
                async with archive.work:
                    anew = await _prepare(archive, restore)
                if anew is not None:
                    return anew
            case RestoreState.COMMITTED:
                await successors.hand_over(restore)
            case RestoreState.HANDED_OVER:
                await _put_files_back(archive, successors, restore)
            case RestoreState.GIVEN_UP:
                await _give_up(archive, successors, restore)
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


async def _refused(archive: Archive, restore: Restore) -> Restore | None:
    """Return the restore after its recorded decision was refused; None if the decision counts."""
    if restore.state not in _LATER:
        return None
    fault = await archive.read(partial(_fault, restore=restore, signatures=archive.context.signatures))
    if fault is None:
        return None
    text = f"refused to restore {restore.label or restore.checkpoint_id}: {fault}; no file was changed"
    archive.context.operators.tell(Notice(text, "error", archive.context.now()))
    if restore.state is RestoreState.HANDED_OVER:
        return await _advance(archive, restore, RestoreState.STUCK, text)
    await _discard(Path(restore.workspace_root), restore.id)
    return await _advance(archive, restore, RestoreState.FAILED, text)


def _fault(db: Database, restore: Restore, signatures: Signatures) -> str | None:
    if not signatures.required:
        return None
    fault = signatures.fault_of_card(restore.decided, decided_about(restore), Decision.PROCEED)
    if fault is None:
        fault = signatures.fault_of_restore(db, restore, _LATER[restore.state])
    if fault is not None or restore.state is RestoreState.ACCEPTED:
        return fault
    steps = restore_records.steps_hash(restores.steps(db, restore.id))
    is_committed = steps == audit.restore_steps(db, restore.session_id, restore.id)
    return None if is_committed else "what it would write is not what it was committed to"


async def _prepare(archive: Archive, restore: Restore) -> Restore | None:
    """Take a restore from accepted to committed, failed or outdated. Returns the new question if it is outdated."""
    root = Path(restore.workspace_root)
    try:
        checkpoint = await _checkpoint(archive, restore.checkpoint_id)
        compared = await trio.to_thread.run_sync(
            partial(comparing.compare, archive, checkpoint, restore.files, keep=True)
        )
        newest = await archive.read(partial(restores.newest_of_line, session_id=restore.session_id))
        if newest != restore.session_id:
            return await _ask_anew(archive, restore, compared, newest, "the session was restored")
        if compared.digest != restore.digest:
            return await _ask_anew(archive, restore, compared, newest, _changed(compared))
        if compared.summary != restore.divergence:
            # The summary is not signed, but it is what people were shown.
            return await _ask_anew(archive, restore, compared, newest, "what the card said has changed")
        await _refuse_for_nothing(archive, checkpoint, newest, restore.files, compared)
        await _make_safe(archive, restore, compared)
        async with archive.context.locks.hold(restore.workspace_root):
            await trio.to_thread.run_sync(_stage, archive, root, restore.id, compared.steps)
    except (FileError, ApplyStuck, InvalidState, NotFound, DatabaseError) as failed:
        await _discard(root, restore.id)
        await _advance(archive, restore, RestoreState.FAILED, f"failed, and nothing was changed: {failed}")
        return None
    steps = await trio.to_thread.run_sync(restores.steps_text, [step.to_json() for step in compared.steps])
    committed = await archive.transact(
        partial(restore_records.commit, restore=restore, steps=steps, at=archive.context.now())
    )
    archive.context.operators.tell(of_restore(committed))
    crash_points.reach("restore.committed")
    return None


def _changed(compared: Compared) -> str:
    return "files have changed, or some can not be kept any more," if compared.lost else "files have changed"


async def _ask_anew(archive: Archive, restore: Restore, compared: Compared, session_id: str, why: str) -> Restore:
    # An earlier server run may have crashed between staging and committing.
    await _discard(Path(restore.workspace_root), restore.id)
    now = archive.context.now()
    anew = evolve(
        restore,
        session_id=session_id,
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"again/{restore.id}")),
        successor_id=archive.context.new_id(),
        safety_id=archive.context.new_id(),
        state=RestoreState.ASKED,
        created_at=now,
        updated_at=now,
        divergence=compared.summary,
        digest=compared.digest,
        decided=None,
        note=f"{why} since you were asked before",
        expires_at=now + timedelta(seconds=archive.context.config.timeouts.approval_seconds),
    )
    old = await archive.transact(partial(restore_records.outdate, restore=restore, anew=anew, why=why, at=now))
    archive.context.operators.tell(of_restore(old))
    archive.context.operators.tell(of_restore(anew))
    return anew


async def _make_safe(archive: Archive, restore: Restore, compared: Compared) -> None:
    """Take a checkpoint of the current state, so that the restore can be undone."""
    columns = await trio.to_thread.run_sync(checkpoints.file_columns, compared.now)
    asked = TakeCheckpoint(
        restore.safety_id,
        restore.session_id,
        f"before restoring {restore.label or restore.checkpoint_id[:8]}",
        restore.asked_by,
        restore.asked_via,
    )
    await checkpoint_taking.record(archive, asked, compared.now, columns)


def _stage(archive: Archive, root: Path, id: str, steps: tuple[PutBack, ...]) -> None:
    with archive.contents.open() as held:
        putting_back.stage(root, id, steps, held.read)
        putting_back.verify(root, id, steps)


async def _put_files_back(archive: Archive, successors: Successors, restore: Restore) -> None:
    """Take a restore from handed over to done, or stuck."""
    await successors.until_quiet(restore)
    text = await archive.read(partial(restores.steps, id=restore.id))
    root = Path(restore.workspace_root)
    try:
        async with archive.context.locks.hold(restore.workspace_root):
            count = await trio.to_thread.run_sync(_place, root, restore.id, text)
    except (ApplyStuck, FileError) as stuck:
        stopped = await _advance(archive, restore, RestoreState.STUCK, str(stuck))
        archive.context.operators.tell(
            Notice(f"a restore stopped half-way: {stuck}", "error", archive.context.now(), stopped.successor_id)
        )
        return
    await successors.welcome(restore)
    where = f"session {restore.successor_id}"
    told = f"restored as {where}; {count} file(s) put back" if count else f"restored as {where}"
    await _advance(archive, restore, RestoreState.DONE, told)
    crash_points.reach("restore.finished")


def _place(root: Path, id: str, text: str) -> int:
    steps = [PutBack.from_json(step) for step in json.loads(text)]
    if steps:
        putting_back.roll_forward(root, id, steps)
    else:
        putting_back.discard(root, id)
    return len(steps)


async def _give_up(archive: Archive, successors: Successors, restore: Restore) -> None:
    """Finish a stuck restore that a person gave up: the files stay as they are, and the new session begins. Its steps
    stay recorded until then, and this is called again after a crash."""
    await _discard(Path(restore.workspace_root), restore.id)
    await successors.welcome(restore)
    await archive.transact(partial(restores.forget_steps, id=restore.id))


async def stop(archive: Archive, id: str, why: str) -> Restore:
    """Stop a restore that fails again and again. It fails if nothing was changed yet; if files are being restored, it
    waits for a person."""
    restore = await archive.read(partial(restores.get, id=id))
    assert restore is not None, "restores outlive those who carry them out"
    match restore.state:
        case RestoreState.ACCEPTED | RestoreState.COMMITTED:
            await _discard(Path(restore.workspace_root), id)
            return await _advance(archive, restore, RestoreState.FAILED, f"failed, and nothing was changed: {why}")
        case RestoreState.HANDED_OVER:
            return await _advance(archive, restore, RestoreState.STUCK, why)
        case _:
            return restore


async def _discard(root: Path, id: str) -> None:
    try:
        await trio.to_thread.run_sync(putting_back.discard, root, id)
    except IntercomError:
        # It stays under a name of ours, which nothing takes for a file of the workspace.
        return


async def _advance(
    archive: Archive, restore: Restore, to: RestoreState, note: str | None = None, *, steps: str | None = None
) -> Restore:
    moved = await archive.transact(
        partial(restore_records.move, restore=restore, to=to, note=note, steps=steps, at=archive.context.now())
    )
    if to in _ENDS:
        archive.context.signatures.note_use(restore.id, archive.context.now())
    archive.context.operators.tell(of_restore(moved))
    return moved


async def _checkpoint(archive: Archive, id: str) -> Checkpoint:
    found = await archive.read(partial(checkpoints.get, id=id))
    if found is None:
        raise NotFound(f"no checkpoint has the id {id!r}; see checkpoints")
    return found
