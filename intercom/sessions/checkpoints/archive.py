"""Takes checkpoints, and compares them with their workspace."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import field, frozen

from intercom.model import clock
from intercom.model.card import Notice
from intercom.model.checkpoint import (
    Checkpoint,
    CheckpointLine,
    CheckpointTaken,
    Divergence,
    DivergenceKind,
    DivergenceSummary,
    Files,
    LeftOut,
    Manifest,
)
from intercom.model.config import CheckpointSettings
from intercom.model.errors import NotFound
from intercom.model.request import ApprovalRequest, ContinuationPrompt
from intercom.model.session import Session
from intercom.model.visible_text import count
from intercom.sessions import request_kinds
from intercom.sessions.checkpoints.checkpoint_messages import TakeCheckpoint
from intercom.sessions.request_kinds import Asked
from intercom.sessions.session_deps import SessionDeps
from intercom.store import audit, checkpoints, requests, sessions
from intercom.store.checkpoints import Contents, FileColumns, OpenContents
from intercom.store.store_and_reader import LARGE_TRANSACTION_SECONDS, Reader
from intercom.store.writer_messages import Database
from intercom.workspace import gitignore
from intercom.workspace import manifest as workspace_snapshot
from intercom.workspace.manifest import ContentStore, LimitReached, Limits, RestorePlan, plan_restore, take_manifest
from intercom.workspace.transaction import Step

T = TypeVar("T")


@frozen
class Archive:
    """The dependencies of checkpoint work. The lock `work` serialises reading whole workspaces and writing contents."""

    deps: SessionDeps
    reader: Reader
    contents: Contents
    work: trio.Lock = field(factory=trio.Lock)

    @property
    def settings(self) -> CheckpointSettings:
        return self.deps.config.checkpoint

    @property
    def limits(self) -> Limits:
        found = self.settings
        return Limits(found.max_files, found.max_bytes, found.max_file_bytes, found.max_seconds)

    @asynccontextmanager
    async def exclusive(self, workspace_root: str) -> AsyncIterator[None]:
        """Read or change the files of a workspace in the block, while no approved change of them is half applied."""
        async with self.deps.locks.hold(workspace_root), self.work:
            yield

    async def transact(self, work: Callable[[Database], T]) -> T:
        """Run `work` in the store, in one transaction, which is committed when this returns."""
        return await self.deps.store.transact(work, timeout=LARGE_TRANSACTION_SECONDS)

    async def read(self, work: Callable[[Database], T]) -> T:
        """Run `work` in a worker thread, on committed data."""
        return await self.reader.read(work)


def written(session: Session, pending: Sequence[Asked]) -> dict[str, Any]:
    """Return a session and its pending requests as a checkpoint stores them."""
    return {
        "status": session.status.value,
        "mode": session.mode.value,
        "prompt": session.prompt,
        "owner_user_id": session.owner_user_id,
        "client_name": session.client_name,
        "channel_id": session.channel_id,
        "paused_by": session.paused_by if session.is_paused else None,
        "last_tool": session.last_tool,
        "updated_at": clock.to_text(session.updated_at),
        "pending": [_written_request(request) for request in pending],
    }


def _written_request(request: Asked) -> dict[str, Any]:
    common = {"request_id": request.id, "created_at": clock.to_text(request.created_at)}
    match request:
        case ApprovalRequest():
            return {
                **common,
                "kind": "approval",
                "title": request.title,
                "risk_level": request.risk_level.value,
                "file_path": request.file_path,
                "paths": [change.path for change in request.files],
                "diff": request.diff_content,
            }
        case ContinuationPrompt():
            kind, title = "prompt", request_kinds.headline(request.prompt_text)
            return {**common, "kind": kind, "title": title, "type": request.prompt_type.value}
        case _:
            return {**common, "kind": "standby", "title": request_kinds.headline(request.message)}


async def take(archive: Archive, asked: TakeCheckpoint) -> CheckpointTaken:
    """Take a checkpoint of a session and its workspace, once for this id. Raises NotFound for an unknown session,
    FileError if its workspace is gone, DatabaseError if the contents cannot be written."""
    earlier = await archive.read(partial(checkpoints.get, id=asked.id))
    if earlier is not None:
        return _told(earlier, earlier.manifest)
    session = await archive.read(partial(sessions.get, id=asked.session_id))
    if session is None:
        raise NotFound(f"no session has the id {asked.session_id}")
    async with archive.exclusive(session.workspace_root):
        manifest, columns = await trio.to_thread.run_sync(_look, archive, Path(session.workspace_root))
        return await record(archive, asked, manifest, columns)


async def record(archive: Archive, asked: TakeCheckpoint, manifest: Manifest, columns: FileColumns) -> CheckpointTaken:
    """Record a checkpoint whose files were read and stored already. Raises NotFound for an unknown session."""
    session, pending = await archive.read(
        lambda db: (sessions.get(db, asked.session_id), requests.pending(db, asked.session_id))
    )
    if session is None:
        raise NotFound(f"no session has the id {asked.session_id}")
    now = archive.deps.now()
    checkpoint = Checkpoint(
        id=asked.id,
        session_id=session.id,
        session_state=written(session, pending),
        # Not needed here: `columns` hold them.
        file_hashes={},
        workspace_root=session.workspace_root,
        created_at=now,
        label=asked.label,
        progress_snapshot=session.progress_snapshot,
        file_facts={"whole": manifest.whole},
    )
    await archive.transact(partial(_insert, checkpoint=checkpoint, columns=columns, asked=asked, at=now))
    taken = _told(checkpoint, manifest)
    archive.deps.card_router.tell(Notice(f"checkpoint taken: {sentence(taken)}", "info", now, session.id))
    return taken


def sentence(taken: CheckpointTaken) -> str:
    """Describe a checkpoint in one line."""
    line = taken.checkpoint
    name = f"{line.id[:8]} ({line.label})" if line.label else line.id[:8]
    held = f"{name}, {count(line.files, 'file')}, {count(line.size, 'byte')}"
    return f"{held}; {'; '.join(map(told_of, taken.left_out))}" if taken.left_out else held


def told_of(left_out: LeftOut) -> str:
    """Describe one thing that a checkpoint does not hold."""
    if not left_out.examples:
        return left_out.why
    more = ", ..." if left_out.count > len(left_out.examples) else ""
    return f"{left_out.count} {left_out.why}: {', '.join(left_out.examples)}{more}"


def _look(archive: Archive, root: Path) -> tuple[Manifest, FileColumns]:
    """Read the workspace, in a worker thread. Stored contents are on disk on return."""
    if archive.settings.keep_contents:
        with archive.contents.open() as contents:
            manifest = take_manifest(root, archive.limits, contents)
    else:
        manifest = take_manifest(root, archive.limits)
    return manifest, checkpoints.file_columns(manifest)


def _insert(db: Database, checkpoint: Checkpoint, columns: FileColumns, asked: TakeCheckpoint, at: datetime) -> None:
    if not checkpoints.insert(db, checkpoint, columns):
        return
    summary = checkpoint.label or "(no label)"
    data = {"checkpoint_id": checkpoint.id, "files": columns.count, "channel": asked.channel}
    audit.record(db, at, "checkpoint_taken", checkpoint.session_id, asked.by, summary, data)


def _told(checkpoint: Checkpoint, manifest: Manifest) -> CheckpointTaken:
    line = CheckpointLine(
        checkpoint.id,
        checkpoint.session_id,
        checkpoint.workspace_root,
        checkpoint.created_at,
        checkpoint.label,
        len(manifest.files),
        manifest.size,
        sum(state.kept for state in manifest.files.values()),
    )
    return CheckpointTaken(line, manifest.left_out)


#: How many diverged files are kept and shown by name, and how many of anything else.
SHOWN = 100
_NAMED = 5


@frozen
class Compared:
    """The result of a comparison. `digest` identifies what was found, `steps` restore the files as requested, and `now`
    is the workspace as found. `lost` are the files that the steps overwrite or remove without a stored copy."""

    summary: DivergenceSummary
    digest: str
    steps: tuple[Step, ...]
    now: Manifest
    lost: tuple[str, ...]


class _EndlessStore:
    """Stores nothing, and reports every content as stored."""

    def put(self, hash: str, data: bytes) -> bool:
        return True


def compare(archive: Archive, checkpoint: Checkpoint, files: Files, *, keep: bool) -> Compared:
    """Compare the workspace with the checkpoint. `keep` stores the workspace's contents, which are on disk on return.
    Raises FileError if the workspace is gone, DatabaseError if contents cannot be written."""
    then = checkpoint.manifest
    root = Path(checkpoint.workspace_root)
    with archive.contents.open() as contents:
        store: ContentStore | None = None
        if archive.settings.keep_contents:
            store = contents if keep else _EndlessStore()
        now = take_manifest(root, archive.limits, store, also=then.files)
        found, certain = _found(then, now, contents, _time_check(archive.limits.max_seconds))
        plan = RestorePlan((), ())
        if files is not Files.LEAVE:
            missing = contents.missing({then.files[each.path].hash for each in found if each.path in then.files})
            plan = plan_restore(root, then, now, found, missing, exact=files is Files.EXACT)
    safe = {path for path, state in now.files.items() if state.kept or state.link is not None}
    lost = tuple(step.path for step in plan.steps if step.path in now.files and step.path not in safe)
    modified, deleted, added = (
        sum(each.kind is kind for each in found)
        for kind in (DivergenceKind.MODIFIED, DivergenceKind.DELETED, DivergenceKind.ADDED)
    )
    remarks = _remarks(then, now, plan, files, archive, lost, certain=certain)
    summary = DivergenceSummary(modified, deleted, added, tuple(found[:SHOWN]), remarks)
    remarked = [*(f"lost {path}" for path in lost), *(f"stays {each.path}" for each in plan.blocked)]
    return Compared(summary, workspace_snapshot.digest(found, now, remarked), plan.steps, now, lost)


def _found(
    then: Manifest, now: Manifest, contents: OpenContents, check_time: Callable[[], None]
) -> tuple[list[Divergence], bool]:
    """Return the divergences, and whether the added files are certain. They are not once `check_time` raises
    LimitReached."""
    found = workspace_snapshot.divergences(then, now)
    if not any(each.path.rpartition("/")[2] == ".gitignore" for each in found):
        return found, then.whole
    # The ignore rules have changed: a file may have been there before, ignored.
    with suppress(LimitReached):
        rules = workspace_snapshot.rules_of(then, contents.read, check_time)
        if rules is not None:
            ignored = partial(gitignore.ignored_by, rules, check_time=check_time)
            return workspace_snapshot.divergences(then, now, ignored), then.whole
    return [each for each in found if each.kind is not DivergenceKind.ADDED], False


def _time_check(seconds: float) -> Callable[[], None]:
    """Return a function that raises LimitReached after this many seconds. An agent may write many ignore rules."""
    until = time.monotonic() + seconds

    def check_time() -> None:
        if time.monotonic() > until:
            raise LimitReached(f"the limit of {seconds:g} seconds was reached")

    return check_time


def _remarks(
    then: Manifest,
    now: Manifest,
    plan: RestorePlan,
    files: Files,
    archive: Archive,
    lost: Sequence[str],
    *,
    certain: bool,
) -> tuple[str, ...]:
    told = [f"not in the checkpoint: {told_of(each)}" for each in then.left_out if not each.why.startswith("contents")]
    if not certain:
        told.append("files added since are not known for certain, and are left out")
    elif not now.whole:
        told.append("not every file was read now, so more may have been added")
    if now.unclear:
        told.append(f"not compared, as they cannot be read now: {_named(sorted(now.unclear))}")
    if files is Files.LEAVE:
        return tuple(told)
    if plan.blocked:
        whys = [f"{each.path} ({each.why})" for each in plan.blocked]
        told.append(f"cannot be put back: {_named(whys)}")
    if lost and not archive.settings.keep_contents:
        told.append("contents are not stored here: what is overwritten or removed cannot be restored")
    elif lost:
        why = "too large to be stored, or there is no room"
        told.append(f"{why}, so their current content cannot be restored: {_named(lost)}")
    return tuple(told)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
