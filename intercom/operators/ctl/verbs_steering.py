"""The verbs of ctl about working agents: pause, unpause, steer, and leave a task."""

from __future__ import annotations

from typing import Any

from intercom.model.card import Card
from intercom.model.errors import InvalidArguments
from intercom.operators.ctl.caller import CHANNEL, Caller, act_of
from intercom.operators.ctl.entries import words_entry
from intercom.operators.ctl.wire import CtlRequest
from intercom.operators.desk import Desk
from intercom.sessions.steering_desk import LISTED


async def pause(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Pause an agent; default: the only active session."""
    session = await desk.steering.pause(request.whose, caller.name, CHANNEL, act_of(request.verdict_id))
    return {"session_id": session.id, "status": "paused"}


async def unpause(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Let a paused agent continue; default: the only paused session."""
    session = await desk.steering.unpause(request.whose, caller.name, CHANNEL, act_of(request.verdict_id))
    return {"session_id": session.id, "status": session.status.value}


async def steer(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Queue an instruction for an agent; default: the only live session."""
    card = await desk.steering.steer(
        request.whose, request.text or "", caller.name, CHANNEL, act_of(request.verdict_id), request.signed
    )
    return _reply(card)


async def steering(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """List the instructions that agents were or will be told, the newest last."""
    found = await desk.steering.words(request.whose, request.limit or LISTED)
    return {"words": [words_entry(word) for word in found]}


async def task(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Leave a task for a session's agent, or for the next agent in a workspace."""
    card = await desk.steering.add_task(
        request.text or "",
        caller.name,
        CHANNEL,
        session=request.session,
        workspace=request.workspace,
        act_id=act_of(request.verdict_id),
        signed=request.signed,
    )
    return _reply(card)


async def task_workspace(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Return the workspace that a task left in this directory belongs to."""
    if request.workspace is None:
        raise InvalidArguments("task-workspace needs the directory in workspace")
    return {"workspace_root": await desk.steering.workspace_of(request.workspace)}


async def tasks(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """List the tasks that no agent has yet; with `everything` all tasks."""
    limit = request.limit or LISTED
    found = await desk.steering.tasks(request.whose, everything=request.everything, limit=limit)
    return {"words": [words_entry(word) for word in found]}


async def take_back(desk: Desk, caller: Caller, request: CtlRequest) -> Any:
    """Cancel an instruction or task before it reaches an agent."""
    if request.id is None:
        raise InvalidArguments("take-back needs an id; see steering and tasks")
    card = await desk.steering.take_back(request.id, caller.name, CHANNEL)
    return {"request_id": card.id, "session_id": card.session_id or None, "status": "taken back"}


def _reply(card: Card) -> dict[str, Any]:
    return {
        "request_id": card.id,
        "session_id": card.session_id or None,
        "workspace_root": card.workspace_root,
        "status": card.state.value,
        "note": card.note,
    }
