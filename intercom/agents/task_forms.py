"""The two forms of MCP tasks, by protocol version: which clients use which, and the format of a task in each."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from intercom.agents.call import error_content
from intercom.model import clock
from intercom.model.errors import IntercomError
from intercom.model.task import TaskState, TaskStatus

Context = ServerRequestContext[Any, Any]

EXTENSION = "io.modelcontextprotocol/tasks"
REVISION = "2025-11-25"
#: The capability that a server of the core form declares.
CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}

_CANCELLED = -32800
#: The poll intervals, in milliseconds: people often answer within a minute, so it is short at first.
_SOON, _LATER, _A_MINUTE = 1000, 5000, 60.0


class Form(Enum):
    """The form of a task. CORE: the call requests a task. EXTENSION: the client accepts tasks, and the server
    decides."""

    CORE = "2025-11-25"
    EXTENSION = "2026-07-28"


def asked_for(ctx: Context, params: types.CallToolRequestParams) -> bool:
    """Whether this tool call requests a task in the core form."""
    return ctx.protocol_version == REVISION and params.task is not None


def takes_tasks(ctx: Context) -> bool:
    """Whether the client of this request declares the extension."""
    capabilities = ctx.session.client_capabilities
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return modern and capabilities is not None and EXTENSION in (capabilities.extensions or {})


def spoken(ctx: Context, *forms: Form) -> Form:
    """Return the form of this client's task requests. Raises MCPError if it has none, or none of `forms`."""
    if ctx.protocol_version == REVISION:
        form = Form.CORE
    elif ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise unknown(ctx)
    elif not takes_tasks(ctx):
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"declare the extension {EXTENSION} in this request's clientCapabilities to use tasks",
            data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )
    else:
        form = Form.EXTENSION
    if form not in forms:
        raise unknown(ctx)
    return form


def written(state: TaskState, form: Form) -> dict[str, Any]:
    """Return a task in this form. It exists as long as its session, so it has no time to live."""
    told = {
        "taskId": state.id,
        "status": state.status.value,
        "statusMessage": _MESSAGES[state.status].format(state.request_id),
        "createdAt": clock.to_text(state.created_at),
        "lastUpdatedAt": clock.to_text(state.updated_at),
    }
    lasts, poll = ("ttl", "pollInterval") if form is Form.CORE else ("ttlMs", "pollIntervalMs")
    age = (datetime.now(UTC) - state.created_at).total_seconds()
    return {**told, lasts: None, poll: _SOON if age < _A_MINUTE else _LATER}


_MESSAGES = {
    TaskStatus.WORKING: "request {} waits for a person",
    TaskStatus.COMPLETED: "request {} is answered",
    TaskStatus.FAILED: "request {} ended with its session",
    TaskStatus.CANCELLED: "cancelled by the client; request {} can still be answered",
}


def unknown(ctx: Context) -> MCPError:
    """Return the error for a method that does not exist for this client."""
    return MCPError(code=types.METHOD_NOT_FOUND, message="Method not found", data=ctx.method)


def error(refused: IntercomError) -> MCPError:
    """Return a refusal as a JSON-RPC error, for answers that cannot be a tool result."""
    ours = ("busy", "unavailable", "mcp")
    code = types.INTERNAL_ERROR if refused.error_code in ours else types.INVALID_PARAMS
    if refused.error_code == "task_cancelled":
        code = _CANCELLED
    return MCPError(code=code, message=refused.message, data=error_content(refused))


def code_of(refused: MCPError) -> str:
    """Return the code of a refusal that `error` made; protocol errors count as "mcp"."""
    data = refused.error.data
    return str(data.get("error_code", "mcp")) if isinstance(data, dict) else "mcp"
