"""An agent that comes in over HTTP may not answer for itself either: its process is known."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.agents.http import listener as http_listener
from intercom.local import own_files
from intercom.local.peer_processes import TcpClients
from intercom.web_server import acceptor
from intercom.web_server.http_request import Refusal
from intercom.web_server.server import Connection
from tests.agents.http.rig import BOTH, head, modern, read_reply, until
from tests.support.server_process import user_home

pytestmark = pytest.mark.real_time


async def test_a_verdict_from_a_process_that_is_in_over_http_is_refused() -> None:
    with user_home("") as home:
        root = home.workspace()
        impatient = '[clients."claude-code"]\ncall_wait_seconds = 0.1\n'
        home.configure(f'http_port = 0\ndefault_workspace_root = "{root}"\n{impatient}')
        with home.serving():
            file = Path(home.places.http_address_file)
            await until(file.exists)
            port = int(file.read_text().rpartition(":")[2])  # noqa: ASYNC240 - a line that is there
            tool, told = modern("check_clearance", {"title": "new", "diff": "a\n", "file_path": "a.txt"})
            answer = await _post(port, tool, {**told, "Authorization": f"Bearer {own_files.http_token(home.places)}"})
            id = answer["result"]["structuredContent"]["request_id"]
            async with home.person() as agent:
                refused = await agent.say("approve", id=id)
                assert (refused["ok"], refused["error_code"]) == (False, "unauthorized"), refused
                # To look is allowed.
                assert (await agent.do("pending"))[0]["request_id"] == id


async def _post(port: int, message: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
    data = json.dumps(message).encode()
    told: dict[str, str | None] = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": BOTH,
        "Content-Length": str(len(data)),
        **headers,
    }
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(head("POST", "/mcp?agent=one", told) + data)
        reply = await read_reply(stream)
    found: dict[str, Any] = json.loads(reply.body)
    return found


class Recorded:
    """Stands in for what keeps agents' processes on record."""

    def __init__(self, came: dict[str, frozenset[int]]) -> None:
        self._came = came

    async def came(self, connection: str, pids: frozenset[int]) -> None:
        self._came[connection] = pids

    def left(self, connection: str) -> None:
        self._came.pop(connection, None)


async def test_processes_that_are_not_found_in_time_are_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    came: dict[str, frozenset[int]] = {}
    found = 2**22 + 1

    def slow(_clients: object, _client: object, _server: object) -> dict[int, int]:
        release.wait(30)
        return {found: 3}

    monkeypatch.setattr(TcpClients, "search", slow)
    monkeypatch.setattr(acceptor, "SEARCH_SECONDS", 0.02)
    at = http_listener.ClientRecords(Recorded(came))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with await trio.open_tcp_stream(*listener.getsockname()) as stream:
            connection = Connection(stream, 1)
            with pytest.raises(Refusal, match="could not be found just now"):
                await at.look(connection)
            assert (connection.processes, came) == (None, {})
            release.set()
            monkeypatch.setattr(acceptor, "SEARCH_SECONDS", 30.0)
            await at.look(connection)
            assert connection.processes == {found}
            assert came == {"http/1": {found}}
            at.closed(connection)
            assert came == {}
