"""The main job: an agent behind a real MCP client proposes, a person answers with ctl from beside it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.operators.ctl_server import environ
from tests.support.person_shell import the_person
from tests.support.server_process import COMMAND

CTL = [sys.executable, "-m", "intercom.cli.ctl", "--json"]

#: An agent's host: asks for clearance, tries to answer itself, then waits for the person and applies.
AGENT = """
import json, os, subprocess, sys
import trio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

workspace, diff = sys.argv[1], sys.argv[2]
parameters = StdioServerParameters(
    command=sys.executable, args=["-m", "intercom.cli.main", "--workspace", workspace], env=dict(os.environ)
)

def say(**what):
    print(json.dumps(what), flush=True)

async def main():
    async with Client(parameters) as client, trio.open_nursery() as nursery:
        async def ask():
            proposal = {"title": "Add a line", "diff": diff, "file_path": "notes.txt", "risk_level": "low"}
            answer = (await client.call_tool("check_clearance", proposal)).structured_content
            applied = await client.call_tool("check_diff", {"request_id": answer["request_id"]})
            say(answer=answer, applied=applied.structured_content)
        nursery.start_soon(ask)
        request_id = await trio.to_thread.run_sync(sys.stdin.readline)
        command = [sys.executable, "-m", "intercom.cli.ctl", "--json", "approve", request_id.strip()]
        tried = await trio.run_process(command, capture_stdout=True, check=False)
        say(tried=json.loads(tried.stdout), code=tried.returncode)

trio.run(main)
"""

DIFF = """--- a/notes.txt
+++ b/notes.txt
@@ -1 +1,2 @@
 one
+two
"""


async def ctl(env: dict[str, str], *words: str) -> tuple[int, Any]:
    done = await the_person().run_async([*CTL, *words], env)
    return done.returncode, json.loads(done.stdout)


async def json_lines(process: trio.Process) -> AsyncIterator[Any]:
    assert process.stdout is not None
    rest = b""
    async for chunk in process.stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


@contextlib.asynccontextmanager
async def running(command: list[str], env: dict[str, str], **options: Any) -> AsyncIterator[trio.Process]:
    process = await trio.lowlevel.open_process(command, env=env, start_new_session=True, **options)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.real_time
async def test_an_agent_proposes_and_a_person_beside_it_approves(tmp_path: Path) -> None:
    workspace = trio.Path(tmp_path, "work")
    await workspace.mkdir()
    await (workspace / "notes.txt").write_text("one\n")
    env = environ(tmp_path)
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    async with running([*COMMAND, "serve"], env, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        async for line in server.stderr:
            if b"ready" in line:
                break
        async with (
            running([*CTL, "watch"], env, stdout=subprocess.PIPE) as watch,
            running([sys.executable, "-c", AGENT, str(workspace), DIFF], env, **piped) as agent,
        ):
            async for event in json_lines(watch):
                if event["event"] == "card" and event["data"]["kind"] == "approval":
                    shown = event["data"]
                    break
            # Made by the server from the bytes, as git writes it.
            assert shown["diff"] == f"diff --git a/notes.txt b/notes.txt\n{DIFF}"
            said = json_lines(agent)
            assert agent.stdin is not None
            await agent.stdin.send_all(shown["request_id"].encode() + b"\n")
            tried = await anext(said)
            assert (tried["code"], tried["tried"]["error_code"]) == (1, "unauthorized")

            code, waiting = await ctl(env, "pending")
            assert (code, [entry["request_id"] for entry in waiting]) == (0, [shown["request_id"]])
            code, done = await ctl(env, "approve", shown["request_id"][:8])
            assert (code, done["status"]) == (0, "approved")
            result = await anext(said)
            assert result["answer"]["status"] == "approved"
            assert result["applied"]["status"] == "applied"
            assert await (workspace / "notes.txt").read_bytes() == b"one\ntwo\n"

            code, log = await ctl(env, "log")
            assert code == 0
            assert any(
                entry["kind"] == "security" and "refused approve" in entry["summary"] for entry in log["entries"]
            )
            code, again = await ctl(env, "reject", shown["request_id"])
            assert (code, again["error_code"]) == (1, "already_decided")
