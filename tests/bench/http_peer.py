"""An HTTP client by hand, for benchmarks: the cost of a client is not what is measured."""

from __future__ import annotations

import json
import socket
from typing import Any

from tests.bench.bench_rig import CLIENT

MODERN, LEGACY = "2026-07-28", "2025-11-25"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}


class HttpPeer:
    """One client on one connection. `legacy` opens a session; `path` is that of the server with what it says there."""

    def __init__(self, port: int, path: str, token: str | None, *, legacy: bool) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self._legacy = legacy
        self._count = 0
        self._path = path
        self._lines = [
            f"Host: 127.0.0.1:{port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"MCP-Protocol-Version: {LEGACY if legacy else MODERN}",
            *([f"Authorization: Bearer {token}"] if token else []),
        ]
        if legacy:
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": CLIENT}
            session = self._greet({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            self._lines.append(f"Mcp-Session-Id: {session}")
            self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            self._answer()

    def send(self, tool: str, arguments: dict[str, Any], *, progress: bool = False) -> None:
        """Call a tool, and do not wait for it."""
        self._count += 1
        meta: dict[str, Any] = {} if self._legacy else dict(_META)
        if progress:
            meta["progressToken"] = self._count
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        extra = () if self._legacy else ("Mcp-Method: tools/call", f"Mcp-Name: {tool}")
        self._post({"jsonrpc": "2.0", "id": self._count, "method": "tools/call", "params": params}, *extra)

    def receive(self) -> dict[str, Any]:
        """The result of the call made last."""
        kind, body = self._answer()
        found: dict[str, Any] = body if kind == "json" else {}
        assert "result" in found, found
        result: dict[str, Any] = found["result"]
        return result

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self.send(tool, arguments)
        return self.receive()

    def close(self) -> None:
        self._socket.close()

    def _greet(self, message: dict[str, Any]) -> str:
        self._post(message)
        head = self._head()
        self._body(head)
        return head["mcp-session-id"]

    def _post(self, message: dict[str, Any], *extra: str) -> None:
        body = json.dumps(message).encode()
        lines = [f"POST {self._path} HTTP/1.1", *self._lines, *extra, f"Content-Length: {len(body)}", "", ""]
        self._socket.sendall("\r\n".join(lines).encode() + body)

    def _answer(self) -> tuple[str, dict[str, Any]]:
        return "json", self._body(self._head())

    def _head(self) -> dict[str, str]:
        while b"\r\n\r\n" not in self._data:
            self._more()
        top, _, self._data = self._data.partition(b"\r\n\r\n")
        first, *rest = top.decode("latin-1").split("\r\n")
        assert first.split()[1] in ("200", "202"), top
        return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}

    def _body(self, head: dict[str, str]) -> dict[str, Any]:
        """The last message of an answer: its only one, or of a stream the response."""
        if "content-length" in head:
            while len(self._data) < int(head["content-length"]):
                self._more()
            body, self._data = self._data[: int(head["content-length"])], self._data[int(head["content-length"]) :]
            found: dict[str, Any] = json.loads(body or b"{}")
            return found
        found = {}
        text = b""
        while True:
            chunk = self._chunk()
            if not chunk:
                return found
            text += chunk
            while b"\r\n\r\n" in text:
                event, _, text = text.partition(b"\r\n\r\n")
                for line in event.split(b"\r\n"):
                    if line.startswith(b"data: ") and len(line) > 6:
                        found = json.loads(line[6:])

    def _chunk(self) -> bytes:
        while b"\r\n" not in self._data:
            self._more()
        size, _, self._data = self._data.partition(b"\r\n")
        length = int(size, 16)
        while len(self._data) < length + 2:
            self._more()
        chunk, self._data = self._data[:length], self._data[length + 2 :]
        return chunk

    def _more(self) -> None:
        data = self._socket.recv(65536)
        assert data, "the server has closed the connection"
        self._data += data
