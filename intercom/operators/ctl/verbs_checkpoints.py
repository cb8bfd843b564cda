"""The verbs of ctl about checkpoints: `checkpoint`, `checkpoints`, `restore` and `restoring`."""

from __future__ import annotations

from typing import Any

from intercom.model.checkpoint import CheckpointLine
from intercom.model.clock import to_text
from intercom.model.errors import InvalidArguments
from intercom.model.restore import Files, Restore
from intercom.operators.ctl.caller import CHANNEL, Caller, act_of
from intercom.operators.ctl.entries import plain
from intercom.operators.ctl.wire import CtlRequest
from intercom.operators.desk import Desk

#: The shortest prefix of a session id that is accepted if a label could stand there.
SHORTEST_ID = 4


async def take(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Take a checkpoint. Without --session, the label's first word names a session if it is a prefix of its id."""
    session, label = request.whose, (request.label or "").strip()
    first, _, rest = label.partition(" ")
    if session is None and len(first) >= SHORTEST_ID and await _is_session(desk, first):
        session, label = first, rest.strip()
    taken = await desk.checkpoints.take(session, label or None, caller.name, CHANNEL, act_of(request.verdict_id))
    left_out = [{"why": each.why, "count": each.count, "examples": list(each.examples)} for each in taken.left_out]
    return {"status": "taken", **checkpoint_entry(taken.checkpoint), "left_out": left_out}


async def listed(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    found = await desk.checkpoints.listed(request.whose)
    return {"checkpoints": [checkpoint_entry(each) for each in found]}


async def restore(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Ask people whether to go back to a checkpoint; nothing changes until they answer."""
    if request.id is None:
        raise InvalidArguments("restore needs a checkpoint's id; see checkpoints")
    try:
        files = Files(request.files or Files.LEAVE)
    except ValueError:
        raise InvalidArguments(f"files takes one of {', '.join(Files)}") from None
    return restore_entry(
        await desk.checkpoints.ask_restore(request.id, files, caller.name, CHANNEL, act_of(request.verdict_id))
    )


async def restoring(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Return the state of a restore, by its whole id."""
    if request.id is None:
        raise InvalidArguments("restoring needs a restore's id")
    return restore_entry(await desk.checkpoints.restore(request.id))


def checkpoint_entry(line: CheckpointLine) -> dict[str, Any]:
    return {
        "checkpoint_id": line.id,
        "session_id": line.session_id,
        "label": line.label,
        "workspace_root": line.workspace_root,
        "created_at": to_text(line.created_at),
        "files": line.files,
        "bytes": line.size,
        "kept": line.kept,
    }


def restore_entry(restore: Restore) -> dict[str, Any]:
    """Return the JSON form of a restore. `successor_id` is the session that follows, set from `handed_over` on."""
    found = restore.divergence
    return {
        "restore_id": restore.id,
        "state": restore.state.value,
        "checkpoint_id": restore.checkpoint_id,
        "label": restore.label,
        "session_id": restore.session_id,
        "successor_id": restore.successor_id,
        "safety_checkpoint_id": restore.safety_id,
        "workspace_root": restore.workspace_root,
        "files": restore.files.value,
        "asked_by": restore.asked_by,
        "asked_via": restore.asked_via,
        "modified": found.modified,
        "deleted": found.deleted,
        "added": found.added,
        "diverged": [{"path": each.path, "kind": each.kind.value} for each in found.first],
        "remarks": list(found.remarks),
        "note": restore.note,
        "expires_at": None if restore.expires_at is None else to_text(restore.expires_at),
        "decided": None if restore.decided is None else plain(restore.decided),
    }


async def _is_session(desk: Desk, prefix: str) -> bool:
    return any(each.id.startswith(prefix) for each in await desk.sessions(everything=True))
