"""The MCP server: the SDK's low-level server with our tools behind it, for both protocol versions.

One server serves all connections. The transport sets a message's request context to its `AgentConnection`. Over HTTP it
is the `PendingResponse`, or the HTTP request with that in its state.

The shim answers with them while no server is connected. `python -m intercom.agents.mcp_server` writes them into the
package; a test keeps the file equal to the live answers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import mcp_types as types
import trio
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from actors import Busy, Down, NotRunning, ask
from intercom._version import __version__
from intercom.agents import call as agents_call
from intercom.agents import mcp_tasks, schemas
from intercom.agents.call import paused_content
from intercom.agents.call_names import CALL_KEY
from intercom.agents.connection import AgentConnection, Caller
from intercom.agents.pending_response import answering, came_by
from intercom.agents.permission_prompt import PERMISSION_PROMPT, permission_prompt
from intercom.agents.shim.shipped import HANDSHAKE_VERSIONS, MODERN_VERSION, VERSION_KEY
from intercom.model import limits
from intercom.model.config import Config
from intercom.model.errors import IntercomError, Paused
from intercom.model.metrics import Measured, ToolCalled, unmeasured
from intercom.sessions.context import channel_of
from intercom.sessions.messages import CHANNEL_ACTOR, Describe, History, Message, ReadRecent
from intercom.sessions.tools.table import BY_NAME, TOOLS
from intercom.sessions.tools.tool import Tool

TEMPLATE = types.ResourceTemplate(
    uri_template="slack://channel/{id}/recent{?limit}",
    name="recent-messages",
    title="Recent channel messages",
    description="The latest messages of the Slack channel where this session is shown, newest first; limit takes 1 to"
    " 100 (20). No other channel can be read.",
    mime_type="application/json",
)
DEFAULT_LIMIT, MOST = 20, 100
#: Time limit of the chat, in seconds.
_SECONDS = 20.0
_NOT_SET_UP = "slack: slack is not set up on this server, so there is no channel to read; ask with transmit instead"


async def read(connection: AgentConnection, caller: Caller, uri: str) -> types.ReadResourceResult:
    """Return the channel's latest messages. Raises MCPError with a message that says what to do."""
    wanted, limit = parse(uri)
    try:
        session_id = await connection.session(caller)
        session = await ask(connection.system.named(f"session/{session_id}"), Describe(), timeout=_SECONDS, retry=True)
        channel = channel_of(connection.config, session)
        if channel is None:
            raise MCPError(code=types.INTERNAL_ERROR, message=_NOT_SET_UP)
        if wanted != channel:
            raise MCPError(
                code=types.INVALID_PARAMS,
                message=f"slack: this session is shown in the channel {channel}, and only that one can be read",
            )
        found = await ask(connection.system.named(CHANNEL_ACTOR), ReadRecent(channel, limit), timeout=_SECONDS)
    except IntercomError as refused:
        raise MCPError(code=types.INTERNAL_ERROR, message=f"{refused.error_code}: {refused.message}") from None
    except NotRunning:
        raise MCPError(
            code=types.INTERNAL_ERROR,
            message="slack: the server is not in slack (agent-intercom doctor says why); ask with transmit instead",
        ) from None
    except (Busy, Down, trio.TooSlowError):
        raise MCPError(
            code=types.INTERNAL_ERROR,
            message="slack: the channel could not be read just now; read it again in a moment",
        ) from None
    text = json.dumps(as_json(found), ensure_ascii=False)
    contents = types.TextResourceContents(uri=uri, mime_type="application/json", text=text)
    return types.ReadResourceResult(contents=[contents])


def parse(uri: str) -> tuple[str, int]:
    """Return the channel and the limit (clamped to 1 to 100) of a URI. Raises MCPError for any other URI."""
    try:
        parts = urlsplit(uri)
        asked = parse_qs(parts.query, keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise _not_found() from None
    steps = parts.path.split("/")
    if (parts.scheme, parts.netloc, len(steps)) != ("slack", "channel", 3) or not steps[1] or steps[2] != "recent":
        raise _not_found()
    if asked.keys() - {"limit"}:
        raise MCPError(code=types.INVALID_PARAMS, message="only limit can be asked of a channel's recent messages")
    return steps[1], _limit(asked.get("limit", [str(DEFAULT_LIMIT)])[-1])


def as_json(found: History) -> dict[str, Any]:
    """Return the history in the agents' format."""
    return {"messages": [_message(each) for each in found.messages], "has_more": found.has_more}


def _message(message: Message) -> dict[str, str]:
    said = {"ts": message.ts, "user": message.user, "text": message.text}
    return said if message.thread_ts is None else {**said, "thread_ts": message.thread_ts}


def _limit(text: str) -> int:
    try:
        return min(MOST, max(1, int(text)))
    except ValueError:
        raise MCPError(code=types.INVALID_PARAMS, message=f"limit must be a whole number, 1 to {MOST}") from None


def _not_found() -> MCPError:
    return MCPError(code=types.INVALID_PARAMS, message="not found: no resource has this uri; see the templates")


log = logging.getLogger("intercom.agents")

Context = ServerRequestContext[Any, Any]
Offered = dict[str, Tool]

NAME = "agent-intercom"
INSTRUCTIONS = """\
A person is responsible for what you change here, and answers through this server. Call reboot first. Before you write \
files, call check_clearance and, once approved, check_diff; do not write them yourself. Ask with transmit, tell with \
broadcast, and call standby when you have nothing left to do. Any result may carry late_verdicts or instructions: \
follow them. A result with status "paused" means that a person has paused you: do nothing but call again."""

#: Time limit of a client's answer about its workspace roots, in seconds.
_ROOTS_SECONDS = 3.0


def build(config: Config, measured: Measured = unmeasured) -> Server[Any]:
    """Build the server for this configuration. `measured` gets every finished tool call. Run its connections with an
    `AgentConnection` as each message's request context."""
    offered = offer(config)
    taken = {tool.name: tool.input_schema for tool in listed(offered)}
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
        get_tool_input_schema=taken.get,
    )
    mcp_tasks.serve(server, _caller)
    return server


def offer(config: Config) -> Offered:
    """Return the offered tools by name: the nine, and those that the configuration enables."""
    offered = {tool.name: tool for tool in TOOLS}
    if config.mcp.legacy_tool_names:
        offered |= {tool.legacy_name: tool for tool in TOOLS if tool.legacy_name is not None}
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
        input_schema=schemas.of(tool.takes),
        output_schema=schemas.of_answer(tool.result),
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
        outcome = agents_call.outcome_of(result)
        return result
    except MCPError as refused:
        outcome = mcp_tasks.code_of(refused)
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
        if isinstance(failed, Paused) and not mcp_tasks.asked_for(ctx, params):
            return agents_call.answer(paused_content(params.name, failed))
        return mcp_tasks.refused(ctx, params, agents_call.refusal(failed, f"the tool {params.name}"))


async def _run(ctx: Context, params: types.CallToolRequestParams, offered: Offered) -> types.CallToolResult:
    tool = offered.get(params.name)
    if tool is None:
        raise IntercomError(
            f"no tool is called {params.name[:80]!r}; there are: {', '.join(BY_NAME)}", code="unknown_tool"
        )
    connection, _ = came_by(ctx)
    # An anonymous client cannot ask for a task later.
    form = None if connection.anonymous else mcp_tasks.wanted(ctx, params, tool)
    given = schemas.read(tool.takes, params.arguments)
    async with answering(ctx, tool, given, _caller(ctx)) as call:
        if form is not None:
            return await mcp_tasks.begin(form, call)
        answered = await (permission_prompt(call) if tool is PERMISSION_PROMPT else call.run())
    return agents_call.result(answered)


def _caller(ctx: Context) -> Caller:
    meta: dict[str, Any] = dict(ctx.meta or {})
    client = ctx.session.client_params
    thread = meta.get("threadId")
    # Over HTTP there is no shim that could have named the call.
    name = meta.get(CALL_KEY) if isinstance(ctx.request, AgentConnection) else None

    async def progress(elapsed: float, message: str) -> None:
        await ctx.session.report_progress(elapsed, None, message)

    return Caller(
        # The name is only displayed, and compared with known clients, whose names are short.
        client_name=client.client_info.name[: limits.NAME] if client is not None else None,
        thread=_bounded(thread) if isinstance(thread, str) and thread else None,
        call_name=name if isinstance(name, str) and name else None,
        roots=partial(_roots, ctx),
        progress=progress if meta.get("progress_token") is not None else None,
    )


def _bounded(name: str) -> str:
    """Return a client's name for a conversation; a hash of it if it is too long to store."""
    if len(name) <= limits.NAME:
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
    return types.ListResourceTemplatesResult(resource_templates=[TEMPLATE])


async def _read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    connection, _ = came_by(ctx)
    return await read(connection, _caller(ctx), str(params.uri))


FILE = Path(__file__).with_name("handshake.json")
_LISTS = ("tools/list", "resources/list", "resources/templates/list")
_CLIENT = {"name": "snapshot", "version": "1"}
_MODERN_META = {
    VERSION_KEY: MODERN_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": _CLIENT,
}


async def take(config: Config | None = None) -> dict[str, dict[str, Any]]:
    """Ask a server of this configuration. Returns the content of handshake.json."""
    handshake: list[tuple[str, dict[str, Any]]] = [
        (
            "initialize",
            {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": _CLIENT},
        ),
        *((method, {}) for method in _LISTS),
    ]
    modern = [(method, {"_meta": _MODERN_META}) for method in ("server/discover", *_LISTS)]
    return {
        HANDSHAKE_VERSIONS[-1]: await _ask(config or Config(), handshake),
        MODERN_VERSION: await _ask(config or Config(), modern),
    }


async def _ask(config: Config, requests: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    server = build(config)
    to_server, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    outbox, answers = anyio.create_memory_object_stream[SessionMessage](8)
    results: dict[str, Any] = {}
    async with trio.open_nursery() as nursery, to_server, answers:
        nursery.start_soon(server.run, inbox, outbox, server.create_initialization_options())
        for number, (method, params) in enumerate(requests):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            await to_server.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(request, by_name=False)))
            answer = (await answers.receive()).message
            said = json.loads(answer.model_dump_json(by_alias=True, exclude_unset=True))
            results[method] = said["result"]
            if method == "initialize":
                told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                await to_server.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(told, by_name=False)))
        nursery.cancel_scope.cancel()
    return results


if __name__ == "__main__":
    FILE.write_text(json.dumps(trio.run(take), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
