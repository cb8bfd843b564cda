"""Restoring: the question first, with what has changed; then, once a person says so, the way back.

The order is the promise. A verdict is on record before anything is looked at again. What is found then must be what the
person saw, else they are asked anew. How things are now is kept as a checkpoint of its own, so that the way back has a
way back; then what the files shall hold is staged, and the restore committed to it. From there on it is carried
through, whatever crashes: the old session ends and the new one is made in one transaction, the files are put in their
places, and the new session waits for its agent.
"""

from __future__ import annotations

import json
import uuid
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import trio
from attrs import evolve

from intercom.model import crash_points
from intercom.model.card import Notice
from intercom.model.checkpoint import Checkpoint
from intercom.model.errors import ApplyStuck, DatabaseError, FileError, IntercomError, NotFound
from intercom.model.restore import Restore, RestoreState
from intercom.sessions import checkpoint_taking, comparing
from intercom.sessions.archive import Archive
from intercom.sessions.checkpoint_messages import AskRestore, TakeCheckpoint
from intercom.sessions.comparing import Compared
from intercom.sessions.restore_cards import of_restore
from intercom.sessions.successors import Successors
from intercom.store import audit, checkpoints, restores
from intercom.store.messages import Database
from intercom.workspace import apply, putting_back
from intercom.workspace.put_back_plan import PutBack


async def ask(archive: Archive, asked: AskRestore) -> Restore:
    """Compare, and put the question on record, once for this id. Raises NotFound for an unknown checkpoint, FileError
    where the workspace is gone."""
    earlier = await archive.read(partial(restores.get, id=asked.id))
    if earlier is not None:
        return earlier
    checkpoint = await _checkpoint(archive, asked.checkpoint_id)
    async with archive.work:
        compared = await trio.to_thread.run_sync(
            partial(comparing.compare, archive, checkpoint, asked.files, keep=False)
        )
    ended = await archive.read(partial(restores.newest_of_line, session_id=checkpoint.session_id))
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
    kept, closed = await archive.transact(partial(_put, restore=restore, at=now))
    crash_points.reach("restore.asked")
    for old in closed:
        archive.context.operators.tell(of_restore(old))
    archive.context.operators.tell(of_restore(kept))
    return kept


async def carry_out(archive: Archive, successors: Successors, id: str) -> Restore:
    """Carry a restore that was accepted as far as it goes: to its end, to a person's word, or to the question asked
    anew, which is what is returned then. To be called again after a crash, or once a person let it go on."""
    while True:
        restore = await archive.read(partial(restores.get, id=id))
        assert restore is not None, "restores outlive those who carry them out"
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
            case _:
                return restore


async def _prepare(archive: Archive, restore: Restore) -> Restore | None:
    """From accepted to committed, failed, or outdated; the restore that is asked in its place, if it is outdated."""
    root = Path(restore.workspace_root)
    try:
        checkpoint = await _checkpoint(archive, restore.checkpoint_id)
        compared = await trio.to_thread.run_sync(
            partial(comparing.compare, archive, checkpoint, restore.files, keep=True)
        )
        if compared.digest != restore.digest:
            return await _ask_anew(archive, restore, compared)
        await _make_safe(archive, restore, compared)
        async with archive.context.lock(restore.workspace_root):
            await trio.to_thread.run_sync(_stage, archive, root, restore.id, compared.steps)
    except (FileError, ApplyStuck, NotFound, DatabaseError) as failed:
        await _discard(root, restore.id)
        await _advance(archive, restore, RestoreState.FAILED, f"failed, and nothing was changed: {failed}")
        return None
    steps = await trio.to_thread.run_sync(restores.steps_text, [step.to_json() for step in compared.steps])
    await _advance(archive, restore, RestoreState.COMMITTED, steps=steps)
    crash_points.reach("restore.committed")
    return None


async def _ask_anew(archive: Archive, restore: Restore, compared: Compared) -> Restore:
    now = archive.context.now()
    anew = evolve(
        restore,
        id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"again/{restore.id}")),
        successor_id=archive.context.new_id(),
        safety_id=archive.context.new_id(),
        state=RestoreState.ASKED,
        created_at=now,
        updated_at=now,
        divergence=compared.summary,
        digest=compared.digest,
        decided=None,
        note="files have changed since you were asked before",
        expires_at=now + timedelta(seconds=archive.context.config.timeouts.approval_seconds),
    )
    old = await archive.transact(partial(_outdate, restore=restore, anew=anew, at=now))
    archive.context.operators.tell(of_restore(old))
    archive.context.operators.tell(of_restore(anew))
    return anew


async def _make_safe(archive: Archive, restore: Restore, compared: Compared) -> None:
    """Keep how things are, so that what follows can be undone."""
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
    with apply.locked(root), archive.contents.open() as held:
        putting_back.stage(root, id, steps, held.read)
        putting_back.verify(root, id, steps)


async def _put_files_back(archive: Archive, successors: Successors, restore: Restore) -> None:
    """From handed over to done, or stuck."""
    await successors.until_quiet(restore)
    text = await archive.read(partial(restores.steps, id=restore.id))
    root = Path(restore.workspace_root)
    try:
        async with archive.context.lock(restore.workspace_root):
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
        with apply.locked(root):
            putting_back.roll_forward(root, id, steps)
    else:
        putting_back.discard(root, id)
    return len(steps)


async def give_up(archive: Archive, restore: Restore) -> None:
    """Throw away what is staged of a restore that a person gave up."""
    await _discard(Path(restore.workspace_root), restore.id)


async def _discard(root: Path, id: str) -> None:
    try:
        await trio.to_thread.run_sync(putting_back.discard, root, id)
    except IntercomError:
        # It lies there under a name of ours, which nothing takes for a file of the workspace.
        return


async def _advance(
    archive: Archive, restore: Restore, to: RestoreState, note: str | None = None, *, steps: str | None = None
) -> Restore:
    moved = await archive.transact(
        partial(_move, restore=restore, to=to, note=note, steps=steps, at=archive.context.now())
    )
    archive.context.operators.tell(of_restore(moved))
    return moved


async def _checkpoint(archive: Archive, id: str) -> Checkpoint:
    found = await archive.read(partial(checkpoints.get, id=id))
    if found is None:
        raise NotFound(f"no checkpoint has the id {id!r}; see checkpoints")
    return found


def _put(db: Database, restore: Restore, at: datetime) -> tuple[Restore, list[Restore]]:
    """Put a question on record, and close those about the same session that it replaces."""
    closed = []
    if restores.insert(db, restore):
        for other in restores.waiting(db):
            if other.id == restore.id or other.session_id != restore.session_id:
                continue
            note = f"asked again as {restore.id}"
            if other.state is RestoreState.ASKED and restores.advance(
                db, other.id, RestoreState.ASKED, RestoreState.OUTDATED, at, note=note
            ):
                closed.append(evolve(other, state=RestoreState.OUTDATED, note=note))
        data = {"restore_id": restore.id, "checkpoint_id": restore.checkpoint_id, "channel": restore.asked_via}
        audit.record(db, at, "restore_asked", restore.session_id, restore.asked_by, restore.label or "(no label)", data)
    kept = restores.get(db, restore.id)
    assert kept is not None, "just inserted"
    return kept, closed


def _outdate(db: Database, restore: Restore, anew: Restore, at: datetime) -> Restore:
    note = f"files have changed since; asked again as {anew.id}"
    restores.advance(db, restore.id, RestoreState.ACCEPTED, RestoreState.OUTDATED, at, note=note)
    restores.insert(db, anew)
    old = restores.get(db, restore.id)
    assert old is not None
    return old


def _move(
    db: Database, restore: Restore, to: RestoreState, note: str | None, steps: str | None, at: datetime
) -> Restore:
    if restores.advance(db, restore.id, restore.state, to, at, note=note, steps=steps):
        who = restore.decided.by if restore.decided is not None else "intercom"
        data = {"restore_id": restore.id, "state": to.value}
        audit.record(db, at, "restore", restore.session_id, who, note or to.value, data)
    moved = restores.get(db, restore.id)
    assert moved is not None
    return moved
