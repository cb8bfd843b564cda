"""MCP tasks: a client polls a waiting call instead of keeping it open. There are two forms, by protocol version.

- 2025-11-25: the call requests a task (`task`). The client then uses `tasks/get`, `tasks/result` (which waits),
  `tasks/list` and `tasks/cancel`.
- 2026-07-28, the extension `io.modelcontextprotocol/tasks`: a client that declares it gets a task for each call that
  would wait. `tasks/get` returns the result. (`tasks/update` answers questions, which our tasks do not ask.)

A task survives the server: it is a database row beside its request.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from pydantic import Field

from actors import Request, ask
from intercom.agents import results, task_forms, tracing
from intercom.agents.call import Call
from intercom.agents.door import Caller, Door
from intercom.agents.exchange import came_by
from intercom.agents.task_forms import Context, Form
from intercom.agents.tools import BY_NAME
from intercom.agents.tools.tool import Tool, Waiting
from intercom.model.errors import IntercomError, NotFound
from intercom.model.task import TaskState, TaskStatus
from intercom.sessions.task_messages import AwaitTask, CancelTask, FindTask, ListTasks, OpenTask

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
    server.extensions[task_forms.EXTENSION] = {}
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
        raise task_forms.error(results.refusal(failed, ctx.method)) from None


def wanted(ctx: Context, params: types.CallToolRequestParams, tool: Tool) -> Form | None:
    """Return the form of the task for this tool call; None for a plain call. Raises MCPError if a task is requested for
    a tool that does not wait."""
    if task_forms.asked_for(ctx, params):
        if tool.waiting is None:
            raise MCPError(code=types.METHOD_NOT_FOUND, message=f"{tool.name} answers at once: call it without a task")
        return Form.CORE
    return Form.EXTENSION if tool.waiting is not None and task_forms.takes_tasks(ctx) else None


async def begin(form: Form, door: Door, call: Call, waiting: Waiting, given: Any) -> types.CallToolResult:
    """Open the request and its task. If the form allows it, a call that needs no wait is answered at once."""
    opened = await waiting.open(call, given)
    tracing.note(request_id=opened.request_id)
    if form is Form.EXTENSION and opened.answered is not None:
        content = call.finish(opened.answered, own=opened.request_id)
        await trio.lowlevel.checkpoint_if_cancelled()
        door.close_call(call)
        return results.answer(content)
    state = await call.ask(OpenTask(call.name, call.tool, opened.request_id))
    # This answer has no delivery: pending deliveries go with another one.
    door.deliveries.abandon(call.name, call.session_id)
    door.close_call(call)
    # A new task is always reported as working, even if it is already done.
    begun = task_forms.written(state, form) | {"status": TaskStatus.WORKING.value}
    return types.CallToolResult(content=[], _meta={_CARRIED: begun, _AT_ONCE: _words(waiting, opened.request_id)})


def refused(ctx: Context, params: types.CallToolRequestParams, why: IntercomError) -> types.CallToolResult:
    """Return the result of a failed tool call. Raises MCPError if a task was requested: the answer cannot be a result
    then."""
    if task_forms.asked_for(ctx, params):
        raise task_forms.error(why)
    return results.failure(why)


async def _get(ctx: Context, caller: Caller, params: _Named) -> dict[str, Any]:
    form, door = task_forms.spoken(ctx, *Form), _door(ctx)
    state = await _ask(door, caller, FindTask(params.task_id))
    told = task_forms.written(state, form)
    if form is Form.EXTENSION and state.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        # In this form a tool's error is a result.
        told |= {"status": TaskStatus.COMPLETED.value, "result": _dumped(await _outcome(ctx, caller, state))}
    return told


async def _result(ctx: Context, caller: Caller, params: _Named) -> dict[str, Any]:
    task_forms.spoken(ctx, Form.CORE)
    door = _door(ctx)
    state = await _ask(door, caller, FindTask(params.task_id))
    return {**_dumped(await _outcome(ctx, caller, state)), "_meta": {_RELATED: {"taskId": state.id}}}


async def _cancel(ctx: Context, caller: Caller, params: _Named) -> dict[str, Any]:
    form, door = task_forms.spoken(ctx, *Form), _door(ctx)
    try:
        state = await _ask(door, caller, CancelTask(caller.call_name or str(uuid.uuid4()), params.task_id))
    except IntercomError as late:
        if form is Form.EXTENSION and late.error_code == "invalid_state":
            # In this form a late cancellation is not an error.
            return {}
        raise
    return task_forms.written(state, form) if form is Form.CORE else {}


async def _update(ctx: Context, caller: Caller, params: _Answers) -> dict[str, Any]:
    task_forms.spoken(ctx, Form.EXTENSION)
    # Our tasks ask no questions, so the answers are ignored.
    await _ask(_door(ctx), caller, FindTask(params.task_id))
    return {}


async def _list(ctx: Context, caller: Caller, params: types.PaginatedRequestParams) -> dict[str, Any]:
    form = task_forms.spoken(ctx, Form.CORE)
    found = await _ask(_door(ctx), caller, ListTasks(PAGE + 1, params.cursor))
    told: dict[str, Any] = {"tasks": [task_forms.written(state, form) for state in found[:PAGE]]}
    if len(found) > PAGE:
        told["nextCursor"] = found[PAGE - 1].id
    return told


async def _outcome(ctx: Context, caller: Caller, state: TaskState) -> types.CallToolResult:
    """Wait without limit for the result of the task's call; the client decides when to stop waiting."""
    door, exchange = came_by(ctx.request)
    call = await door.open_call(BY_NAME[state.tool], None, caller)
    call.slice_seconds = None
    if exchange is not None:
        exchange.begun(call, ctx.request_id)
    try:
        answered = await call.wait(AwaitTask(call.name, state.id, call.ticket), state.request_id)
        if answered is None:
            # The client is gone, or the server stops.
            raise IntercomError("the server is restarting; nothing was lost, ask again", code="unavailable")
        content = call.finish(answered, own=state.request_id)
        # As in a plain tool call: a call cancelled at this moment gets no answer.
        await trio.lowlevel.checkpoint_if_cancelled()
        door.close_call(call)
        return results.answer(content)
    except BaseException as failed:
        door.deliveries.abandon(call.name, call.session_id)
        if isinstance(failed, IntercomError) and failed.error_code not in (
            "task_cancelled",
            "task_not_found",
            "unavailable",
        ):
            return results.failure(failed)
        raise
    finally:
        if exchange is not None:
            exchange.answered()


async def _ask(door: Door, caller: Caller, question: Request[Any]) -> Any:
    if door.nameless:
        raise NotFound("a task can be asked after by an agent that is known again: name it in the URL", code=_UNKNOWN)
    session_id = await door.session(caller)
    tracing.note(session_id)
    answer = await ask(door.system.named(f"session/{session_id}"), question, timeout=_SECONDS, retry=True)
    if isinstance(answer, TaskState):
        tracing.note(request_id=answer.request_id)
    return answer


async def _unwrap(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Convert a task to the shape that the SDK lacks, and declare tasks to clients of the version with core tasks."""
    answer = await call_next(ctx)
    if not isinstance(answer, dict):
        return answer
    if ctx.method == "initialize" and answer.get("protocolVersion") == task_forms.REVISION:
        return {**answer, "capabilities": {**answer["capabilities"], "tasks": task_forms.CAPABILITY}}
    meta = answer.get("_meta") if ctx.method == "tools/call" else None
    if not isinstance(meta, Mapping) or _CARRIED not in meta:
        return answer
    begun, rest = meta[_CARRIED], {key: value for key, value in meta.items() if key != _CARRIED}
    if ctx.protocol_version == task_forms.REVISION:
        return {"task": begun, "_meta": rest}
    return {"resultType": "task", **begun, "_meta": rest}


def _door(ctx: Context) -> Door:
    return came_by(ctx.request)[0]


def _words(waiting: Waiting, request_id: str) -> str:
    """Return the message that a model may see meanwhile."""
    return str(getattr(waiting.pending(request_id), "message", ""))


def _dumped(result: types.CallToolResult) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)
