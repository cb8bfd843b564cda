"""MCP over this process's own stdin and stdout, for `--in-process`: one client, and no shim.

The SDK's stdio transport reads in a worker thread, which cannot be cancelled. This one waits on the descriptors.
"""

from __future__ import annotations

import os
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.server import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from intercom.agents import message_streams
from intercom.agents.call_names import CALL_KEY, NAMED
from intercom.agents.connection import AgentConnection
from intercom.agents.message_streams import Lines


async def serve(server: Server[Any], connection: AgentConnection, stdin: int = 0, stdout: int = 1) -> None:
    """Serve until stdin ends. It takes over both descriptors; all other output goes to stderr meanwhile."""
    incoming, outgoing = trio.lowlevel.FdStream(os.dup(stdin)), trio.lowlevel.FdStream(os.dup(stdout))
    os.dup2(2, stdout)
    to_server, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](64)
    outbox, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    names: dict[Any, str] = {}

    refusals = outbox.clone()

    async def read(nursery: trio.Nursery) -> None:
        lines = Lines(incoming)
        count = 0
        async with to_server:
            while (line := await lines.next()) is not None:
                if not line.strip():
                    continue
                count += 1
                try:
                    message = _named(line, f"{connection.key}/{count}", names)
                except message_streams.NotAMessage as unread:
                    if unread.answer is not None:
                        await refusals.send(SessionMessage(unread.answer))
                    continue
                if (name := names.pop(message_streams.cancelled(message), None)) is not None:
                    # A cancelled call gets no answer, or its client ignores the answer, which was not sent yet.
                    connection.deliveries.abandon(name)
                await to_server.send(SessionMessage(message, ServerMessageMetadata(request_context=connection)))
        nursery.cancel_scope.cancel()

    async def write(nursery: trio.Nursery) -> None:
        async with from_server:
            async for sent in from_server:
                text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await outgoing.send_all(text.encode() + b"\n")
                name = names.pop(getattr(sent.message, "id", None), None)
                if name is None or isinstance(sent.message, types.JSONRPCRequest):
                    continue
                nursery.start_soon(connection.deliveries.reached, name)

    connection.opened()
    try:
        async with incoming, outgoing, trio.open_nursery() as nursery:
            nursery.start_soon(write, nursery)
            nursery.start_soon(read, nursery)
            await server.run(inbox, outbox, server.create_initialization_options())
            nursery.cancel_scope.cancel()
    finally:
        connection.closed()


def _named(line: bytes, name: str, names: dict[Any, str]) -> types.JSONRPCMessage:
    """Read a message, and replace a call's name by our own. Raises NotAMessage."""
    message = message_streams.read(line)
    if not isinstance(message, types.JSONRPCRequest) or message.method not in NAMED or message.params is None:
        return message
    meta = message.params.get("_meta")
    params = {**message.params, "_meta": {**(meta if isinstance(meta, dict) else {}), CALL_KEY: name}}
    names[message.id] = name
    return message.model_copy(update={"params": params})
