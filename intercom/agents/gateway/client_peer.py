"""The client behind one request, as downstreams may reach it, and we ourselves: notifications, and requests such as
sampling.

The SDK's typed methods would validate and drop what they do not know. So this uses the raw channel of the request.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, cast

import trio
from attrs import define, field
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import Outbound
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from intercom.agents.tool_call import Dialog
from intercom.gateway.messages import RpcError
from intercom.gateway.rpc_multiplexer import supports
from intercom.model.json_types import Json, JsonObject, part

log = logging.getLogger("intercom.agents")

CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
#: The severities of log messages, the least severe first; and what a client wants that wants none.
LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
NO_LOGS: Final = "none"
#: The request that shows a form to the client's user.
FORM: Final = "elicitation/create"
#: The most notifications that wait for a slow client; more are dropped.
MOST_WAITING: Final = 1000

Context = ServerRequestContext[object, object]


@define(eq=False)
class ClientPeer:
    """The client that sent a request, while the request runs. `id` is that of its connection."""

    id: str
    capabilities: JsonObject
    _channel: Outbound
    _level: str | None = None
    _waiting: deque[tuple[str, JsonObject]] = field(factory=deque, init=False)
    _sent: trio.Event | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification, after those before. One that comes after the request's end is dropped."""
        if self._is_closed or len(self._waiting) >= MOST_WAITING:
            return
        if method == "notifications/message" and not self._wants(params.get("level")):
            return
        self._waiting.append((method, params))
        if self._sent is None:
            self._sent = trio.Event()
            trio.lowlevel.spawn_system_task(self._send_waiting, self._sent)

    def _wants(self, level: Json) -> bool:
        if self._level is None or level not in LEVELS:
            return self._level is None
        return self._level in LEVELS and LEVELS.index(str(level)) >= LEVELS.index(self._level)

    async def _send_waiting(self, sent: trio.Event) -> None:
        """Send what waits, in order. A client that is gone misses it."""
        try:
            while self._waiting:
                method, params = self._waiting.popleft()
                await self._channel.notify(method, params)
        except Exception as failed:
            # A crash of a system task would end the server.
            log.info("a notification could not be sent to a client: %s", type(failed).__name__)
            self._waiting.clear()
        finally:
            self._sent = None
            sent.set()

    async def close(self) -> None:
        """Wait until all notifications are sent: none may follow the answer."""
        self._is_closed = True
        if self._sent is not None:
            await self._sent.wait()

    async def request(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request and return its result. Raises RpcError."""
        try:
            return cast("JsonObject", await self._channel.send_raw_request(method, params, None))
        except NoBackChannelError:
            raise RpcError(-32601, f"the agent's client cannot be asked ({method})") from None
        except MCPError as refused:
            raise RpcError(refused.error.code, refused.error.message, refused.error.data) from None


def peer_of(ctx: Context, agent: str, level: str | None) -> ClientPeer:
    """Return the peer of the client behind a request. `agent` is the id of its connection, `level` the least severe log
    messages that it wants, None for what downstreams send by themselves."""
    # A private attribute: the SDK has no public way to send what its models do not know.
    channel = ctx.session._request_outbound
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        meta = part(dict(ctx.params or {}), "_meta")
        wanted = meta.get(LOG_LEVEL_KEY)
        level = wanted if isinstance(wanted, str) else NO_LOGS
    return ClientPeer(agent, capabilities_of(ctx), channel, level)


#: Shows a client's user a form (the parameters of `elicitation/create`). Returns the answer, None if there is none.
AskUser = Callable[[JsonObject], Awaitable["JsonObject | None"]]
#: Has a client's user asked about a request of a session, by their ids. Raises nothing.
Attend = Callable[[str, str, AskUser], Awaitable[None]]


def dialog_of(ctx: Context, session_id: str, attend: Attend) -> Dialog | None:
    """Return what shows a request of this session to the user of the client that calls. None if the client shows no
    forms, or takes no requests during a call, as in 2026-07-28."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS or not ctx.session.can_send_request:
        return None
    peer = peer_of(ctx, "", None)
    if not supports(peer, FORM, {}):
        return None

    async def ask_user(form: JsonObject) -> JsonObject | None:
        try:
            return await peer.request(FORM, form)
        except RpcError as refused:
            log.info("a client did not show a dialog (error %s)", refused.code)
            return None

    return lambda request_id: attend(session_id, request_id, ask_user)


def capabilities_of(ctx: Context) -> JsonObject:
    """Return the capabilities that the client has declared: with this request, or in its handshake."""
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return part(part(dict(ctx.params or {}), "_meta"), CAPABILITIES_KEY)
    declared = ctx.session.client_capabilities
    if declared is None:
        return {}
    return cast("JsonObject", declared.model_dump(by_alias=True, mode="json", exclude_none=True))
