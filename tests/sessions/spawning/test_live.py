"""The real thing: a server of its own, an agent that ctl starts, its shim or its HTTP client, and kill -9."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.model.session import SessionStatus
from intercom.sessions.processes.monitor_client import marked
from tests.support.server_process import COMMAND, Home, user_home

pytestmark = pytest.mark.real_time

#: An MCP client by stdio or by HTTP, as its environment says, which asks for clearance and prints the verdict.
AGENT = f"""
import os, sys
import mcp_types as types
import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

def way():
    url = os.environ.get("INTERCOM_MCP_URL")
    if url is None:
        return StdioServerParameters(command={COMMAND[0]!r}, args={COMMAND[1:]!r}, env=dict(os.environ))
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
    token = os.environ["INTERCOM_HTTP_TOKEN"]
    headers = {{"Authorization": f"Bearer {{token}}"}}
    return streamable_http_client(url, http_client=httpx2.AsyncClient(headers=headers, timeout=60))

async def main():
    async with Client(way(), client_info=types.Implementation(name="claude-code", version="1")) as client:
        print("session", (await client.call_tool("ping", {{}})).structured_content["session_id"], flush=True)
        answer = await client.call_tool("check_clearance", {{"title": sys.argv[-1], "diff": "x\\n", "file_path": "x"}})
        print(answer.structured_content["status"], flush=True)

trio.run(main)
"""


def configure(home: Home, *more: str) -> Path:
    script = home.root / "agent.py"
    script.write_text(AGENT)
    # Settings of the file's top come first.
    lines = (f'host_cli = "{sys.executable}"', f"host_cli_args = {json.dumps(['-u', str(script)])}", *more)
    home.configure("\n".join([*lines, "[ctl]", "trust_agent_processes = true", ""]))
    return home.workspace()


async def ended(person: Any, id: str) -> dict[str, Any]:
    """Wait until the agent's process is over; its entry in the list of sessions."""
    while True:
        listed = (await person.do("list", everything=True))["sessions"]
        (entry,) = [each for each in listed if each["session_id"] == id]
        if entry["process"]["state"] == "over":
            return dict(entry)
        await trio.sleep(0.05)


async def served(home: Home) -> int:
    """Wait until a server answers; its pid."""
    while True:
        try:
            await (await trio.open_unix_socket(home.places.ctl_socket)).aclose()
            pid = home.server()
            assert pid is not None
            return pid
        except OSError:
            await trio.sleep(0.05)


async def start(person: Any, workspace: Path, task: str) -> tuple[str, str]:
    """The session of an agent that is started on this task, and the request that it makes."""
    id = (await person.do("start", text=task, workspace=str(workspace), verdict_id=f"{task}-12345"))["session_id"]
    card = await person.card(kind="approval", title=task, away=False)
    assert card["session_id"] == id
    return id, card["request_id"]


async def check_end(person: Any, id: str) -> None:
    entry = await ended(person, id)
    assert (entry["process"]["exit"], entry["status"]) == ("exit code 0", SessionStatus.TERMINATED.value)
    assert (await person.do("logs", id=id))["text"] == f"session {id}\napproved\n"


async def test_an_agent_by_http_claims_its_session() -> None:
    with user_home("") as home:
        workspace = configure(home, "http_port = 0")
        with home.serving():
            async with home.person() as person:
                id, request = await start(person, workspace, "task-one")
                await person.do("approve", id=request)
                await check_end(person, id)


async def test_agents_by_stdio_claim_their_sessions_and_outlive_a_server_that_is_killed() -> None:
    with user_home("") as home:
        workspace = configure(home)
        with home.serving() as first:
            async with home.person() as person:
                one, request = await start(person, workspace, "task-one")
                other, _ = await start(person, workspace, "task-other")
            first.send_signal(signal.SIGKILL)
            await trio.to_thread.run_sync(first.wait)
            # An agent's own shim starts the next one. It descends from that agent, and is none of its processes.
            second = await served(home)
            assert marked(second) is None
            async with home.person() as person:
                # Whoever did not hear that it was started asks again, and starts no other.
                assert await start(person, workspace, "task-one") == (one, request)
                await person.card(session_id=other, away=False)
                await person.do("clear", id=other)
                assert (await ended(person, other))["status"] == SessionStatus.TERMINATED.value
                await person.do("approve", id=request)
                await check_end(person, one)
                assert home.server() == second
            os.kill(second, signal.SIGKILL)
