"""The MCP server: the SDK's low-level server with our tools, prompts, resources and tasks, for both protocol versions.

One server serves all connections. The transport sets a message's request context to its `AgentConnection`. Over HTTP it
is the `PendingResponse`, or the HTTP request with that in its state.

MCP tasks let a client ask after a waiting call instead of keeping it open. There are two forms, one of each protocol
version:

- 2025-11-25: the call requests a task (`task`). The client then uses `tasks/get`, `tasks/result` (which waits),
  `tasks/list` and `tasks/cancel`.
- 2026-07-28, the extension `io.modelcontextprotocol/tasks`: a client that declares it gets a task for each call that
  would wait. `tasks/get` returns the result. (`tasks/update` answers questions, which our tasks do not ask.)

A task survives the server: it is a database row beside its request.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from attrs import evolve
from mcp.server import Server
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
from pydantic import Field

from actors import Request, ask
from intercom._version import __version__
from intercom.agents import argument_schemas, icons, prompts, resources, tool_call
from intercom.agents.agent_connection import AgentConnection, Caller, OfTask
from intercom.agents.clients import TASKS_EXTENSION, offers_tasks, without_tasks
from intercom.agents.hook_server import PERMISSION_PROMPT, permission_prompt
from intercom.agents.mcp_request import caller_of, connection_and_response, connection_of
from intercom.agents.shim.relay import client_named
from intercom.agents.tool_call import Dialog, ToolCall, error_content, paused_content
from intercom.model import clock
from intercom.model.config import Config
from intercom.model.errors import IntercomError, NotFound, Paused
from intercom.model.json_types import JsonObject
from intercom.model.metrics import Measured, ToolCalled, unmeasured
from intercom.model.request import TaskState, TaskStatus
from intercom.sessions.messages import (
    CancelTask,
    FindTask,
    ListTasks,
    OpenTask,
    Undeliver,
)
from intercom.sessions.tools.tool import Tool
from intercom.sessions.tools.tool_table import BY_NAME, TOOLS

if TYPE_CHECKING:
    from intercom.agents.gateway.client_peer import Attend
    from intercom.agents.rooms.mcp import RoomTools
    from intercom.gateway.service import Gateway

log = logging.getLogger("intercom.agents")

R = TypeVar("R")
Context = ServerRequestContext[Any, Any]
Offered = dict[str, Tool]
#: Makes the dialog of a call in this session, if its client has dialogs.
Dialogs = Callable[[Context, str], Dialog | None]

NAME = "agent-intercom"
#: What clients show of the server. It is in the handshake only: the SDK puts its own record of the server into every
#: result of protocol version 2026-07-28.
_SHOWN: JsonObject = {
    "title": "Intercom",
    "description": "Asks the person responsible before an agent changes anything.",
    "icons": [icons.SERVER.model_dump(by_alias=True, mode="json", exclude_none=True)],
}
INSTRUCTIONS = """\
A person is responsible for what you change here, and answers through this server. Call reboot first: it tells you \
what you left. Before you write files, call check_clearance and, once approved, check_diff, which writes exactly what \
was approved; do not write them yourself. Ask with transmit, tell with broadcast, show with ping that you are alive, \
and call standby when you have nothing left to do. Status "pending" is no answer: call the same tool again with its \
request_id. Any result may carry late_verdicts or instructions: follow them. A result with status "paused" means that \
a person has paused you: do nothing but call again. intercom://session/pending and intercom://session/history hold \
your own requests."""


def build(
    config: Config,
    measured: Measured = unmeasured,
    rooms: RoomTools | None = None,
    gateway: Gateway | None = None,
    attend: Attend | None = None,
) -> Server[Any]:
    """Build the server for this configuration. `measured` gets every finished tool call. With `rooms`, it offers their
    tools too, with `gateway` those of downstreams. With `attend`, what a call waits for is also shown to the user of
    its client. Run its connections with an `AgentConnection` as each message's request context."""
    dialogs: Dialogs | None = None
    if attend is not None:
        # Imported lazily, as the gateway is: most servers ask no client's user.
        from intercom.agents.gateway.client_peer import dialog_of

        dialogs = partial(dialog_of, attend=attend)
    offered = offer(config)
    of_rooms = () if rooms is None else rooms.listed
    taken = {tool.name: tool.input_schema for tool in (*listed(offered), *of_rooms)}
    server: Server[Any] = Server(
        NAME,
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=partial(_list_tools, offered=offered, of_rooms=of_rooms),
        on_call_tool=partial(_call_tool, offered=offered, measured=measured, rooms=rooms, dialogs=dialogs),
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        # Needed for every call over HTTP; without this the SDK would list all tools.
        get_tool_input_schema=taken.get,
    )
    for method, takes, answer in (
        ("tasks/get", _Named, _get),
        ("tasks/result", _Named, _result),
        ("tasks/cancel", _Named, _cancel),
        ("tasks/update", _Answers, _update),
        ("tasks/list", types.PaginatedRequestParams, _list),
    ):
        server.add_request_handler(method, takes, partial(_answered, answer))
    server.extensions[EXTENSION] = {}
    # The SDK's own one makes spans.
    server.middleware[:] = [*(partial(_if_traced, each) for each in server.middleware), _unwrap]
    if gateway is not None:
        # Imported lazily: most servers have no gateway.
        from intercom.agents.gateway.middleware import GatewayMiddleware

        server.middleware.append(GatewayMiddleware(gateway, server, measured))
    return server


def offer(config: Config) -> Offered:
    """Return the offered tools by name: all of the table, and those that the configuration enables."""
    offered = {tool.name: tool for tool in TOOLS}
    if config.mcp.legacy_tool_names:
        offered |= {tool.legacy_name: tool for tool in TOOLS if tool.legacy_name is not None}
    if config.mcp.permission_prompt_tool:
        offered[PERMISSION_PROMPT.name] = PERMISSION_PROMPT
    return offered


#: The names that prompts of downstreams must not have.
OWN_PROMPTS = frozenset(prompts.Prompt)


def own_tools(config: Config) -> frozenset[str]:
    """Return the names that tools of downstreams must not have: those of all our own, also where they are not offered
    now."""
    from intercom.agents.gateway.search_tools import NAMES as OF_SEARCH
    from intercom.rooms.tools.room_tool_table import BY_NAME as OF_ROOMS

    return frozenset((*offer(config), PERMISSION_PROMPT.name, *OF_ROOMS, *OF_SEARCH))


def listed(offered: Offered) -> list[types.Tool]:
    """Return the tools as clients see them."""
    return [_listed(tool, name) for name, tool in offered.items()]


@cache
def _listed(tool: Tool, name: str) -> types.Tool:
    return types.Tool(
        name=name,
        title=tool.title,
        description=tool.description,
        input_schema=argument_schemas.portable(argument_schemas.of(tool.takes)),
        output_schema=argument_schemas.portable(argument_schemas.of_answer(tool.result)),
        icons=icons.of(tool.name),
        execution=types.ToolExecution(task_support="optional") if tool.offers_tasks else None,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.hints.read_only,
            destructive_hint=tool.hints.destructive,
            idempotent_hint=tool.hints.idempotent,
            open_world_hint=tool.hints.open_world,
        ),
    )


async def _list_tools(
    _ctx: Context, _params: types.PaginatedRequestParams | None, *, offered: Offered, of_rooms: Sequence[types.Tool]
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[*listed(offered), *of_rooms])


async def _call_tool(
    ctx: Context,
    params: types.CallToolRequestParams,
    *,
    offered: Offered,
    measured: Measured,
    rooms: RoomTools | None = None,
    dialogs: Dialogs | None = None,
) -> types.CallToolResult:
    """Carry out a tool call, and measure it. A failure is a result too, unless the call asks for a task."""
    if rooms is not None and rooms.has(params.name):
        # Clients choose the names of their calls: a call of one agent is never that of another.
        connection, caller = connection_of(ctx), caller_of(ctx)
        agent, name = connection.key, caller.call_name
        act = None if name is None else f"{len(agent)}:{agent}/{name}"
        # An anonymous client has another session with each call: none of them made its earlier ones.
        session = None if connection.anonymous else partial(connection.session, caller)
        return await rooms.call(ctx, params, act, session)
    began = time.monotonic()
    outcome = "cancelled"
    tool = offered.get(params.name)
    try:
        try:
            result = await _run(ctx, params, tool, dialogs)
        except Exception as failed:
            if isinstance(failed, MCPError):
                raise
            result = _failure(ctx, params, failed)
        outcome = tool_call.outcome_of(result)
        return result
    except MCPError as refused:
        outcome = code_of(refused)
        raise
    finally:
        measured(ToolCalled(None if tool is None else tool.name, outcome, time.monotonic() - began))


def _failure(ctx: Context, params: types.CallToolRequestParams, failed: Exception) -> types.CallToolResult:
    """Return the result of a failed tool call. Raises MCPError if a task was requested: the answer cannot be a result
    then."""
    refused = tool_call.refusal(failed, f"the tool {params.name}")
    if asked_for(ctx, params):
        raise error(refused)
    if isinstance(failed, Paused):
        return tool_call.answer(paused_content(params.name, failed))
    return tool_call.failure(refused)


async def _run(
    ctx: Context, params: types.CallToolRequestParams, tool: Tool | None, dialogs: Dialogs | None
) -> types.CallToolResult:
    if tool is None:
        raise IntercomError(
            f"no tool is called {params.name[:80]!r}; there are: {', '.join(BY_NAME)}", code="unknown_tool"
        )
    connection, response = connection_and_response(ctx)
    # An anonymous client cannot ask for a task later.
    form = None if connection.anonymous else wanted(ctx, params, tool)
    given = argument_schemas.read(tool.takes, params.arguments)
    async with connection.answering(tool, given, caller_of(ctx), ctx.request_id, response) as call:
        if form is not None:
            return await begin(form, call)
        call.dialog = None if dialogs is None else dialogs(ctx, call.session_id)
        answered = await (permission_prompt(call) if tool is PERMISSION_PROMPT else call.run())
        cut_off = connection.cut_calls.take(call, answered.late_verdicts)
    return tool_call.result(answered, cut_off)


async def _list_resources(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[*resources.LISTED])


async def _list_templates(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=[resources.TEMPLATE])


async def _read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return await resources.read(connection_of(ctx), caller_of(ctx), str(params.uri))


async def _list_prompts(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[*prompts.LISTED])


async def _get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    return await prompts.get(connection_of(ctx), caller_of(ctx), params.name, params.arguments or {})


# --- tasks -----------------------------------------------------------------------------------------------------------

EXTENSION = TASKS_EXTENSION
REVISION = "2025-11-25"
#: The capability that a server of the core form declares.
CAPABILITY: JsonObject = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}

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


def require_form(ctx: Context, *forms: Form) -> Form:
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


def written(state: TaskState, form: Form) -> JsonObject:
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


async def _answered(
    answer: Callable[[Context, Caller, Any], Awaitable[JsonObject]], ctx: Context, params: Any
) -> HandlerResult:
    try:
        return await answer(ctx, caller_of(ctx), params)
    except MCPError:
        raise
    except Exception as failed:
        raise error(tool_call.refusal(failed, ctx.method)) from None


def wanted(ctx: Context, params: types.CallToolRequestParams, tool: Tool) -> Form | None:
    """Return the form of the task for this tool call; None for a plain call. Raises MCPError if a task is requested for
    a tool that does not wait."""
    if asked_for(ctx, params):
        if not tool.offers_tasks:
            raise MCPError(code=types.METHOD_NOT_FOUND, message=f"{tool.name} answers at once: call it without a task")
        return Form.CORE
    wants = tool.offers_tasks and takes_tasks(ctx) and offers_tasks(caller_of(ctx).client_name)
    return Form.EXTENSION if wants else None


async def begin(form: Form, call: ToolCall) -> types.CallToolResult:
    """Open the request and its task. If the form allows it, a call that needs no wait is answered at once."""
    opened = await call.ask(evolve(call.given, call=call.name))
    call.request_id = opened.request_id
    tool_call.note(request_id=opened.request_id)
    if form is Form.EXTENSION and opened.answered is not None:
        return tool_call.result(call.finish(opened.answered, opened.request_id))
    state = await call.ask(OpenTask(call.name, call.tool.name, opened.request_id))
    # This answer carries nothing: pending deliveries go with another one.
    call.session.tell(Undeliver((call.name,)))
    # A new task is always reported as working, even if it is already done.
    begun = written(state, form) | {"status": TaskStatus.WORKING.value}
    return types.CallToolResult(content=[], _meta={_CARRIED: begun, _AT_ONCE: _meanwhile(call.tool, opened.request_id)})


async def _get(ctx: Context, caller: Caller, params: _Named) -> JsonObject:
    form, connection = require_form(ctx, *Form), connection_of(ctx)
    state = await _ask(connection, caller, FindTask(params.task_id), params.task_id)
    told = written(state, form)
    if form is Form.EXTENSION and state.status in (TaskStatus.COMPLETED, TaskStatus.FAILED):
        # In this form a tool's error is a result.
        told |= {"status": TaskStatus.COMPLETED.value, "result": _dumped(await _outcome(ctx, caller, state))}
    return told


async def _result(ctx: Context, caller: Caller, params: _Named) -> JsonObject:
    require_form(ctx, Form.CORE)
    connection = connection_of(ctx)
    state = await _ask(connection, caller, FindTask(params.task_id), params.task_id)
    return {**_dumped(await _outcome(ctx, caller, state)), "_meta": {_RELATED: {"taskId": state.id}}}


async def _cancel(ctx: Context, caller: Caller, params: _Named) -> JsonObject:
    form, connection = require_form(ctx, *Form), connection_of(ctx)
    try:
        asked = CancelTask(caller.call_name or str(uuid.uuid4()), params.task_id)
        state = await _ask(connection, caller, asked, params.task_id)
    except IntercomError as late:
        if form is Form.EXTENSION and late.error_code == "invalid_state":
            # In this form a late cancellation is not an error.
            return {}
        raise
    return written(state, form) if form is Form.CORE else {}


async def _update(ctx: Context, caller: Caller, params: _Answers) -> JsonObject:
    require_form(ctx, Form.EXTENSION)
    # Our tasks ask no questions, so the answers are ignored.
    await _ask(connection_of(ctx), caller, FindTask(params.task_id), params.task_id)
    return {}


async def _list(ctx: Context, caller: Caller, params: types.PaginatedRequestParams) -> JsonObject:
    form = require_form(ctx, Form.CORE)
    found = await _ask(connection_of(ctx), caller, ListTasks(PAGE + 1, params.cursor))
    told: JsonObject = {"tasks": [written(state, form) for state in found[:PAGE]]}
    if len(found) > PAGE:
        told["nextCursor"] = found[PAGE - 1].id
    return told


async def _outcome(ctx: Context, caller: Caller, state: TaskState) -> types.CallToolResult:
    """Wait without limit for the result of the task's call; the client decides when to stop waiting."""
    try:
        connection, response = connection_and_response(ctx)
        tool, task = BY_NAME[state.tool], OfTask(state.id)
        async with connection.answering(tool, task, caller, ctx.request_id, response) as call:
            call.call_wait_seconds = None
            answered = await call.wait(state.request_id, state.id)
            if answered is None:
                # The client is gone, or the server stops.
                raise IntercomError("the server is restarting; nothing was lost, ask again", code="unavailable")
            answered = call.finish(answered, state.request_id)
    except IntercomError as failed:
        if failed.error_code in ("task_cancelled", "task_not_found", "unavailable"):
            raise
        return tool_call.failure(failed)
    return tool_call.result(answered)


async def _ask(connection: AgentConnection, caller: Caller, question: Request[R], task: str | None = None) -> R:
    if connection.anonymous:
        raise NotFound("only an agent with a key can poll a task: put ?agent=KEY into the URL", code=_UNKNOWN)
    session_id = await connection.session(caller, None if task is None else OfTask(task))
    tool_call.note(session_id)
    answer = await ask(connection.system.named(f"session/{session_id}"), question, timeout=_SECONDS, retry=True)
    if isinstance(answer, TaskState):
        tool_call.note(request_id=answer.request_id)
    return answer


async def _if_traced(spans: ServerMiddleware[object], ctx: Context, call_next: CallNext) -> HandlerResult:
    """Make a span of a message, if a program has set up OpenTelemetry. Otherwise nobody would get it."""
    if isinstance(get_tracer_provider(), ProxyTracerProvider):
        return await call_next(ctx)
    return await spans(ctx, call_next)


async def _unwrap(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Convert a task to the shape that the SDK lacks, declare tasks to clients of the version with core tasks, and say
    in the handshake what clients show of the server. Handshake and tools are without tasks for clients that are offered
    none."""
    answer = _shaped(ctx, await call_next(ctx))
    if ctx.method in ("initialize", "server/discover", "tools/list") and isinstance(answer, dict):
        # Before the answer to `initialize` the session does not know the client yet.
        client_name = caller_of(ctx).client_name or client_named(ctx.params)
        return answer if offers_tasks(client_name) else without_tasks(answer)
    return answer


def _shaped(ctx: Context, answer: HandlerResult) -> HandlerResult:
    if not isinstance(answer, dict):
        return answer
    if ctx.method == "initialize":
        shown = {**answer, "serverInfo": {**answer["serverInfo"], **_SHOWN}}
        if answer.get("protocolVersion") == REVISION:
            shown["capabilities"] = {**answer["capabilities"], "tasks": CAPABILITY}
        return shown
    if ctx.method == "server/discover":
        stamp = answer["_meta"]
        return {
            **answer,
            "_meta": {**stamp, types.SERVER_INFO_META_KEY: {**stamp[types.SERVER_INFO_META_KEY], **_SHOWN}},
        }
    meta = answer.get("_meta") if ctx.method == "tools/call" else None
    if not isinstance(meta, Mapping) or _CARRIED not in meta:
        return answer
    begun, rest = meta[_CARRIED], {key: value for key, value in meta.items() if key != _CARRIED}
    if ctx.protocol_version == REVISION:
        return {"task": begun, "_meta": rest}
    return {"resultType": "task", **begun, "_meta": rest}


def _meanwhile(tool: Tool, request_id: str) -> str:
    """Return the message that a model may see meanwhile."""
    return "" if tool.pending is None else str(getattr(tool.pending(request_id), "message", ""))


def _dumped(result: types.CallToolResult) -> JsonObject:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)
