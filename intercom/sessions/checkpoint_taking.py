"""Taking a checkpoint: first the files and their contents on disk, then the row that names them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

import trio

from intercom.model import crash_points
from intercom.model.card import Notice
from intercom.model.checkpoint import Checkpoint, CheckpointLine
from intercom.model.errors import NotFound
from intercom.model.manifest import LeftOut, Manifest
from intercom.sessions.archive import Archive, written
from intercom.sessions.checkpoint_messages import CheckpointTaken, TakeCheckpoint
from intercom.store import audit, checkpoints, requests, sessions
from intercom.store.checkpoints import FileColumns
from intercom.store.messages import Database
from intercom.workspace.snapshot import snapshot


async def take(archive: Archive, asked: TakeCheckpoint) -> CheckpointTaken:
    """Take a checkpoint of a session and its workspace, once for this id. Raises NotFound for an unknown session,
    FileError if its workspace is gone, DatabaseError if the contents cannot be written."""
    earlier = await archive.read(partial(checkpoints.get, id=asked.id))
    if earlier is None:
        session = await archive.read(partial(sessions.get, id=asked.session_id))
        if session is None:
            raise NotFound(f"no session has the id {asked.session_id}")
        root = Path(session.workspace_root)
        async with archive.work:
            manifest, columns = await trio.to_thread.run_sync(_look, archive, root)
            taken = await record(archive, asked, manifest, columns)
    else:
        taken = _told(earlier, earlier.manifest)
    return taken


async def record(archive: Archive, asked: TakeCheckpoint, manifest: Manifest, columns: FileColumns) -> CheckpointTaken:
    """Record a checkpoint whose files were read and stored already. Raises NotFound for an unknown session."""
    session, pending = await archive.read(
        lambda db: (sessions.get(db, asked.session_id), requests.pending(db, asked.session_id))
    )
    if session is None:
        raise NotFound(f"no session has the id {asked.session_id}")
    now = archive.context.now()
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
    if await archive.transact(partial(_insert, checkpoint=checkpoint, columns=columns, asked=asked, at=now)):
        crash_points.reach("checkpoint.recorded")
    taken = _told(checkpoint, manifest)
    archive.context.operators.tell(Notice(f"checkpoint taken: {sentence(taken)}", "info", now, session.id))
    return taken


def sentence(taken: CheckpointTaken) -> str:
    """Describe a checkpoint in one line."""
    line = taken.checkpoint
    name = f"{line.id[:8]} ({line.label})" if line.label else line.id[:8]
    held = f"{name}, {_counted(line.files, 'file')}, {line.size} bytes"
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
        with archive.contents.open() as held:
            manifest = snapshot(root, archive.limits, held)
    else:
        manifest = snapshot(root, archive.limits)
    return manifest, checkpoints.file_columns(manifest)


def _insert(db: Database, checkpoint: Checkpoint, columns: FileColumns, asked: TakeCheckpoint, at: datetime) -> bool:
    if not checkpoints.insert(db, checkpoint, columns):
        return False
    summary = checkpoint.label or "(no label)"
    data = {"checkpoint_id": checkpoint.id, "files": columns.count, "channel": asked.channel}
    audit.record(db, at, "checkpoint_taken", checkpoint.session_id, asked.by, summary, data)
    return True


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


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
