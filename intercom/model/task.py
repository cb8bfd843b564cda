"""An MCP task: its client polls for the result, instead of keeping the call open."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen


class TaskStatus(StrEnum):
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


@frozen
class Task:
    """The task of a session's request (`request_id`). `call` is the id of the call of `tool` that opened it.
    `cancelled_by` is the id of the call that cancelled it."""

    id: str
    session_id: str
    request_id: str
    tool: str
    call: str
    created_at: datetime
    cancelled_at: datetime | None = None
    cancelled_by: str | None = None


@frozen
class TaskState:
    """The status of a task, unchanged since `updated_at`. Working: its request waits for a person. Completed: there is
    an answer. Failed: the request ended with its session. Cancelled: its client gave it up first."""

    id: str
    tool: str
    request_id: str
    status: TaskStatus
    created_at: datetime
    updated_at: datetime
