"""What the shim answers before a server is there is what the server would have said.

`python -m tests.agents.test_snapshot` writes the file that ships.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
import trio
from mcp.shared.message import SessionMessage

import intercom.agents
from intercom.agents import mcp_server
from intercom.agents.clients import without_tasks
from intercom.agents.shim.relay import (
    HANDSHAKE_VERSIONS,
    LISTS,
    MODERN_VERSION,
    VERSION_KEY,
    Relay,
    ToClient,
    load_shipped,
)
from intercom.local.wire import decode, encode
from intercom.model.config import Config

FILE = Path(intercom.agents.__file__).with_name("handshake_and_lists.json")


def meta(name: str) -> dict[str, Any]:
    """The parameters of a request of the modern version."""
    return {
        "_meta": {
            VERSION_KEY: MODERN_VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"},
        }
    }


def older(name: str) -> dict[str, Any]:
    """The parameters of the handshake."""
    client = {"name": name, "version": "1"}
    return {"protocolVersion": HANDSHAKE_VERSIONS[-1], "capabilities": {}, "clientInfo": client}


async def test_the_shipped_answers_equal_the_live_ones() -> None:
    assert json.loads(FILE.read_text()) == await live(), "run python -m tests.agents.test_snapshot and commit the file"


@pytest.mark.parametrize(
    ("name", "are_offered"), [("claude-code", False), ("Claude-Code/2", False), ("claude-ai", True)]
)
async def test_claude_code_is_offered_no_tasks_by_the_server_or_the_shim(name: str, are_offered: bool) -> None:
    """Claude Code's window moved every waiting call to the background at once, where no answer counts as consent."""
    shipped = json.loads(FILE.read_text())
    found = await live(name)
    for version, results in found.items():
        wanted = (
            shipped[version] if are_offered else {key: without_tasks(each) for key, each in shipped[version].items()}
        )
        assert results == wanted
    assert ("tasks" in json.dumps(found) and "taskSupport" in json.dumps(found)) is are_offered
    relay = Relay("shim", load_shipped())
    handshake = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": older(name)}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
    for asked in (handshake, listing):
        (told,) = relay.client_line(encode(asked))
        assert isinstance(told, ToClient)
        assert decode(told.line)["result"] == found[HANDSHAKE_VERSIONS[-1]][str(asked["method"])]
    modern = Relay("shim", load_shipped())
    for method in ("server/discover", "tools/list"):
        (told,) = modern.client_line(encode({"jsonrpc": "2.0", "id": method, "method": method, "params": meta(name)}))
        assert isinstance(told, ToClient)
        assert decode(told.line)["result"] == found[MODERN_VERSION][method]


async def live(name: str = "snapshot") -> dict[str, dict[str, Any]]:
    """What a server answers, by protocol version and method."""
    return {
        HANDSHAKE_VERSIONS[-1]: await answers({"initialize": older(name), **{method: {} for method in LISTS}}),
        MODERN_VERSION: await answers({method: meta(name) for method in ("server/discover", *LISTS)}),
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
