"""What the shim answers before a server is there is what the server would have said.

`python -m tests.agents.test_snapshot` writes the file that ships.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.shared.message import SessionMessage

import intercom.agents
from intercom.agents import mcp_server
from intercom.agents.shim.relay import HANDSHAKE_VERSIONS, LISTS, MODERN_VERSION, VERSION_KEY
from intercom.model.config import Config

FILE = Path(intercom.agents.__file__).with_name("handshake_and_lists.json")
CLIENT = {"name": "snapshot", "version": "1"}
MODERN = {
    VERSION_KEY: MODERN_VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}
OLDER = {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": CLIENT}


async def test_the_shipped_answers_equal_the_live_ones() -> None:
    assert json.loads(FILE.read_text()) == await live(), "run python -m tests.agents.test_snapshot and commit the file"


async def live() -> dict[str, dict[str, Any]]:
    """What a server answers, by protocol version and method."""
    return {
        HANDSHAKE_VERSIONS[-1]: await answers({"initialize": OLDER, **{method: {} for method in LISTS}}),
        MODERN_VERSION: await answers({method: {"_meta": MODERN} for method in ("server/discover", *LISTS)}),
    }


async def answers(requests: dict[str, Any]) -> dict[str, Any]:
    server = mcp_server.build(Config())
    to_server, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](8)
    outbox, received = anyio.create_memory_object_stream[SessionMessage](8)
    results: dict[str, Any] = {}

    async def send(**said: Any) -> None:
        message = types.jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **said}, by_name=False)
        await to_server.send(SessionMessage(message))

    async with trio.open_nursery() as nursery, to_server, received:
        nursery.start_soon(server.run, inbox, outbox, server.create_initialization_options())
        for number, (method, params) in enumerate(requests.items()):
            await send(id=number, method=method, params=params)
            answer = (await received.receive()).message
            results[method] = json.loads(answer.model_dump_json(by_alias=True, exclude_unset=True))["result"]
            if method == "initialize":
                await send(method="notifications/initialized")
        nursery.cancel_scope.cancel()
    return results


if __name__ == "__main__":
    FILE.write_text(json.dumps(trio.run(live), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
