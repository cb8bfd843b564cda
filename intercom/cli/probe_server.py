"""The MCP server of a timed probe: one tool that does not answer, to see when its client gives up.

`python -m intercom.cli.probe_server FILE SECONDS` speaks MCP on stdin and stdout. It writes the outcome of the call and
its seconds to FILE: `held` (answered after SECONDS), or `cancelled` or `closed` by the client. It uses the standard
library alone, because a client does not wait long for a server to start.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any

from intercom.agents.clients.client import PROBE_NAME as NAME
from intercom.local.wire import LineBuffer, encode

TOOL = "hold"
#: Seconds between progress reports, as in our waiting tools.
PROGRESS_SECONDS = 15.0
_LIMIT = 2**20


class Probe:
    """The state of the probe: the call that is held open, and for how many `seconds`."""

    def __init__(self, note: str, seconds: float) -> None:
        self._note = note
        self._seconds = seconds
        self._call: Any = None
        self._token: Any = None
        self._began = self._reported = 0.0
        self.over = False

    @property
    def due(self) -> float | None:
        """Seconds until the next message is due; None if none is."""
        if self._call is None:
            return None
        now = time.monotonic()
        report = self._reported + PROGRESS_SECONDS if self._token is not None else self._began + self._seconds
        return max(0.0, min(report, self._began + self._seconds) - now)

    def on_time(self) -> list[dict[str, Any]]:
        """Return the messages that are due now."""
        now = time.monotonic()
        if self._call is None:
            return []
        if now >= self._began + self._seconds:
            held, self._call = self._call, None
            self._end("held")
            return [_result(held, {"content": [{"type": "text", "text": "held"}]})]
        if self._token is not None and now >= self._reported + PROGRESS_SECONDS:
            return [self._progress(now)]
        return []

    def heard(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the answers to the client's message."""
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method == "notifications/cancelled" and self._call is not None and params.get("requestId") == self._call:
            self._call = None
            self._end("cancelled")
        if id is None or method is None:
            return []
        if method == "initialize":
            told: dict[str, Any] = {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "1"},
            }
            return [_result(id, told)]
        if method == "tools/list":
            schema = {"type": "object", "properties": {}}
            return [_result(id, {"tools": [{"name": TOOL, "description": "Hold.", "inputSchema": schema}]})]
        if method == "tools/call" and self._call is None and not self.over:
            self._call, self._token = id, (params.get("_meta") or {}).get("progressToken")
            self._began = self._reported = time.monotonic()
            return [self._progress(self._began)] if self._token is not None else []
        if method == "ping":
            return [_result(id, {})]
        return [{"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}}]

    def closed(self) -> None:
        """Record that the client closed its end."""
        if self._call is not None:
            self._end("closed")

    def _progress(self, now: float) -> dict[str, Any]:
        self._reported = now
        params = {"progressToken": self._token, "progress": now - self._began + 1, "message": "holding"}
        return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}

    def _end(self, how: str) -> None:
        self.over = True
        told = {"how": how, "seconds": time.monotonic() - self._began, "progress": self._token is not None}
        draft = f"{self._note}.new"
        with open(draft, "w", encoding="ascii") as file:
            json.dump(told, file)
        os.replace(draft, self._note)


def _result(id: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def main(note: str, seconds: float) -> int:
    """Serve until the client closes its end."""
    probe, lines = Probe(note, seconds), LineBuffer(_LIMIT)
    while True:
        ready, _, _ = select.select([0], [], [], probe.due)
        answers = probe.on_time()
        if ready:
            data = os.read(0, 65536)
            if not data:
                probe.closed()
                return 0
            lines.feed(data)
            while (line := lines.next_line()) is not None:
                answers += probe.heard(json.loads(line))
        for answer in answers:
            os.write(1, encode(answer))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
