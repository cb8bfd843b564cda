"""One agent at a real server, over each transport and in each protocol version, and a person at the local socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import trio
from attrs import frozen
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from intercom.local import own_files
from tests.support.server_process import ERAS, TRUSTING, Home, Later, Person, begin, call

#: What the server of these tests is told.
CONFIG = f"http_port = 0\n{TRUSTING}"


@frozen
class Transport:
    """A way in for agents. `mode` is the SDK client's: "auto" for the newest protocol version, "legacy" for the one
    with a handshake."""

    over: str
    mode: str

    def __str__(self) -> str:
        return f"{self.over}-{self.mode}"


TRANSPORTS = [Transport(over, mode) for over in ("stdio", "http") for mode in ERAS]


@frozen
class Desk:
    """An agent in a workspace of its own, and the person who sees its cards."""

    root: Path
    agent: Client
    person: Person
    nursery: trio.Nursery

    def ask(self, tool: str, /, **arguments: Any) -> Later:
        """The agent asks, and the test goes on."""
        return begin(self.nursery, self.agent, tool, **arguments)

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return await call(self.agent, tool, **arguments)

    async def schemas(self) -> dict[str, Any]:
        """The published schema of each tool's answer."""
        return {tool.name: tool.output_schema for tool in (await self.agent.list_tools()).tools}


@asynccontextmanager
async def desk(server: Home, transport: Transport) -> AsyncIterator[Desk]:
    root = server.workspace()
    connected = server.agent(root, mode=transport.mode) if transport.over == "stdio" else _http(server, transport, root)
    async with connected as agent, server.person(root) as person, trio.open_nursery() as nursery:
        yield Desk(root, agent, person, nursery)


@asynccontextmanager
async def _http(server: Home, transport: Transport, root: Path) -> AsyncIterator[Client]:
    address = trio.Path(server.places.http_address_file)
    while not await address.exists():  # noqa: ASYNC110 - the port opens beside what says that the server is ready
        await trio.sleep(0.01)
    headers = {
        "Authorization": f"Bearer {own_files.http_token(server.places)}",
        "X-Intercom-Agent": root.name,
        "X-Intercom-Workspace": str(root),
    }
    url = f"{(await address.read_text()).strip()}/mcp"
    async with httpx2.AsyncClient(headers=headers, timeout=30) as web:
        about = types.Implementation(name="claude-code", version="1")
        async with Client(
            streamable_http_client(url, http_client=web), mode=transport.mode, client_info=about
        ) as client:
            yield client
