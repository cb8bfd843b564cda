"""/api/mcp: the rooms' tools over streamable HTTP, for both kinds of protocol versions.

It has no sessions of agents behind it: who calls is said by each call's `team_id`. So the HTTP sessions of the older
protocol versions only carry calls, and a client that returns opens a new one.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from http import HTTPStatus
from typing import Any

import mcp_types as types
import trio
from attrs import field, frozen
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import Message, Receive, Scope, Send

from intercom._version import __version__
from intercom.agents import argument_schemas
from intercom.agents.http import access_rules
from intercom.agents.rooms import room_call
from intercom.agents.rooms.room_call import RoomsDeps, Waits
from intercom.model.json_types import JsonObject
from intercom.model.metrics import Measured, ToolCalled
from intercom.model.room import RoomErrorCode, RoomRefused
from intercom.rooms.instructions import MCP_INSTRUCTIONS, SERVER_NAME
from intercom.rooms.tools import feed
from intercom.rooms.tools.room_tool_table import BY_NAME, TOOLS
from intercom.rooms.tools.tool import Answer, RoomTool
from intercom.web_server.http_request import Refusal, read_body, remote_of, wrong_method

PATH = "/api/mcp"
#: How long a client of an older protocol version may be silent before its HTTP session ends, in seconds.
IDLE_SECONDS = 1800.0
#: The most HTTP sessions at once.
MOST_SESSIONS = 10_000
#: The interval of progress reports of a waiting call, in seconds.
PROGRESS_SECONDS = 10.0

_CLIENT = "rooms_client"
Context = ServerRequestContext[Any, Any]


class Client:
    """The client of one HTTP request, in which one call may wait.

    In the older protocol versions, the SDK does not tell a call that its client is gone. So this does.
    """

    def __init__(self, remote: str, waits: Waits) -> None:
        self.remote = remote
        self._waits = waits
        self._waiting: trio.CancelScope | None = None
        self._is_gone = False

    def wait_in(self, scope: trio.CancelScope) -> None:
        """Note that the call waits in this scope, which is cancelled if the client goes or the server stops."""
        self._waiting = scope
        self._waits.add(scope)
        if self._is_gone:
            scope.cancel()

    def gone(self) -> None:
        """Note that the connection is closed."""
        self._is_gone = True
        if self._waiting is not None:
            self._waiting.cancel()

    def served(self) -> None:
        """Note that the request is over: its answer was sent, or its client is gone."""
        self.gone()
        if self._waiting is not None:
            self._waits.remove(self._waiting)


class RoomsMcp:
    """The ASGI application of /api/mcp. `run` must be active while it serves. `limit` is the largest request."""

    def __init__(self, deps: RoomsDeps, waits: Waits, measured: Measured, limit: int) -> None:
        self._limit = limit
        self._waits = waits
        self._manager = StreamableHTTPSessionManager(
            build(deps, measured), session_idle_timeout=IDLE_SECONDS, max_sessions=MOST_SESSIONS
        )
        # Without the SDK's size limit, which copies each request: requests are read whole before they come here.
        self._application = self._manager.asgi_app.app

    def run(self) -> AbstractAsyncContextManager[None]:
        """Hold the HTTP sessions while the block runs."""
        return self._manager.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method not in ("GET", "POST", "DELETE"):
            raise wrong_method(PATH, "POST", "GET", "DELETE")
        body = await read_body(scope, receive, self._limit)
        if body.gone:
            return
        if body.data is not None:
            _refuse_large(body.data)
        headers = dict(scope["headers"])
        if method == "POST" and not headers.get(b"content-type", b"").lower().startswith(b"application/json"):
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "mcp", "send JSON-RPC as Content-Type: application/json")
        version = headers.get(b"mcp-protocol-version", b"").decode("latin-1")
        if (not version or version in HANDSHAKE_PROTOCOL_VERSIONS) and b"mcp-session-id" not in headers:
            access_rules.require_initialize(method, body.data)
        client = scope["state"][_CLIENT] = Client(remote_of(scope), self._waits)

        async def watched() -> Message:
            message = await body()
            if message["type"] == "http.disconnect":
                client.gone()
            return message

        try:
            await self._application(scope, watched, send)
        finally:
            client.served()


def _refuse_large(data: bytes) -> None:
    """Raise Refusal for a message that is larger than any tool takes whose name is in it, or has too many values. It is
    not decoded for that, because decoding is what takes a while."""
    if len(data) <= room_call.BASE_BYTES:
        return
    named = [tool for tool in TOOLS if f'"{tool.name}"'.encode() in data]
    largest = max(named, key=room_call.most_bytes, default=None)
    most = room_call.BASE_BYTES if largest is None else room_call.most_bytes(largest)
    if len(data) > most:
        raise room_call.too_large("no tool" if largest is None else largest.name, most)
    room_call.refuse_many_values(data)


def listed() -> list[types.Tool]:
    """Return the tools as clients see them."""
    return [_listed(tool) for tool in TOOLS]


def _listed(tool: RoomTool) -> types.Tool:
    assert tool.result is not None, "a tool over MCP has an answer of a known form"
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=argument_schemas.portable(argument_schemas.of(tool.takes)),
        output_schema=argument_schemas.portable(argument_schemas.of_result(tool.result)),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=True,
        ),
    )


@frozen
class RoomTools:
    """The rooms' tools for a server that offers others too, over any transport. A cancelled call frees its place."""

    deps: RoomsDeps
    measured: Measured
    listed: tuple[types.Tool, ...] = field(factory=lambda: tuple(listed()), init=False)

    def has(self, name: str) -> bool:
        return name in BY_NAME

    async def call(
        self,
        ctx: Context,
        params: types.CallToolRequestParams,
        act: str | None,
        session: Callable[[], Awaitable[str]] | None,
    ) -> types.CallToolResult:
        """Carry out a call. `act` is its name, if its client repeats calls under their names. `session` returns the
        agent's session; None for an agent that keeps none."""
        return await call_tool(ctx, params, self.deps, Client("", Waits()), self.measured, act, session)


def build(deps: RoomsDeps, measured: Measured) -> Server[Any]:
    """Build the server with the rooms' tools. `measured` gets every finished call."""
    tools = types.ListToolsResult(tools=listed())
    taken = {tool.name: tool.input_schema for tool in tools.tools}

    async def list_tools(_ctx: Context, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return tools

    return Server(
        SERVER_NAME,
        version=__version__,
        instructions=MCP_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=partial(_call_over_http, deps=deps, measured=measured),
        get_tool_input_schema=taken.get,
    )


async def _call_over_http(
    ctx: Context, params: types.CallToolRequestParams, *, deps: RoomsDeps, measured: Measured
) -> types.CallToolResult:
    assert ctx.request is not None, "every call comes over HTTP"
    client: Client = ctx.request.scope["state"][_CLIENT]
    return await call_tool(ctx, params, deps, client, measured)


async def call_tool(
    ctx: Context,
    params: types.CallToolRequestParams,
    deps: RoomsDeps,
    client: Client,
    measured: Measured,
    act: str | None = None,
    session: Callable[[], Awaitable[str]] | None = None,
) -> types.CallToolResult:
    """Carry out a tool call, and measure it. A refusal is a result too. `act` and `session` are as in `RoomTools.call`;
    over the rooms' own path there are none."""
    began = time.monotonic()
    outcome = "cancelled"
    tool = BY_NAME.get(params.name)
    try:
        try:
            result = _result(room_call.content(await _answer(ctx, params, tool, deps, client, act, session)))
            outcome = "ok"
        except Exception as failed:
            refused = room_call.refusal(failed, params.name)
            result = _result(room_call.refused_json(refused), is_error=True)
            outcome = refused.error_code
        return result
    finally:
        measured(ToolCalled(None if tool is None else tool.name, outcome, time.monotonic() - began))


def _result(content: JsonObject, *, is_error: bool = False) -> types.CallToolResult:
    """Return a result as structured content, and as text for clients without support for it."""
    text = types.TextContent(type="text", text=room_call.to_text(content))
    return types.CallToolResult(content=[text], structured_content=content, is_error=is_error)


async def _answer(
    ctx: Context,
    params: types.CallToolRequestParams,
    tool: RoomTool | None,
    deps: RoomsDeps,
    client: Client,
    act: str | None,
    session: Callable[[], Awaitable[str]] | None,
) -> Answer:
    if tool is None:
        raise RoomRefused(
            RoomErrorCode.INVALID_ARGUMENTS,
            f"no tool is called {params.name[:80]!r}; there are: {', '.join(BY_NAME)}",
        )
    arguments = room_call.read(tool, params.arguments or {}, "the argument team_id")
    token = getattr(arguments, "team_id", None)
    answering = partial(room_call.answer, deps.service, tool, arguments, token, client.remote, act, session)
    if tool is not feed.WAIT:
        return await answering()
    with trio.CancelScope() as waiting:
        client.wait_in(waiting)
        if (ctx.meta or {}).get("progress_token") is None:
            return await answering()
        return await _with_progress(ctx, answering)
    # The client is gone, or the server stops.
    raise room_call.stopping()


async def _with_progress(ctx: Context, answering: Callable[[], Awaitable[Answer]]) -> Answer:
    """Wait, and report meanwhile that the call still waits."""
    answered: Answer | None = None
    refused: RoomRefused | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_report, ctx)
        try:
            answered = await answering()
        except RoomRefused as failed:
            # Raised outside, so that the nursery does not wrap it in an exception group.
            refused = failed
        nursery.cancel_scope.cancel()
    if refused is not None:
        raise refused
    assert answered is not None, "a call that is not refused has an answer"
    return answered


async def _report(ctx: Context) -> None:
    began = trio.current_time()
    while True:
        await trio.sleep(PROGRESS_SECONDS)
        waited = trio.current_time() - began
        await ctx.session.report_progress(waited, None, f"waiting for messages, {int(waited)} s so far")
