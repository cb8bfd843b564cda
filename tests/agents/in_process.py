"""The MCP server in this process, spoken to in JSON-RPC by hand: for what can only be seen from inside it."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from intercom.agents import message_stream
from intercom.agents.agent_connection import AgentConnection
from intercom.agents.message_stream import MessageReader, MessageWriter
from intercom.app import App

_META = "io.modelcontextprotocol/"
ABOUT = {
    f"{_META}protocolVersion": "2026-07-28",
    f"{_META}clientCapabilities": {},
    f"{_META}clientInfo": {"name": "claude-code", "version": "1"},
}


#: The same of a client that takes tasks. Claude Code is offered none.
TAKES_TASKS = {
    **ABOUT,
    f"{_META}clientCapabilities": {"extensions": {f"{_META}tasks": {}}},
    f"{_META}clientInfo": {"name": "codex", "version": "1"},
}


class Spoken:
    """One connection. Calls may be made side by side."""

    def __init__(self, connection: AgentConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._to_server, self._inbox = trio.open_memory_channel[SessionMessage](64)
        self._answers: dict[Any, trio.MemorySendChannel[dict[str, Any]]] = {}

    async def read(self) -> SessionMessage | None:
        try:
            return await self._inbox.receive()
        except trio.EndOfChannel:
            return None

    async def write(self, sent: SessionMessage) -> None:
        said: dict[str, Any] = json.loads(sent.message.model_dump_json(by_alias=True, exclude_unset=True))
        if (waiting := self._answers.pop(said.get("id"), None)) is not None:
            waiting.send_nowait(said)

    async def say(self, **message: Any) -> None:
        parsed = message_stream.read(json.dumps({"jsonrpc": "2.0", **message}).encode())
        await self._to_server.send(SessionMessage(parsed, ServerMessageMetadata(request_context=self._connection)))

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Make a request of the stateless era; the whole answer. Cancelled, it is cancelled at the server too."""
        id = next(self._numbers)
        send, receive = trio.open_memory_channel[dict[str, Any]](1)
        self._answers[id] = send
        params["_meta"] = {**ABOUT, **params.get("_meta", {})}
        await self.say(id=id, method=method, params=params)
        try:
            return await receive.receive()
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await self.say(method="notifications/cancelled", params={"requestId": id})
            raise

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool; its content."""
        answer = await self.ask("tools/call", name=tool, arguments=arguments)
        content: dict[str, Any] = answer["result"]["structuredContent"]
        return content


@asynccontextmanager
async def spoken_to(app: App, key: str, workspace: str) -> AsyncIterator[Spoken]:
    """A connection to the server of `app`, by an agent connection of its own."""
    connection = AgentConnection(app.system, app.config, app.connected_agents, key, workspace, None)
    spoken = Spoken(connection)
    server = app.shim_deps.server
    connection.opened()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                server.run,
                MessageReader(spoken.read),
                MessageWriter(spoken.write),
                server.create_initialization_options(),
            )
            yield spoken
            nursery.cancel_scope.cancel()
    finally:
        connection.closed()
