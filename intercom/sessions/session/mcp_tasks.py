"""MCP tasks of a session: a call that a client asks about later instead of waiting for its answer."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from attrs import evolve

from intercom.model.errors import InvalidState, NotFound
from intercom.model.request import (
    Task,
    TaskState,
    TaskStatus,
)
from intercom.sessions.messages import (
    Answered,
    AwaitTask,
    CancelTask,
    FindTask,
    ListTasks,
    OpenTask,
)
from intercom.sessions.request_kinds import Asked
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.session.state import SessionState
from intercom.sessions.tools.transmit import ask_policy_again
from intercom.store import requests
from intercom.store.requests import tasks
from intercom.store.writer_messages import Database


async def open_task(session: SessionActor, asked: OpenTask) -> TaskState:
    await session.find(asked.request_id)
    task = Task(session.deps.new_id(), session.id, asked.request_id, asked.tool, asked.call, session.now())
    kept, request = await session.transact(_open, task=task)
    if kept.cancelled_at is None and session.is_settled(request):
        session.leave_to_task(request.id)
    elif kept.cancelled_at is None:
        session.change(SessionState.reserve, (request.id,))
        session.mark(request)
    return _shown(session, kept, request)


async def find_task(session: SessionActor, asked: FindTask) -> TaskState:
    return _shown(session, *await _find_task(session, asked.task_id))


async def list_tasks(session: SessionActor, asked: ListTasks) -> tuple[TaskState, ...]:
    if asked.after is not None:
        await _find_task(session, asked.after)
    page = partial(_page, session_id=session.id, after=asked.after, limit=asked.limit)
    return tuple(_shown(session, *each) for each in await session.transact(page))


async def await_task(session: SessionActor, asked: AwaitTask) -> Answered[Any] | None:
    task, request = await _find_task(session, asked.task_id)
    if task.cancelled_at is not None:
        raise _task_cancelled(task.id)
    await ask_policy_again(session, request)
    return session.answer_or_wait(request, asked.call, asked.ticket, task.id)


async def cancel_task(session: SessionActor, asked: CancelTask) -> TaskState:
    await _find_task(session, asked.task_id)
    done = await session.transact(tasks.cancel, id=asked.task_id, by=asked.call, at=session.now())
    task, request = await _find_task(session, asked.task_id)
    if not done:
        over = _told(session, state(task, request))
        raise InvalidState(f"task {task.id} is over ({over.status}); there is nothing to cancel")
    if request.id not in await session.transact(tasks.asked_after, session_id=session.id):
        session.change(SessionState.reserve, (request.id,), until=-math.inf)
    session.dismiss(request, task.id, _task_cancelled(task.id))
    return state(task, request)


def state(task: Task, request: Asked) -> TaskState:
    """Return a task's state, from its request. A cancelled task stays cancelled, whatever happens to the request."""
    at = request.decided.at if request.decided is not None else request.expires_at
    if task.cancelled_at is not None:
        status, at = TaskStatus.CANCELLED, task.cancelled_at
    elif request.status.value == "pending":
        status, at = TaskStatus.WORKING, task.created_at
    elif request.status.value == "interrupted":
        status, at = TaskStatus.FAILED, at
    else:
        status = TaskStatus.COMPLETED
    return TaskState(
        task.id, task.tool, request.id, status, task.created_at, max(at or task.created_at, task.created_at)
    )


def _shown(session: SessionActor, task: Task, request: Asked) -> TaskState:
    """Return the state of a task as its client may see it: a decision is hidden until a pause is over."""
    found = state(task, request)
    if session.row.is_paused and found.status is TaskStatus.COMPLETED:
        return evolve(found, status=TaskStatus.WORKING)
    return _told(session, found)


def _told(session: SessionActor, found: TaskState) -> TaskState:
    """Return the state of a task, which its client is told now: it takes an end for final."""
    if found.status is TaskStatus.COMPLETED:
        session.note_known(found.request_id)
    return found


def _task_cancelled(task_id: str) -> InvalidState:
    return InvalidState(f"task {task_id} was cancelled by its client", code="task_cancelled")


async def _find_task(session: SessionActor, task_id: str) -> tuple[Task, Asked]:
    found = await session.transact(_with_request, id=task_id)
    if found is None or found[0].session_id != session.id:
        raise NotFound(f"no task of this session has the id {task_id[:80]!r}", code="task_not_found")
    task, request = found
    return task, await session.find(request.id)


def _open(db: Database, task: Task) -> tuple[Task, Asked]:
    kept = tasks.insert_or_get(db, task)
    request = requests.find(db, kept.request_id)
    assert request is not None, "looked for a moment ago"
    return kept, request


def _with_request(db: Database, id: str) -> tuple[Task, Asked] | None:
    task = tasks.get(db, id)
    request = None if task is None else requests.find(db, task.request_id)
    return None if task is None or request is None else (task, request)


def _page(db: Database, session_id: str, after: str | None, limit: int) -> tuple[tuple[Task, Asked], ...]:
    found = (_with_request(db, task.id) for task in tasks.page(db, session_id, after, limit))
    return tuple(each for each in found if each is not None)
