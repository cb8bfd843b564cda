"""The protocol of tasks, for clients that poll a request and keep no call open."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.task import TaskState
from intercom.sessions.answers import ClearanceAnswer, PromptAnswer, StandbyAnswer
from intercom.sessions.messages import Answered


@frozen
class OpenTask(Request[TaskState]):
    """Open a task: the tool call `call` polls this request, once per call. Refused with `request_not_found`."""

    call: str
    tool: str
    request_id: str


@frozen
class FindTask(Request[TaskState]):
    """Return the state of a task of this session. Refused with `task_not_found`."""

    task_id: str


@frozen
class ListTasks(Request[tuple[TaskState, ...]]):
    """Return the session's tasks, oldest first, at most `limit`, after the task `after`. Refused with `task_not_found`
    if there is no such task."""

    limit: int
    after: str | None = None


@frozen
class AwaitTask(Request[Answered[ClearanceAnswer | PromptAnswer | StandbyAnswer]]):
    """Wait for the answer of the task's tool call. May be asked repeatedly. Refused with `task_not_found` or
    `task_cancelled`, or like the tool call (`invalid_state`)."""

    call: str
    task_id: str
    ticket: str = ""


@frozen
class CancelTask(Request[TaskState]):
    """Cancel a task: its request stays open, and its decision is attached to another result. Refused with
    `task_not_found`, or `invalid_state` if it is over already, unless this very call cancelled it."""

    call: str
    task_id: str
