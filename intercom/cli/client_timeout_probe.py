"""A timed probe: runs a client with a scripted model and a tool that does not answer, to see when it gives up.

The client is the user's own. Its model is a stand-in on loopback, so that it needs no account. Its directories are made
for the probe. Of the user's settings, only the time-out for a call applies.

`python -m intercom.cli.client_timeout_probe FILE SECONDS` is the MCP server of the probe, on stdin and stdout. It
writes the outcome of the call and its seconds to FILE: `held` (answered after SECONDS), or `cancelled` or `closed` by
the client.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import tomlkit
from attrs import frozen

from intercom.agents.clients import CLIENTS
from intercom.agents.clients.client import PROBE_NAME as NAME
from intercom.agents.clients.client import Client, rows
from intercom.local.wire import LineBuffer, encode
from intercom.model.json_types import Json, JsonObject, part

#: Seconds that a client has to start and to end, besides the call.
_AROUND_SECONDS = 60.0


@frozen
class Outcome:
    """The result of a probe. `how` is held, cancelled or closed; `seconds` is how long the call was open. `progress`
    says whether the client asked for progress reports."""

    how: str
    seconds: float
    progress: bool


class ProbeFailed(Exception):
    """Raised if the client could not be probed; the message says why."""


def run(client: Client, entry: Mapping[str, Json], seconds: float) -> Outcome:
    """Probe a client for at most `seconds`, with the time-out in `entry`, the user's own for Intercom.

    Raises ProbeFailed if there is no probe for the client, it is not installed, or did not call the tool.
    """
    if client.probe is None:
        known = ", ".join(each.name for each in CLIENTS.values() if each.probe is not None)
        raise ProbeFailed(f"there is no probe for {client.name}: there is one for {known}")
    program = shutil.which(client.probe.program)
    if program is None:
        raise ProbeFailed(f"{client.probe.program} is not on the PATH")
    with tempfile.TemporaryDirectory(prefix="intercom-probe-") as made, serving() as model:
        home = Path(made)
        note = home / "note.json"
        server = [sys.executable, "-P", "-m", "intercom.cli.client_timeout_probe", str(note), str(seconds)]
        planned = client.probe.run(made, model, _entry(client, server, entry))
        dump = tomlkit.dumps if planned.file.endswith(".toml") else json.dumps
        (home / planned.file).write_text(dump(planned.content))
        work = home / "work"
        work.mkdir()
        _run_client([program, *planned.arguments], os.environ | planned.environ, work, seconds + _AROUND_SECONDS)
        if not note.exists():
            text = "did not call the tool of the probe: is this version known to work?"
            raise ProbeFailed(f"{client.probe.program} {text}")
        return Outcome(**json.loads(note.read_text()))


def _entry(client: Client, server: list[str], entry: Mapping[str, Json]) -> JsonObject:
    """Return the entry that `init` would write for the probe's server, with the time-out of the user's `entry`."""
    limit = client.entry.timeout
    found = client.entry.stdio(server)
    if limit is None:
        return found
    found.pop(limit.key, None)
    return found | ({limit.key: entry[limit.key]} if limit.key in entry else {})


def _run_client(command: list[str], environ: Mapping[str, str], work: Path, seconds: float) -> None:
    process = subprocess.Popen(
        command,
        env=dict(environ),
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # Kill its whole process group, with everything that it started.
        try:
            os.killpg(process.pid, 9)
        except ProcessLookupError:
            pass
        process.wait()


_SERVER = f"mcp__{NAME}"
_USAGE: JsonObject = {"input_tokens": 1, "output_tokens": 1}
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

    def _stream(self, events: list[JsonObject]) -> None:
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

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def responses(request: JsonObject) -> list[JsonObject]:
    """Return the next step, as Codex expects it."""
    called = any(item.get("type") == "function_call_output" for item in rows(request, "input"))
    offered = any(str(tool.get("name")).startswith(_SERVER) for tool in rows(request, "tools"))
    item: JsonObject = {"type": "message", "id": "m", "role": "assistant"}
    item["content"] = [{"type": "output_text", "text": "done", "annotations": []}]
    if offered and not called:
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": TOOL, "namespace": _SERVER}
        item["arguments"] = "{}"
    done: JsonObject = {"id": "r", "output": [item], "usage": {**_USAGE, "total_tokens": 2}}
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": done},
    ]


def messages(request: JsonObject) -> list[JsonObject]:
    """Return the next step, as Claude Code and Copilot CLI expect it. The two name the tool differently."""
    offered = [str(tool.get("name")) for tool in rows(request, "tools")]
    name = next((each for each in offered if each in (f"{_SERVER}__{TOOL}", f"{NAME}-{TOOL}")), None)
    block: JsonObject = {"type": "text", "text": ""}
    delta: JsonObject = {"type": "text_delta", "text": "done"}
    if name is not None and '"tool_result"' not in json.dumps(request.get("messages")):
        block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": "{}"}
    why = "end_turn" if block["type"] == "text" else "tool_use"
    message: JsonObject = {"id": "m", "type": "message", "role": "assistant", "model": request.get("model")}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": _USAGE}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": _USAGE},
        {"type": "message_stop"},
    ]


TOOL = "hold"
#: Seconds between progress reports, as in our waiting tools.
PROGRESS_SECONDS = 15.0
_LIMIT = 2**20


class Probe:
    """The state of the probe: the call that is held open, and for how many `seconds`."""

    def __init__(self, note: str, seconds: float) -> None:
        self._note = note
        self._seconds = seconds
        self._call: Json = None
        self._token: Json = None
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

    def on_time(self) -> list[JsonObject]:
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

    def heard(self, message: JsonObject) -> list[JsonObject]:
        """Return the answers to the client's message."""
        method, id, params = message.get("method"), message.get("id"), part(message, "params")
        if method == "notifications/cancelled" and self._call is not None and params.get("requestId") == self._call:
            self._call = None
            self._end("cancelled")
        if id is None or method is None:
            return []
        if method == "initialize":
            told: JsonObject = {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "1"},
            }
            return [_result(id, told)]
        if method == "tools/list":
            schema: JsonObject = {"type": "object", "properties": {}}
            return [_result(id, {"tools": [{"name": TOOL, "description": "Hold.", "inputSchema": schema}]})]
        if method == "tools/call" and self._call is None and not self.over:
            self._call, self._token = id, part(params, "_meta").get("progressToken")
            self._began = self._reported = time.monotonic()
            return [self._progress(self._began)] if self._token is not None else []
        if method == "ping":
            return [_result(id, {})]
        return [{"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}}]

    def closed(self) -> None:
        """Record that the client closed its end."""
        if self._call is not None:
            self._end("closed")

    def _progress(self, now: float) -> JsonObject:
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


def _result(id: Json, result: JsonObject) -> JsonObject:
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
