"""The MCP server: the SDK's low-level server with our tools, for both kinds of protocol versions.

One server serves all connections. The transport sets a message's request context to the connection's `Door`. Over HTTP
it is the pending response (`Exchange`), or the HTTP request with it in its state.
"""

from __future__ import annotations

import hashlib
import logging
import time
from functools import partial
from typing import Any

import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from intercom._version import __version__
from intercom.agents import arguments, recent, results, task_forms, tasks, tracing
from intercom.agents.call import paused_content
from intercom.agents.call_names import CALL_KEY
from intercom.agents.door import Caller, Door
from intercom.agents.exchange import came_by
from intercom.agents.tools import BY_NAME, TOOLS
from intercom.agents.tools.permission import PERMISSION_PROMPT
from intercom.agents.tools.tool import Tool
from intercom.model import text_limits
from intercom.model.config import Config
from intercom.model.errors import IntercomError, Paused
from intercom.model.measure import Measured, ToolCalled, unmeasured

log = logging.getLogger("intercom.agents")

Context = ServerRequestContext[Any, Any]
Offered = dict[str, Tool]

NAME = "agent-intercom"
INSTRUCTIONS = """\
A person is responsible for what you change here, and answers through this server. Call reboot first. Before you write \
files, call check_clearance and, once approved, check_diff; do not write them yourself. Ask with transmit, tell with \
broadcast, and call standby when you have nothing left to do. Any result may carry late_verdicts or instructions: heed \
them. A result with status "paused" means that a person holds you up: do nothing but call again."""

#: Time limit of a client's answer about its workspace roots, in seconds.
_ROOTS_SECONDS = 3.0


def build(config: Config, measured: Measured = unmeasured) -> Server[Any]:
    """Build the server for this configuration. `measured` gets every finished tool call. Run its connections with a
    `Door` as each message's request context."""
    offered = offer(config)
    schemas = {tool.name: tool.input_schema for tool in listed(offered)}
    server: Server[Any] = Server(
        NAME,
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=partial(_list_tools, offered=offered),
        on_call_tool=partial(_call_tool, offered=offered, measured=measured),
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read_resource,
        # Needed for every call over HTTP; without this the SDK would list all tools.
        get_tool_input_schema=schemas.get,
    )
    tasks.serve(server, _caller)
    return server


def offer(config: Config) -> Offered:
    """Return the offered tools by name: the nine, and those that the configuration enables."""
    offered = {tool.name: tool for tool in TOOLS}
    if config.mcp.legacy_tool_names:
        offered |= {tool.legacy_name: tool for tool in TOOLS}
    if config.mcp.permission_prompt_tool:
        offered[PERMISSION_PROMPT.name] = PERMISSION_PROMPT
    return offered


def listed(offered: Offered) -> list[types.Tool]:
    """Return the tools as clients see them."""
    return [_listed(tool, name) for name, tool in offered.items()]


def _listed(tool: Tool, name: str) -> types.Tool:
    return types.Tool(
        name=name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        execution=types.ToolExecution(task_support="optional") if tool.waiting is not None else None,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.hints.read_only,
            destructive_hint=tool.hints.destructive,
            idempotent_hint=tool.hints.idempotent,
            open_world_hint=tool.hints.open_world,
        ),
    )


async def _list_tools(
    _ctx: Context, _params: types.PaginatedRequestParams | None, *, offered: Offered
) -> types.ListToolsResult:
    return types.ListToolsResult(tools=listed(offered))


async def _call_tool(
    ctx: Context, params: types.CallToolRequestParams, *, offered: Offered, measured: Measured
) -> types.CallToolResult:
    began = time.monotonic()
    outcome = "cancelled"
    try:
        result = await _answer(ctx, params, offered)
        outcome = results.outcome(result)
        return result
    except MCPError as refused:
        outcome = task_forms.code_of(refused)
        raise
    finally:
        tool = offered.get(params.name)
        measured(ToolCalled(None if tool is None else tool.name, outcome, time.monotonic() - began))


async def _answer(ctx: Context, params: types.CallToolRequestParams, offered: Offered) -> types.CallToolResult:
    try:
        return await _run(ctx, params, offered)
    except MCPError:
        raise
    except Exception as failed:
        if isinstance(failed, Paused) and not task_forms.asked_for(ctx, params):
            return results.answer(paused_content(params.name, failed))
        return tasks.refused(ctx, params, results.refusal(failed, f"the tool {params.name}"))


async def _run(ctx: Context, params: types.CallToolRequestParams, offered: Offered) -> types.CallToolResult:
    tool = offered.get(params.name)
    if tool is None:
        raise IntercomError(
            f"no tool is called {params.name[:80]!r}; there are: {', '.join(BY_NAME)}", code="unknown_tool"
        )
    door, exchange = came_by(ctx.request)
    # An anonymous client cannot ask for a task later.
    form = None if door.nameless else tasks.wanted(ctx, params, tool)
    given = arguments.read(tool.takes, params.arguments)
    call = await door.open_call(tool, given, _caller(ctx))
    tracing.note(call.session_id, getattr(given, "request_id", None))
    if exchange is not None:
        exchange.begun(call, ctx.request_id)
    try:
        if form is not None and tool.waiting is not None:
            return await tasks.begin(form, door, call, tool.waiting, given)
        content = await tool.run(call, given)
        # The call may be cancelled just after its answer: the SDK then sends no result.
        await trio.lowlevel.checkpoint_if_cancelled()
        door.close_call(call)
        return results.answer(content)
    except BaseException:
        # No result is sent, so its pending deliveries stay pending.
        door.deliveries.abandon(call.name, call.session_id)
        raise
    finally:
        if exchange is not None:
            exchange.answered()


def _caller(ctx: Context) -> Caller:
    meta: dict[str, Any] = dict(ctx.meta or {})
    client = ctx.session.client_params
    thread = meta.get("threadId")
    # Over HTTP there is no shim that could have named the call.
    name = meta.get(CALL_KEY) if isinstance(ctx.request, Door) else None

    async def progress(elapsed: float, message: str) -> None:
        await ctx.session.report_progress(elapsed, None, message)

    return Caller(
        # The name is only displayed, and compared with known clients, whose names are short.
        client_name=client.client_info.name[: text_limits.NAME] if client is not None else None,
        thread=_bounded(thread) if isinstance(thread, str) and thread else None,
        call_name=name if isinstance(name, str) and name else None,
        roots=partial(_roots, ctx),
        progress=progress if meta.get("progress_token") is not None else None,
    )


def _bounded(name: str) -> str:
    """Return a client's name for a conversation; a hash of it if it is too long to store."""
    if len(name) <= text_limits.NAME:
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


async def _roots(ctx: Context) -> list[str]:
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.roots is None or not ctx.session.can_send_request:
        return []
    try:
        found = await ctx.session.send_request(
            types.ListRootsRequest(), types.ListRootsResult, request_read_timeout_seconds=_ROOTS_SECONDS
        )
    except Exception as fault:
        # A client without a valid answer still gets a workspace, from its directory.
        log.info("the client did not say what its roots are (%s)", type(fault).__name__)
        return []
    return [str(root.uri) for root in found.roots]


async def _list_resources(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[])


async def _list_templates(
    _ctx: Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=[recent.TEMPLATE])


async def _read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    door, _ = came_by(ctx.request)
    return await recent.read(door, _caller(ctx), str(params.uri))
