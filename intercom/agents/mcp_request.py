"""What an MCP request says of its sender: the agent connection that it came over, and the caller."""

from __future__ import annotations

import hashlib
import logging
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server.context import ServerRequestContext

from intercom.agents.agent_connection import AgentConnection, Caller, PendingResponse
from intercom.agents.shim.relay import CALL_KEY
from intercom.model import limits

log = logging.getLogger("intercom.agents")

Context = ServerRequestContext[Any, Any]

#: Time limit of a client's answer about its workspace roots, in seconds.
_ROOTS_SECONDS = 3.0


def connection_and_response(ctx: Context) -> tuple[AgentConnection, PendingResponse | None]:
    """Return the connection of a request, and its pending response if the transport has them."""
    request = ctx.request
    assert request is not None, "every transport says whose a request is"
    if isinstance(request, AgentConnection):
        return request, None
    response: PendingResponse = request if isinstance(request, PendingResponse) else request.scope["state"]["exchange"]
    return response.connection, response


def connection_of(ctx: Context) -> AgentConnection:
    return connection_and_response(ctx)[0]


def caller_of(ctx: Context) -> Caller:
    meta = ctx.meta or {}
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
