"""Commands that reach an agent at work: pause it, tell it something, leave it a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from intercom.model.card import Card
from intercom.model.session import Instruction, Session
from intercom.operators.commands.entries import instruction_entries, queued_entry, session_done, under
from intercom.operators.commands.handler import ById, Caller, Nothing, OfSession, handles, stripped
from intercom.operators.commands.table import LISTED
from intercom.sessions.operator_service import OperatorService


@handles("pause", OfSession, session_done("paused"))
async def pause(service: OperatorService, caller: Caller, asked: OfSession) -> Session:
    """Pause an agent; default: the only active session."""
    return await service.steering.pause(asked.session, caller.name, caller.channel.value, caller.act)


def _unpaused_entry(session: Session) -> dict[str, Any]:
    return {"session_id": session.id, "status": session.status.value}


@handles("unpause", OfSession, _unpaused_entry)
async def unpause(service: OperatorService, caller: Caller, asked: OfSession) -> Session:
    """Let a paused agent continue; default: the only paused session."""
    return await service.steering.unpause(asked.session, caller.name, caller.channel.value, caller.act)


@frozen
class Nudge:
    """`id` is that of an alert or of a session."""

    id: str
    text: str | None = field(default=None, converter=stripped)


def _nudged_entry(nudged: Card | Session) -> dict[str, Any]:
    if isinstance(nudged, Session):
        return {"session_id": nudged.id, "status": "nudged"}
    return {"request_id": nudged.id, "session_id": nudged.session_id, "status": "nudged", "note": nudged.note}


@handles("nudge", Nudge, _nudged_entry)
async def nudge(service: OperatorService, caller: Caller, asked: Nudge) -> Card | Session:
    return await service.nudge(
        asked.id, asked.text, caller.name, caller.channel.value, caller.origin, caller.act, caller.signed
    )


@handles("nudge-text", Nothing, under("text"))
async def nudge_text(service: OperatorService, caller: Caller, asked: Nothing) -> str:
    return service.nudge_text()


@frozen
class Steer:
    text: str = ""
    session: str | None = None


@handles("steer", Steer, queued_entry)
async def steer(service: OperatorService, caller: Caller, asked: Steer) -> Card:
    """Queue an instruction for an agent; default: the only live session."""
    return await service.steering.steer(
        asked.session, asked.text, caller.name, caller.channel.value, caller.act, caller.signed
    )


@frozen
class ListInstructions:
    session: str | None = None
    limit: int = LISTED


@handles("steering", ListInstructions, instruction_entries)
async def steering(service: OperatorService, caller: Caller, asked: ListInstructions) -> Sequence[Instruction]:
    """Return the instructions that agents were or will be told, the newest last."""
    return await service.steering.words(asked.session, asked.limit)


@frozen
class LeaveTask:
    """A task for a session's agent, or for the next agent in the workspace of a directory: one of the two."""

    text: str = ""
    session: str | None = None
    workspace: str | None = None


@handles("task", LeaveTask, queued_entry)
async def task(service: OperatorService, caller: Caller, asked: LeaveTask) -> Card:
    return await service.steering.add_task(
        asked.text,
        caller.name,
        caller.channel.value,
        session=asked.session,
        workspace=asked.workspace,
        act_id=caller.act,
        signed=caller.signed,
    )


@frozen
class OfDirectory:
    workspace: str


@handles("task-workspace", OfDirectory, under("workspace_root"))
async def task_workspace(service: OperatorService, caller: Caller, asked: OfDirectory) -> str:
    """Return the workspace that a task left in this directory belongs to."""
    return await service.steering.workspace_of(asked.workspace)


@frozen
class ListTasks:
    session: str | None = None
    everything: bool = False
    limit: int = LISTED


@handles("tasks", ListTasks, instruction_entries)
async def tasks(service: OperatorService, caller: Caller, asked: ListTasks) -> Sequence[Instruction]:
    """Return the tasks that no agent has yet; with `everything` all tasks."""
    return await service.steering.tasks(asked.session, everything=asked.everything, limit=asked.limit)


def _taken_back_entry(card: Card) -> dict[str, Any]:
    return {"request_id": card.id, "session_id": card.session_id or None, "status": "taken back"}


@handles("take-back", ById, _taken_back_entry)
async def take_back(service: OperatorService, caller: Caller, asked: ById) -> Card:
    """Cancel an instruction or a task before it reaches an agent."""
    return await service.steering.take_back(asked.id, caller.name, caller.channel.value)
