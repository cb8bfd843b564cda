"""Agents that see every byte: JSON-RPC over a real shim or over HTTP, in both protocol versions, without the SDK.

The SDK's client drops what its models do not know, numbers its requests itself, and answers for its caller. These
agents do none of that.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import trio
from attrs import define, field, frozen

from intercom.local import own_files
from tests.support.server_process import Home

OLD, NEW = "2025-11-25", "2026-07-28"
_META = "io.modelcontextprotocol"
#: What an agent can be asked unless a test says otherwise.
ABLE: Mapping[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
ANSWERS: Mapping[str, Any] = {
    "elicitation/create": {"action": "accept", "content": {"colour": "red"}, "xVendor": 1},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "sampled"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///somewhere", "xVendor": 1}]},
    "ping": {},
}


@frozen
class Way:
    """A way in for agents."""

    over: str
    version: str

    def __str__(self) -> str:
        return f"{self.over}-{self.version}"


WAYS = [Way(over, version) for over in ("stdio", "http") for version in (OLD, NEW)]


class Refused(Exception):
    """A JSON-RPC error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def refused_with(code: int, *, unless: bool = False) -> Iterator[None]:
    """What the block asks may be refused with this error."""
    try:
        yield
    except Refused as refused:
        if unless or refused.error["code"] != code:
            raise


@define(eq=False)
class RawAgent:
    """One agent. `said` are the notifications it got, in order, with the requests that it was asked.

    `deliver` sends a message; for a request over HTTP it returns when the response has ended.
    """

    version: str
    name: str
    capabilities: Mapping[str, Any]
    nursery: trio.Nursery = field(init=False)
    deliver: Callable[[dict[str, Any]], Awaitable[None]] = field(init=False)
    #: Begins to read.
    started: Callable[[], object] = field(default=lambda: None, init=False)
    answers: dict[str, Any] = field(factory=lambda: dict(ANSWERS))
    said: list[tuple[str, dict[str, Any]]] = field(factory=list)
    ids: Any = field(factory=lambda: itertools.count(1))
    _waiting: dict[Any, tuple[trio.Event, list[dict[str, Any]]]] = field(factory=dict)
    _posts: dict[Any, trio.CancelScope] = field(factory=dict)
    _news: trio.Event = field(factory=trio.Event)

    @property
    def is_new(self) -> bool:
        return self.version == NEW

    def envelope(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The params of a request, with what 2026-07-28 wants in each."""
        if not self.is_new:
            return dict(params)
        own = {
            f"{_META}/protocolVersion": NEW,
            f"{_META}/clientInfo": {"name": self.name, "version": "1"},
            f"{_META}/clientCapabilities": dict(self.capabilities),
        }
        return {**params, "_meta": {**own, **params.get("_meta", {})}}

    async def request(self, method: str, params: Mapping[str, Any] | None = None, id: Any = None) -> dict[str, Any]:
        """Send a request, and return its result as it came. Raises Refused."""
        id = next(self.ids) if id is None else id
        waits = self._waiting[id] = (trio.Event(), [])
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": self.envelope(params or {})}
        self.nursery.start_soon(self._deliver, id, message)
        await waits[0].wait()
        (answer,) = waits[1]
        if "error" in answer:
            raise Refused(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    async def _deliver(self, id: Any, message: dict[str, Any]) -> None:
        with trio.CancelScope() as scope:
            self._posts[id] = scope
            await self.deliver(message)

    async def call(
        self, tool: str, /, *, id: Any = None, meta: Mapping[str, Any] | None = None, **arguments: Any
    ) -> dict[str, Any]:
        """Call a tool, and answer what it asks, as clients of 2026-07-28 do."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta is not None:
            params["_meta"] = dict(meta)
        return await self.complete("tools/call", params, id)

    async def complete(self, method: str, params: dict[str, Any], id: Any = None) -> dict[str, Any]:
        result = await self.request(method, params, id)
        while result.get("resultType") == "input_required":
            answers = {}
            for key, wanted in result["inputRequests"].items():
                self._note(wanted["method"], wanted["params"])
                answers[key] = self.answers[wanted["method"]]
            result = await self.request(
                method, {**params, "inputResponses": answers, "requestState": result["requestState"]}
            )
        return result

    async def refusal(self, tool: str, /, **options: Any) -> dict[str, Any]:
        """The error of the protocol that a call of this tool ends with."""
        try:
            got = await self.call(tool, **options)
        except Refused as refused:
            return refused.error
        raise AssertionError(f"it was not refused: {got}")

    async def cancel(self, id: Any) -> None:
        """Cancel a request: over HTTP in 2026-07-28 by closing it."""
        if self.is_new and self.is_over_http:
            self._posts[id].cancel()
        else:
            await self.notify("notifications/cancelled", {"requestId": id})

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        await self.deliver({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    is_over_http: bool = False

    def received(self, message: dict[str, Any]) -> None:
        """Take a message of the server."""
        method = message.get("method")
        if method is None:
            waits = self._waiting.pop(message.get("id"), None)
            assert waits is not None, f"an answer that nobody waits for: {message}"
            waits[1].append(message)
            waits[0].set()
            return
        self._note(method, message.get("params") or {})
        if "id" in message:
            answer = self.answers.get(method)
            reply = (
                {"error": {"code": -32601, "message": "no"}}
                if answer is None
                else {"error": answer.error}
                if isinstance(answer, Refused)
                else {"result": answer}
            )
            self.nursery.start_soon(self.deliver, {"jsonrpc": "2.0", "id": message["id"], **reply})

    def _note(self, method: str, params: dict[str, Any]) -> None:
        self.said.append((method, params))
        self._news.set()
        self._news = trio.Event()

    async def heard(self, method: str) -> dict[str, Any]:
        """The first notification of this kind, waited for."""
        while True:
            for said, params in self.said:
                if said == method:
                    return params
            await self._news.wait()

    async def heard_again(self, method: str) -> None:
        """Wait for one more notification of this kind than were waited for so far."""
        while not any(said == method for said, _ in self.said):
            await self._news.wait()
        self.said.remove(next(each for each in self.said if each[0] == method))

    def of(self, method: str) -> list[dict[str, Any]]:
        """What came of this kind so far."""
        return [params for said, params in self.said if said == method]

    async def greet(self) -> dict[str, Any]:
        """Do the handshake."""
        if self.is_new:
            return await self.request("server/discover")
        info = {"name": self.name, "version": "1"}
        params = {"protocolVersion": OLD, "capabilities": dict(self.capabilities), "clientInfo": info}
        greeted = await self.request("initialize", params)
        await self.notify("notifications/initialized")
        return greeted

    async def names(self) -> list[str]:
        """The names of the downstreams' tools that it sees."""
        return [each["name"] for each in (await self.request("tools/list"))["tools"] if "__" in each["name"]]


@asynccontextmanager
async def raw_agent(
    home: Home,
    way: Way,
    workspace: Path,
    *,
    name: str = "tester",
    capabilities: Mapping[str, Any] = ABLE,
    token: str | None = None,
    key: str | None = None,
    greets: bool = True,
) -> AsyncIterator[RawAgent]:
    """An agent that is connected and greeted. `token` is that of its role; `key` "" makes it anonymous over HTTP."""
    agent = RawAgent(way.version, name, capabilities)
    connect = _over_stdio if way.over == "stdio" else _over_http
    async with connect(home, agent, workspace, token, key), trio.open_nursery() as agent.nursery:
        agent.started()
        if greets:
            await agent.greet()
        yield agent
        agent.nursery.cancel_scope.cancel()


@asynccontextmanager
async def _over_stdio(
    home: Home, agent: RawAgent, workspace: Path, token: str | None, _key: str | None
) -> AsyncIterator[None]:
    environ = {} if token is None else {"INTERCOM_ROLE_TOKEN": token}
    process = await trio.lowlevel.open_process(
        [*home.program, "--workspace", str(workspace)],
        stdin=-1,
        stdout=-1,
        env={**home.environ, **environ},
        cwd=workspace,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout, lock = process.stdin, process.stdout, trio.Lock()

    async def deliver(message: dict[str, Any]) -> None:
        async with lock:
            await stdin.send_all(json.dumps(message).encode() + b"\n")

    async def read() -> None:
        buffer = bytearray()
        async for data in stdout:
            buffer += data
            *lines, rest = buffer.split(b"\n") if b"\n" in data else (buffer,)
            for line in lines:
                agent.received(json.loads(line))
            buffer = bytearray(rest)

    agent.deliver = deliver
    agent.started = lambda: agent.nursery.start_soon(read)
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await stdin.aclose()
            await process.wait()


@asynccontextmanager
async def _over_http(
    home: Home, agent: RawAgent, workspace: Path, token: str | None, key: str | None
) -> AsyncIterator[None]:
    address = trio.Path(home.places.http_address_file)
    while not await address.exists():  # noqa: ASYNC110 - the port opens beside what says that the server is ready
        await trio.sleep(0.01)
    url = f"{(await address.read_text()).strip()}/mcp"
    headers = {
        "Authorization": f"Bearer {own_files.http_token(home.places)}",
        "X-Intercom-Workspace": str(workspace),
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    if key != "":
        headers["X-Intercom-Agent"] = key or workspace.name
    if token is not None:
        headers["Intercom-Role-Token"] = token
    if agent.is_new:
        headers["mcp-protocol-version"] = NEW
    agent.is_over_http = True
    async with httpx2.AsyncClient(headers=headers, timeout=None) as web:

        async def deliver(message: dict[str, Any]) -> None:
            own: dict[str, str] = {}
            if agent.is_new and "method" in message:
                own["mcp-method"] = message["method"]
                params = message.get("params", {})
                named = params.get("uri") if message["method"] == "resources/read" else params.get("name")
                if named is not None:
                    own["mcp-name"] = named
            async with web.stream("POST", url, content=json.dumps(message).encode(), headers=own) as response:
                if message.get("method") == "initialize" and "mcp-session-id" in response.headers:
                    web.headers["mcp-session-id"] = response.headers["mcp-session-id"]
                    web.headers["mcp-protocol-version"] = OLD
                await take(response)
            if message.get("method") == "notifications/initialized":
                agent.nursery.start_soon(listen)

        async def listen() -> None:
            async with web.stream("GET", url) as response:
                await take(response)

        async def take(response: Any) -> None:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                buffer = b""
                async for data in response.aiter_bytes():
                    # By bytes: texts have more ends of lines than events have.
                    *lines, buffer = (buffer + data).split(b"\n") if b"\n" in data else (buffer + data,)
                    for line in lines:
                        said = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
                        if said:
                            agent.received(json.loads(said))
                return
            body = await response.aread()
            if body:
                agent.received(json.loads(body))

        agent.deliver = deliver
        yield
