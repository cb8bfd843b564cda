"""A task: a waiting call whose client asks after it, instead of keeping the call open (MCP tasks)."""

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
    """A request of a session (`request_id`) that the call named `call` of the tool `tool` asks after. `cancelled_by` is
    the name of the call that cancelled it."""

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
    """How a task stands: working while its request waits for a person, completed when there is an answer, failed when
    the request ended with its session, cancelled when its client gave it up first. `updated_at` is when it came to
    stand so."""

    id: str
    tool: str
    request_id: str
    status: TaskStatus
    created_at: datetime
    updated_at: datetime
