"""Tasks: a client polls a request, and no call waits inside the server.

The decision on such a request is reserved for its task for a while, so that it is not told twice. If the client does
not fetch it, another result carries it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from attrs import evolve

from intercom.model.errors import InvalidState, NotFound
from intercom.model.task import Task, TaskState, TaskStatus
from intercom.sessions.answers import Asked
from intercom.sessions.messages import Answered, AwaitTask, CancelTask, FindTask, ListTasks, OpenTask
from intercom.sessions.session.actor import SessionActor
from intercom.sessions.tools.transmit import ask_policy_again
from intercom.store import requests, tasks
from intercom.store.messages import Database


async def open_task(session: SessionActor, asked: OpenTask) -> TaskState:
    await session.find(asked.request_id)
    task = Task(session.context.new_id(), session.id, asked.request_id, asked.tool, asked.call, session.now())
    kept, request = await session.transact(partial(_open, task=task))
    if kept.cancelled_at is None:
        leave_to_task(session, request)
    return _shown(session, kept, request)


async def find_task(session: SessionActor, asked: FindTask) -> TaskState:
    return _shown(session, *await _find(session, asked.task_id))


async def list_tasks(session: SessionActor, asked: ListTasks) -> tuple[TaskState, ...]:
    if asked.after is not None:
        await _find(session, asked.after)
    page = partial(_page, session_id=session.id, after=asked.after, limit=asked.limit)
    return tuple(_shown(session, *each) for each in await session.transact(page))


async def await_task(session: SessionActor, asked: AwaitTask) -> Answered[Any] | None:
    task, request = await _find(session, asked.task_id)
    if task.cancelled_at is not None:
        raise _given_up(task.id)
    await ask_policy_again(session, request)
    return session.answered_or_waits(request, asked.call, asked.ticket, task.id)


async def cancel_task(session: SessionActor, asked: CancelTask) -> TaskState:
    await _find(session, asked.task_id)
    done = await session.transact(partial(tasks.cancel, id=asked.task_id, by=asked.call, at=session.now()))
    task, request = await _find(session, asked.task_id)
    if not done:
        raise InvalidState(f"task {task.id} is over ({state(task, request).status}); there is nothing to cancel")
    if request.id not in await session.transact(partial(tasks.asked_after, session_id=session.id)):
        session.deliveries.tasked.pop(request.id, None)
    session.dismiss(request, task.id, _given_up(task.id))
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
    return found


def leave_to_task(session: SessionActor, request: Asked) -> None:
    """Note that a task polls this request: its decision is reserved for the task, and its agent is not away."""
    if session.is_settled(request):
        session.deliveries.leave_to_task(request.id, session.now())
        return
    session.deliveries.tasked[request.id] = math.inf
    if request.id in session.context.unattended:
        session.context.unattended.discard(request.id)
        session.show(request)


async def present(session: SessionActor) -> None:
    """Update the cards of polled requests: the agent, and so its polling client, came or left."""
    tasked, waiters = session.deliveries.tasked, session.waiters
    for request_id in [id for id, until in tasked.items() if until == math.inf and id not in waiters]:
        if (request_id in session.context.unattended) is not session.agent_here:
            continue
        request = await session.find(request_id)
        if session.is_settled(request):
            continue
        session.context.unattended.discard(request_id)
        session.leave_alone(request_id)
        session.show(request)


def _given_up(task_id: str) -> InvalidState:
    return InvalidState(f"task {task_id} was cancelled by its client", code="task_cancelled")


async def _find(session: SessionActor, task_id: str) -> tuple[Task, Asked]:
    found = await session.transact(partial(_with_request, id=task_id))
    if found is None or found[0].session_id != session.id:
        raise NotFound(f"no task of this session has the id {task_id[:80]!r}", code="task_not_found")
    task, request = found
    return task, await session.find(request.id)


def _open(db: Database, task: Task) -> tuple[Task, Asked]:
    kept = tasks.open(db, task)
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
