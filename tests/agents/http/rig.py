"""A server in this process whose port is real: SDK clients of both eras, and sockets by hand for what none sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import trio
from attrs import field, frozen
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from intercom.app import App
from intercom.embedding import Switchboard
from intercom.local.places import places
from intercom.model.card import Card
from intercom.model.config import Config, DatabaseSettings
from tests.support.database import new_database

ERAS = ("auto", "legacy")
#: What the era without sessions puts into every request.
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
INITIALIZE = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "1"}}
BOTH = "application/json, text/event-stream"


@frozen
class Reply:
    """An answer as it came over the wire."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


@frozen
class Place:
    """A server that serves HTTP, and a person at it."""

    board: Switchboard
    root: Path
    token: str | None = field(repr=False)

    @property
    def app(self) -> App:
        return self.board.app

    @property
    def port(self) -> int:
        assert self.app.http.port is not None
        return self.app.http.port

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def url(self, path: str = "/mcp", query: str = "") -> str:
        return f"http://127.0.0.1:{self.port}{path}{'?' if query else ''}{query}"

    @asynccontextmanager
    async def client(self, query: str = "", mode: str = "auto", **more: str) -> AsyncIterator[Client]:
        """An SDK client over streamable HTTP; `more` are headers, with _ for -."""
        told = self.headers | {name.replace("_", "-"): value for name, value in more.items()}
        async with httpx2.AsyncClient(headers=told, timeout=30) as web:
            transport = streamable_http_client(self.url(query=query), http_client=web)
            async with Client(transport, mode=mode, client_info=_client()) as client:
                yield client

    @asynccontextmanager
    async def classic(self, query: str = "", mode: str = "legacy") -> AsyncIterator[Client]:
        """The same over /sse."""
        transport = sse_client(self.url("/sse", query), headers=self.headers)
        async with Client(transport, mode=mode, client_info=_client()) as client:
            yield client

    async def card(self, title: str | None = None) -> Card:
        """What waits for a person, waited for."""
        found: list[Card] = []

        async def is_there() -> bool:
            found[:] = [card for card in await self.board.service.pending() if title in (None, card.title)]
            return bool(found)

        await until(is_there)
        return found[0]

    async def raw(self, text: bytes, *, port: int | None = None) -> Reply:
        """Send bytes as they are; the first answer."""
        async with await trio.open_tcp_stream("127.0.0.1", port or self.port) as stream:
            await stream.send_all(text)
            return await read_reply(stream)

    async def post(
        self, body: Any, *, path: str = "/mcp", headers: dict[str, str | None] | None = None, method: str = "POST"
    ) -> Reply:
        """One request of an own making, with the token and what every client sends; a header of None is left out."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        told: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "Content-Type": "application/json",
            "Accept": BOTH,
            "Content-Length": str(len(data)),
            **self.headers,
            **(headers or {}),
        }
        return await self.raw(head(method, path, told) + data)


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for what nobody tells of."""
    while True:
        now = holds()
        if now if isinstance(now, bool) else await now:
            return
        await trio.sleep(0.01)


def head(method: str, path: str, headers: dict[str, str | None]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def read_reply(stream: trio.abc.ReceiveStream) -> Reply:
    """An answer whose length is told, or that ends with the connection or its stream."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = await stream.receive_some(65536)
        if not more:
            break
        data += more
    top, _, body = data.partition(b"\r\n\r\n")
    first, *rest = top.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    length = headers.get("content-length")
    while length is None or len(body) < int(length):
        if length is None and body.endswith(b"0\r\n\r\n"):
            break
        more = await stream.receive_some(65536)
        if not more:
            break
        body += more
    if headers.get("transfer-encoding") == "chunked":
        body = _without_chunks(body)
    return Reply(int(first.split()[1]) if first.startswith("HTTP/") else 0, headers, body)


def _without_chunks(data: bytes) -> bytes:
    """What these chunks hold; the last one may be cut off."""
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        length = int(size, 16)
        body, data = body + rest[:length], rest[length + 2 :]
    return body


def rpc(method: str, params: dict[str, Any] | None = None, id: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def modern(tool: str, arguments: dict[str, Any], id: int = 1) -> tuple[dict[str, Any], dict[str, str]]:
    """A tool call of the era without sessions: its body and headers."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    return rpc("tools/call", params, id), headers


def content(result: types.CallToolResult) -> dict[str, Any]:
    found = result.structured_content
    assert isinstance(found, dict)
    return found


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return content(await client.call_tool(tool, arguments))


@asynccontextmanager
async def place(root: Path, **settings: Any) -> AsyncIterator[Place]:
    """A server whose files lie in `root`, and which serves a free port."""
    (root / "ws").mkdir(exist_ok=True)
    config = Config(
        **{
            "http_port": 0,
            "database": DatabaseSettings(path=root / "intercom.db"),
            "default_workspace_root": root / "ws",
            **settings,
        }
    )
    where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root), "XDG_STATE_HOME": str(root / "state")})
    new_database(root / "intercom.db")
    app = App(config, where, root / "intercom.db", frozenset())
    async with app.system:
        http = app.http
        await until(lambda: http.port is not None or http.fault is not None)
        yield Place(Switchboard(app, str(root / "ws")), root, app.http.token)


def _client() -> types.Implementation:
    return types.Implementation(name="claude-code", version="1")
