"""The first message of a connection decides which protocol versions it has."""

from __future__ import annotations

from collections import deque

import mcp_types as types
import pytest
import trio
from mcp.server import Server
from mcp.shared.message import SessionMessage

from intercom.agents import message_stream
from intercom.model.json_types import JsonObject
from tests.agents.in_process import ABOUT

HANDSHAKE: JsonObject = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
MODERN: JsonObject = {"_meta": dict(ABOUT)}


async def _list_tools(_ctx: object, _params: object) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[])


async def answers_to(*requests: tuple[str, JsonObject]) -> list[types.JSONRPCMessage]:
    """What the server answers to these requests, of which each waits for the answer before."""
    left = deque(enumerate(requests))
    answers: list[types.JSONRPCMessage] = []
    news = trio.Event()

    async def read() -> SessionMessage | None:
        nonlocal news
        while len(answers) < len(requests) - len(left):
            news = trio.Event()
            await news.wait()
        if not left:
            return None
        id, (method, params) = left.popleft()
        return SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=id, method=method, params=params))

    async def write(sent: SessionMessage) -> None:
        answers.append(sent.message)
        news.set()

    server: Server[object] = Server("test", version="1", on_list_tools=_list_tools)
    await message_stream.run(server, read, write)
    return answers


async def test_after_the_handshake_a_request_of_2026_07_28_is_refused_and_the_others_are_answered() -> None:
    first, refused, listed = await answers_to(("initialize", HANDSHAKE), ("tools/list", MODERN), ("tools/list", {}))
    assert isinstance(first, types.JSONRPCResponse)
    assert first.result["protocolVersion"] == "2025-11-25"
    assert isinstance(refused, types.JSONRPCError)
    assert (refused.id, refused.error.code) == (1, types.INVALID_REQUEST)
    assert isinstance(listed, types.JSONRPCResponse)
    assert listed.result["tools"] == []


async def test_a_connection_of_2026_07_28_has_no_handshake() -> None:
    listed, refused = await answers_to(("tools/list", MODERN), ("initialize", HANDSHAKE))
    assert isinstance(listed, types.JSONRPCResponse)
    assert listed.result["resultType"] == "complete"
    assert isinstance(refused, types.JSONRPCError)
    assert refused.error.code == types.UNSUPPORTED_PROTOCOL_VERSION


async def test_a_client_that_leaves_at_once_ends_the_connection() -> None:
    assert await answers_to() == []


async def test_lines_of_a_connection_that_was_closed_are_over() -> None:
    """Its actor may close it while a message is being taken in; Trio waits for no closed socket."""
    ours, theirs = trio.socket.socketpair()
    stream = trio.SocketStream(ours)
    lines = message_stream.Lines(stream)
    await theirs.send(b"one\nt")
    assert await lines.next() == b"one"
    await stream.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await lines.next()
    theirs.close()
