"""A server in this process that serves rooms on a real port, and teams that call it by hand or over MCP."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import frozen
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from intercom.app import App
from intercom.local.places import places
from intercom.local.server_secrets import RoomsSecrets
from intercom.model.config import Config, DatabaseSettings, RoomsSettings
from intercom.model.room import RoomId
from intercom.rooms.messages import ReadRoster
from intercom.rooms.service import RoomService
from tests.agents.http.rig import Reply, head, read_reply, until
from tests.support.database import new_database

SECRET = "open sesame, and a little longer"
CREATE = {"title": "Port the parser", "description": "Two teams", "creator_team_name": "Alex's Team"}


async def read_head(stream: trio.abc.ReceiveStream) -> Reply:
    """The response to a HEAD, with what follows its head although nothing may."""
    data = b""
    with trio.move_on_after(0.2):
        while more := await stream.receive_some(65536):
            data += more
    top, _, rest = data.partition(b"\r\n\r\n")
    first, *lines = top.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Reply(int(first.split()[1]), headers, rest)


@frozen
class Server:
    """A server with rooms."""

    app: App

    @property
    def port(self) -> int:
        assert self.app.http is not None
        assert self.app.http.port is not None
        return self.app.http.port

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def service(self) -> RoomService:
        assert self.app.rooms is not None
        return self.app.rooms

    def request(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str | None
    ) -> bytes:
        """The bytes of a request. `body` is sent as JSON, or as it is; `headers` have _ for -, and None omits one."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        told: dict[str, str | None] = {
            "Host": f"127.0.0.1:{self.port}",
            "X-Team-ID": token,
            "Content-Type": "application/json" if data else None,
            "Content-Length": str(len(data)) if data or method == "POST" else None,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return head(method, path, told) + data

    async def ask(
        self, method: str, path: str, body: Any = None, token: str | None = None, **headers: str | None
    ) -> Reply:
        """Send one request on a connection of its own, and return its response."""
        async with await trio.open_tcp_stream("127.0.0.1", self.port) as stream:
            await stream.send_all(self.request(method, path, body, token, **headers))
            return await (read_head(stream) if method == "HEAD" else read_reply(stream))

    async def good(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """The JSON of a response that must be a good one."""
        reply = await self.ask(method, path, body, token)
        assert reply.status == 200, reply
        return json.loads(reply.body)

    async def create(self, **more: Any) -> Team:
        """Create a session, and return its convener."""
        made = await self.good("POST", "/api/sessions", CREATE | more)
        return Team(self, made["session_id"], made["team_id"])

    @asynccontextmanager
    async def client(self, mode: str = "auto") -> AsyncIterator[Client]:
        """An SDK client of the rooms' MCP."""
        async with Client(streamable_http_client(f"{self.base}/api/mcp"), mode=mode) as client:
            yield client


@frozen
class Team:
    """A team in a session."""

    server: Server
    session_id: str
    token: str

    @property
    def path(self) -> str:
        return f"/api/sessions/{self.session_id}"

    async def get(self, below: str = "") -> Any:
        return await self.server.good("GET", self.path + below, None, self.token)

    async def post(self, below: str, body: Any = None) -> Any:
        return await self.server.good("POST", self.path + below, body, self.token)

    async def say(self, text: str, **more: Any) -> int:
        return int((await self.post("/messages", {"content": {"text": text}, **more}))["cursor"])

    async def join(self, name: str = "Kim's Team", **more: Any) -> Team:
        """Join the same session as another team."""
        joined = await self.server.good("POST", f"{self.path}/join", {"team_name": name, **more})
        return Team(self.server, self.session_id, joined["team_id"])

    async def has_waiters(self) -> bool:
        """Whether calls wait in the session."""
        return bool((await self.server.service.room_actors.ask(RoomId(self.session_id), ReadRoster())).polling)

    async def has_none(self) -> bool:
        return not await self.has_waiters()


@asynccontextmanager
async def server_with_rooms(
    *, secret: str | None = None, only_rooms: bool = False, config: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Server]:
    """A server with rooms. `settings` are those of `[rooms]`, `config` all others."""
    root = Path(tempfile.mkdtemp(prefix="rooms-", dir="/tmp"))
    try:
        (root / "ws").mkdir()
        made = Config(
            **{
                "http_port": 0,
                "database": DatabaseSettings(path=root / "intercom.db"),
                "default_workspace_root": root / "ws",
                "rooms": RoomsSettings(enabled=True, **settings),
                **(config or {}),
            }
        )
        where = places(environ={"HOME": str(root), "XDG_RUNTIME_DIR": str(root), "XDG_STATE_HOME": str(root / "state")})
        new_database(root / "intercom.db")
        app = App(made, where, root / "intercom.db", frozenset(), secrets=RoomsSecrets(secret), only_rooms=only_rooms)
        async with app.system:
            http = app.http
            assert http is not None
            await until(lambda: http.port is not None or http.fault is not None)
            # A server that gives up cancels the block it runs in, which is not to be the test runner's.
            with trio.CancelScope(shield=True):
                yield Server(app)
    finally:
        shutil.rmtree(root, ignore_errors=True)
