"""Makes the shipped answers: the handshake and the lists of a live server.

The shim answers with them while no server is connected. `python -m intercom.agents.snapshot` writes them into the
package; a test keeps the file equal to the live answers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.shared.message import SessionMessage

from intercom.agents import server as mcp_server
from intercom.agents.shim.shipped import HANDSHAKE_VERSIONS, MODERN_VERSION, VERSION_KEY
from intercom.model.config import Config

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
    server = mcp_server.build(config)
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
