"""An HTTP client by hand, for benchmarks: the cost of a client is not what is measured."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.bench.bench_rig import CLIENT
from tests.support.http_responses import Response, ResponseReader, request

MODERN, LEGACY = "2026-07-28", "2025-11-25"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}


class HttpConnection:
    """One connection to a server on this machine. `headers` go with every request."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.headers = {"Host": f"127.0.0.1:{port}", **(headers or {})}
        self._reader = ResponseReader()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        """Send a request, with a JSON body if there is one, and do not wait for its response."""
        sent = self.headers | headers
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        self.socket.sendall(request(method, path, sent, data))

    def take(self) -> Response | None:
        """Read once, and return the response if it is whole."""
        self._reader.feed(self.socket.recv(65536))
        return self._reader.next()

    def receive(self) -> Response:
        """Wait for the next response."""
        while (found := self._reader.next()) is None:
            self._reader.feed(self.socket.recv(65536))
        return found

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request and return the JSON of its response, which must be a good one."""
        self.send(method, path, body, **headers)
        found = self.receive()
        assert found.status in (200, 201, 202), (method, path, found.status, found.body[:500])
        return found.json()

    def close(self) -> None:
        self.socket.close()


class HttpPeer:
    """One MCP client on one connection. `legacy` opens a session; `path` is that of the server with what it says
    there."""

    def __init__(self, port: int, path: str, token: str | None, *, legacy: bool) -> None:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": LEGACY if legacy else MODERN,
        }
        self.connection = HttpConnection(port, headers | ({"Authorization": f"Bearer {token}"} if token else {}))
        self._legacy = legacy
        self._count = 0
        self._path = path
        if legacy:
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
            self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            self.connection.headers["Mcp-Session-Id"] = self._answer().headers["mcp-session-id"]
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            self._answer()

    def send(self, tool: str, arguments: dict[str, Any], *, progress: bool = False) -> None:
        """Call a tool, and do not wait for it."""
        self._count += 1
        meta: dict[str, Any] = {} if self._legacy else dict(_META)
        if progress:
            meta["progressToken"] = self._count
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        extra = {} if self._legacy else {"Mcp-Method": "tools/call", "Mcp-Name": tool}
        self._post({"jsonrpc": "2.0", "id": self._count, "method": "tools/call", "params": params}, **extra)

    def receive(self) -> dict[str, Any]:
        """The result of the call made last."""
        return result_of(self._answer())

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.send(tool, arguments)
        return self.receive()

    def close(self) -> None:
        self.connection.close()

    def _post(self, message: dict[str, Any], **headers: str) -> None:
        self.connection.send("POST", self._path, message, **headers)

    def _answer(self) -> Response:
        found = self.connection.receive()
        assert found.status in (200, 202), (found.status, found.body[:500])
        return found


def result_of(response: Response) -> dict[str, Any]:
    """The result in a response to a call; of a stream, in its last message."""
    found: dict[str, Any] = response.json()
    assert "result" in found, found
    result: dict[str, Any] = found["result"]
    return result
