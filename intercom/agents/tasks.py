"""MCP tasks: a client asks after a waiting call, instead of keeping it open. Two forms, of the two protocol eras.

- 2025-11-25: the client asks for a task with the call (`task`), then uses `tasks/get`, `tasks/result` (which waits),
  `tasks/list` and `tasks/cancel`.
- 2026-07-28, the extension `io.modelcontextprotocol/tasks`: a client that declares it is answered with a task whenever
  the call would wait; `tasks/get` carries the result. (`tasks/update` answers questions, of which we have none.)

A task survives the server: it is a row beside its request.
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
#: How many tasks a page of `tasks/list` holds.
PAGE = 50

_RELATED = "io.modelcontextprotocol/related-task"
_AT_ONCE = "io.modelcontextprotocol/model-immediate-response"
#: Where a task stands on its way from the tool call's handler to the answer, whose shape the SDK does not let pass.
_CARRIED = "intercom/task"
#: How long an answer about a task may take, in seconds.
_SECONDS = 60.0


class _Named(types.RequestParams):
    task_id: str = Field(min_length=1, max_length=200)


class _Answers(_Named):
    input_responses: dict[str, Any]


def serve(server: Server[Any], caller_of: Callable[[Context], Caller]) -> None:
    """Let this server answer what clients ask of tasks, and declare that it does."""
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
    """The form in which this tool call is to be answered with a task; None for a plain call. Raises MCPError where a
    task is asked for of a tool that does not wait."""
    if task_forms.asked_for(ctx, params):
        if tool.waiting is None:
            raise MCPError(code=types.METHOD_NOT_FOUND, message=f"{tool.name} answers at once: call it without a task")
        return Form.CORE
    return Form.EXTENSION if tool.waiting is not None and task_forms.takes_tasks(ctx) else None


async def begin(form: Form, door: Door, call: Call, waiting: Waiting, given: Any) -> types.CallToolResult:
    """Put the request on record, and a task that asks after it; what needs no waiting is answered at once where the
    form allows that."""
    opened = await waiting.open(call, given)
    tracing.note(request_id=opened.request_id)
    if form is Form.EXTENSION and opened.answered is not None:
        content = call.finish(opened.answered, own=opened.request_id)
        await trio.lowlevel.checkpoint_if_cancelled()
        door.close_call(call)
        return results.answer(content)
    state = await call.ask(OpenTask(call.name, call.tool, opened.request_id))
    # This answer carries no verdict: what was to ride on it rides on another.
    door.deliveries.abandon(call.name, call.session_id)
    door.close_call(call)
    # A task begins as working, whatever has become of it by now.
    begun = task_forms.written(state, form) | {"status": TaskStatus.WORKING.value}
    return types.CallToolResult(content=[], _meta={_CARRIED: begun, _AT_ONCE: _words(waiting, opened.request_id)})


def refused(ctx: Context, params: types.CallToolRequestParams, why: IntercomError) -> types.CallToolResult:
    """The answer to a tool call that failed. Raises MCPError where a task was asked for: the answer can then be no
    result."""
    if task_forms.asked_for(ctx, params):
        raise task_forms.error(why)
    return results.failure(why)


async def _get(ctx: Context, caller: Caller, params: _Named) -> dict[str, Any]:
    form, door = task_forms.spoken(ctx, *Form), _door(ctx)
    state = await _ask(door, caller, FindTask(params.task_id))
    told = task_forms.written(state, form)
    if form is Form.EXTENSION and state.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        # An error of the tool's is a result there.
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
            # There it is a wish, and one that comes too late is not refused.
            return {}
        raise
    return task_forms.written(state, form) if form is Form.CORE else {}


async def _update(ctx: Context, caller: Caller, params: _Answers) -> dict[str, Any]:
    task_forms.spoken(ctx, Form.EXTENSION)
    # No task of ours asks anything, so whatever is answered here was never asked.
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
    """What the task's call would have been answered, waited for without an end: it is the client's to stop waiting."""
    door, exchange = came_by(ctx.request)
    call = await door.open_call(BY_NAME[state.tool], None, caller)
    call.slice_seconds = None
    if exchange is not None:
        exchange.begun(call, ctx.request_id)
    try:
        answered = await call.wait(AwaitTask(call.name, state.id, call.ticket), state.request_id)
        if answered is None:
            # Nobody is there to wait for it, or the server is leaving.
            raise IntercomError("the server is restarting; nothing was lost, ask again", code="unavailable")
        content = call.finish(answered, own=state.request_id)
        # As with a tool's own call: cancelled in this very moment, it is not answered.
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
    """Give a client its task, in the shape that the SDK has none for; and declare tasks to clients of the one revision
    that has them at its core."""
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
    """What a model may be told meanwhile."""
    return str(getattr(waiting.pending(request_id), "message", ""))


def _dumped(result: types.CallToolResult) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)
