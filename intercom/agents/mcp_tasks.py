"""MCP tasks: a client asks after a waiting call instead of keeping it open. Two forms, one of each protocol version.

- 2025-11-25: the call requests a task (`task`). The client then uses `tasks/get`, `tasks/result` (which waits),
  `tasks/list` and `tasks/cancel`.
- 2026-07-28, the extension `io.modelcontextprotocol/tasks`: a client that declares it gets a task for each call that
  would wait. `tasks/get` returns the result. (`tasks/update` answers questions, which our tasks do not ask.)

A task survives the server: it is a database row beside its request.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import Any

import mcp_types as types
from attrs import evolve
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from actors import Request, ask
from intercom.agents import call as agents_call
from intercom.agents.call import Call, error_content
from intercom.agents.connection import AgentConnection, Caller
from intercom.agents.pending_response import answering, came_by
from intercom.model import clock
from intercom.model.errors import IntercomError, NotFound
from intercom.model.request import TaskState, TaskStatus
from intercom.sessions.messages import CancelTask, FindTask, ListTasks, OpenTask, Undeliver
from intercom.sessions.tools.table import BY_NAME
from intercom.sessions.tools.tool import Tool

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


_UNKNOWN = "task_not_found"
#: The number of tasks on a page of `tasks/list`.
PAGE = 50

_RELATED = "io.modelcontextprotocol/related-task"
_AT_ONCE = "io.modelcontextprotocol/model-immediate-response"
#: The key that carries a task from the tool call's handler to `_unwrap`: the SDK rejects the task's real shape.
_CARRIED = "intercom/task"
#: Time limit of an answer about a task, in seconds.
_SECONDS = 60.0


class _Named(types.RequestParams):
    task_id: str = Field(min_length=1, max_length=200)


class _Answers(_Named):
    input_responses: dict[str, Any]


def serve(server: Server[Any], caller_of: Callable[[Context], Caller]) -> None:
    """Register the task methods in this server, and declare the extension."""
    for method, takes, answer in (
        ("tasks/get", _Named, _get),
        ("tasks/result", _Named, _result),
        ("tasks/cancel", _Named, _cancel),
        ("tasks/update", _Answers, _update),
        ("tasks/list", types.PaginatedRequestParams, _list),
    ):
        server.add_request_handler(method, takes, partial(_answered, answer, caller_of))
    server.extensions[EXTENSION] = {}
    server.middleware.append(_unwrap)


async def _answered(
    answer: Callable[[Context, Caller, Any], Awaitable[dict[str, Any]]],
    caller_of: Callable[[Context], Caller],
    ctx: Context,
    params: Any,
) -> HandlerResult:
    try:
        return await answer(ctx, caller_of(ctx), params)
    except MCPError:
        raise
    except Exception as failed:
        raise error(agents_call.refusal(failed, ctx.method)) from None


def wanted(ctx: Context, params: types.CallToolRequestParams, tool: Tool) -> Form | None:
    """Return the form of the task for this tool call; None for a plain call. Raises MCPError if a task is requested for
    a tool that does not wait."""
    if asked_for(ctx, params):
        if not tool.offers_tasks:
            raise MCPError(code=types.METHOD_NOT_FOUND, message=f"{tool.name} answers at once: call it without a task")
        return Form.CORE
    return Form.EXTENSION if tool.offers_tasks and takes_tasks(ctx) else None


async def begin(form: Form, call: Call) -> types.CallToolResult:
    """Open the request and its task. If the form allows it, a call that needs no wait is answered at once."""
    opened = await call.ask(evolve(call.given, call=call.name))
    agents_call.note(request_id=opened.request_id)
    if form is Form.EXTENSION and opened.answered is not None:
        return agents_call.result(call.finish(opened.answered, opened.request_id))
    state = await call.ask(OpenTask(call.name, call.tool.name, opened.request_id))
    # This answer carries nothing: pending deliveries go with another one.
    call.session.tell(Undeliver((call.name,)))
    # A new task is always reported as working, even if it is already done.
    begun = written(state, form) | {"status": TaskStatus.WORKING.value}
    return types.CallToolResult(content=[], _meta={_CARRIED: begun, _AT_ONCE: _meanwhile(call.tool, opened.request_id)})


def refused(ctx: Context, params: types.CallToolRequestParams, why: IntercomError) -> types.CallToolResult:
    """Return the result of a failed tool call. Raises MCPError if a task was requested: the answer cannot be a result
    then."""
    if asked_for(ctx, params):
        raise error(why)
    return agents_call.failure(why)


async def _get(ctx: Context, caller: Caller, params: _Named) -> dict[str, Any]:
    form, connection = spoken(ctx, *Form), _connection(ctx)
    state = await _ask(connection, caller, FindTask(params.task_id))
    told = written(state, form)
    if form is Form.EXTENSION and state.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        # In this form a tool's error is a result.
        told |= {"status": TaskStatus.COMPLETED.value, "result": _dumped(await _outcome(ctx, caller, state))}
    return told


async def _result(ctx: Context, caller: Caller, params: _Named) -> dict[str, Any]:
    spoken(ctx, Form.CORE)
    connection = _connection(ctx)
    state = await _ask(connection, caller, FindTask(params.task_id))
    return {**_dumped(await _outcome(ctx, caller, state)), "_meta": {_RELATED: {"taskId": state.id}}}


async def _cancel(ctx: Context, caller: Caller, params: _Named) -> dict[str, Any]:
    form, connection = spoken(ctx, *Form), _connection(ctx)
    try:
        state = await _ask(connection, caller, CancelTask(caller.call_name or str(uuid.uuid4()), params.task_id))
    except IntercomError as late:
        if form is Form.EXTENSION and late.error_code == "invalid_state":
            # In this form a late cancellation is not an error.
            return {}
        raise
    return written(state, form) if form is Form.CORE else {}


async def _update(ctx: Context, caller: Caller, params: _Answers) -> dict[str, Any]:
    spoken(ctx, Form.EXTENSION)
    # Our tasks ask no questions, so the answers are ignored.
    await _ask(_connection(ctx), caller, FindTask(params.task_id))
    return {}


async def _list(ctx: Context, caller: Caller, params: types.PaginatedRequestParams) -> dict[str, Any]:
    form = spoken(ctx, Form.CORE)
    found = await _ask(_connection(ctx), caller, ListTasks(PAGE + 1, params.cursor))
    told: dict[str, Any] = {"tasks": [written(state, form) for state in found[:PAGE]]}
    if len(found) > PAGE:
        told["nextCursor"] = found[PAGE - 1].id
    return told


async def _outcome(ctx: Context, caller: Caller, state: TaskState) -> types.CallToolResult:
    """Wait without limit for the result of the task's call; the client decides when to stop waiting."""
    try:
        async with answering(ctx, BY_NAME[state.tool], None, caller) as call:
            call.slice_seconds = None
            answered = await call.wait(state.request_id, state.id)
            if answered is None:
                # The client is gone, or the server stops.
                raise IntercomError("the server is restarting; nothing was lost, ask again", code="unavailable")
            answered = call.finish(answered, state.request_id)
    except IntercomError as failed:
        if failed.error_code in ("task_cancelled", "task_not_found", "unavailable"):
            raise
        return agents_call.failure(failed)
    return agents_call.result(answered)


async def _ask(connection: AgentConnection, caller: Caller, question: Request[Any]) -> Any:
    if connection.anonymous:
        raise NotFound("a task can be asked after by an agent that is known again: name it in the URL", code=_UNKNOWN)
    session_id = await connection.session(caller)
    agents_call.note(session_id)
    answer = await ask(connection.system.named(f"session/{session_id}"), question, timeout=_SECONDS, retry=True)
    if isinstance(answer, TaskState):
        agents_call.note(request_id=answer.request_id)
    return answer


async def _unwrap(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Convert a task to the shape that the SDK lacks, and declare tasks to clients of the version with core tasks."""
    answer = await call_next(ctx)
    if not isinstance(answer, dict):
        return answer
    if ctx.method == "initialize" and answer.get("protocolVersion") == REVISION:
        return {**answer, "capabilities": {**answer["capabilities"], "tasks": CAPABILITY}}
    meta = answer.get("_meta") if ctx.method == "tools/call" else None
    if not isinstance(meta, Mapping) or _CARRIED not in meta:
        return answer
    begun, rest = meta[_CARRIED], {key: value for key, value in meta.items() if key != _CARRIED}
    if ctx.protocol_version == REVISION:
        return {"task": begun, "_meta": rest}
    return {"resultType": "task", **begun, "_meta": rest}


def _connection(ctx: Context) -> AgentConnection:
    return came_by(ctx)[0]


def _meanwhile(tool: Tool, request_id: str) -> str:
    """Return the message that a model may see meanwhile."""
    return "" if tool.pending is None else str(getattr(tool.pending(request_id), "message", ""))


def _dumped(result: types.CallToolResult) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)
