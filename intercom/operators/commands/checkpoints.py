"""Commands about checkpoints: take one, list them, go back to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, field, frozen

from intercom.model.checkpoint import CheckpointLine, Files, Restore
from intercom.operators.commands.entries import checkpoint_entry, restore_entry
from intercom.operators.commands.handler import ById, Caller, OfSession, handles, stripped
from intercom.sessions.checkpoints.messages import CheckpointTaken
from intercom.sessions.operator_service import OperatorService

#: The shortest prefix of a session id that is accepted if a label could stand there.
SHORTEST_ID = 4


@frozen
class TakeCheckpoint:
    """Without `session`, the first word of `label` names a session if it is a prefix of its id."""

    label: str | None = field(default=None, converter=stripped)
    session: str | None = None


def _taken_entry(taken: CheckpointTaken) -> dict[str, Any]:
    left_out = [{"why": each.why, "count": each.count, "examples": list(each.examples)} for each in taken.left_out]
    return {"status": "taken", **checkpoint_entry(taken.checkpoint), "left_out": left_out}


@handles("checkpoint", TakeCheckpoint, _taken_entry)
async def checkpoint(service: OperatorService, caller: Caller, asked: TakeCheckpoint) -> CheckpointTaken:
    first, _, rest = (asked.label or "").partition(" ")
    if asked.session is None and len(first) >= SHORTEST_ID and await _is_session(service, first):
        asked = evolve(asked, session=first, label=rest)
    return await service.checkpoints.take(asked.session, asked.label, caller.name, caller.channel.value, caller.act)


async def _is_session(service: OperatorService, prefix: str) -> bool:
    return any(each.id.startswith(prefix) for each in await service.sessions(everything=True))


def _checkpoint_entries(found: Sequence[CheckpointLine]) -> dict[str, Any]:
    return {"checkpoints": [checkpoint_entry(each) for each in found]}


@handles("checkpoints", OfSession, _checkpoint_entries)
async def checkpoints(service: OperatorService, caller: Caller, asked: OfSession) -> Sequence[CheckpointLine]:
    return await service.checkpoints.listed(asked.session)


@frozen
class AskRestore:
    """`id` is that of a checkpoint. `files` says what happens to the files of its workspace."""

    id: str
    files: Files = field(default=Files.LEAVE, converter=Files)


@handles("restore", AskRestore, restore_entry)
async def restore(service: OperatorService, caller: Caller, asked: AskRestore) -> Restore:
    """Ask people whether to go back to a checkpoint; nothing changes until they answer."""
    return await service.checkpoints.ask_restore(asked.id, asked.files, caller.name, caller.channel.value, caller.act)


@handles("restoring", ById, restore_entry)
async def restoring(service: OperatorService, caller: Caller, asked: ById) -> Restore:
    """Return the state of a restore, by its whole id."""
    return await service.checkpoints.restore(asked.id)
