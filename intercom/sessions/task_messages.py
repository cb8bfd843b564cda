"""The protocol of tasks: what a session is asked for clients that ask after a request and keep no call open."""

from __future__ import annotations

from attrs import frozen

from actors import Request
from intercom.model.task import TaskState
from intercom.sessions.answers import ClearanceAnswer, PromptAnswer, StandbyAnswer
from intercom.sessions.messages import Answered


@frozen
class OpenTask(Request[TaskState]):
    """Let the tool call `call` ask after this request of the session; once a call. Refused (`request_not_found`)."""

    call: str
    tool: str
    request_id: str


@frozen
class FindTask(Request[TaskState]):
    """Say how a task of this session stands; refused (`task_not_found`) when it has none of this id."""

    task_id: str


@frozen
class ListTasks(Request[tuple[TaskState, ...]]):
    """The session's tasks, oldest first, at most `limit`, from behind the task `after`; refused (`task_not_found`) when
    there is no such task."""

    limit: int
    after: str | None = None


@frozen
class AwaitTask(Request[Answered[ClearanceAnswer | PromptAnswer | StandbyAnswer]]):
    """Wait for what the task's tool call would have been answered. Answered whenever it is asked; refused
    (`task_not_found`, `task_cancelled`), or as the tool call would have been (`invalid_state`)."""

    call: str
    task_id: str
    ticket: str = ""


@frozen
class CancelTask(Request[TaskState]):
    """Give a task up: its request stays decidable, and a verdict rides on another result. Refused (`task_not_found`,
    `invalid_state`) when it is over already, unless this very call cancelled it."""

    call: str
    task_id: str
