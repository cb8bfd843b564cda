"""The model of a timed probe: a stand-in on loopback that makes its agent call the one tool, then say it is done.

It serves the model APIs of Codex (`/v1/responses`), Claude Code and Copilot CLI (`/v1/messages`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from intercom.agents.clients.client import PROBE_NAME as NAME
from intercom.cli.probe_server import TOOL

Event = dict[str, Any]
_SERVER = f"mcp__{NAME}"
_USAGE = {"input_tokens": 1, "output_tokens": 1}
#: The longest request that is read, in bytes: agents send long instructions with the first message.
_LONGEST = 64 * 2**20


@contextmanager
def serving() -> Iterator[str]:
    """Serve the model until the end of the block, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = json.loads(self.rfile.read(min(length, _LONGEST)) or b"{}")
        if self.path.startswith("/v1/responses"):
            self._stream(responses(request))
        elif self.path.partition("?")[0] == "/v1/messages":
            self._stream(messages(request))
        else:
            self._nothing()

    def do_GET(self) -> None:
        self._nothing()

    do_HEAD = do_GET  # noqa: N815 - named by the library

    def _stream(self, events: list[Event]) -> None:
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _nothing(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def responses(request: dict[str, Any]) -> list[Event]:
    """Return the next step, as Codex expects it."""
    called = any(item.get("type") == "function_call_output" for item in request.get("input") or ())
    offered = any(str(tool.get("name")).startswith(_SERVER) for tool in request.get("tools") or ())
    item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant"}
    item["content"] = [{"type": "output_text", "text": "done", "annotations": []}]
    if offered and not called:
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": TOOL, "namespace": _SERVER}
        item["arguments"] = "{}"
    done = {"id": "r", "output": [item], "usage": {**_USAGE, "total_tokens": 2}}
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


def messages(request: dict[str, Any]) -> list[Event]:
    """Return the next step, as Claude Code and Copilot CLI expect it. The two name the tool differently."""
    offered = [str(tool.get("name")) for tool in request.get("tools") or ()]
    name = next((each for each in offered if each in (f"{_SERVER}__{TOOL}", f"{NAME}-{TOOL}")), None)
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": "done"}
    if name is not None and '"tool_result"' not in json.dumps(request.get("messages")):
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": "{}"}
    why = "end_turn" if block["type"] == "text" else "tool_use"
    message: Event = {"id": "m", "type": "message", "role": "assistant", "model": request.get("model"), "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": _USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": _USAGE},
        {"type": "message_stop"},
    ]
