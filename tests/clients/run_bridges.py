"""Programs between a client and Intercom, which turn stdio into HTTP or HTTP into stdio: all tools, and an approval."""

from __future__ import annotations

import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from intercom.sessions.tools.tool_table import BY_NAME
from tests.clients import npm, pypi
from tests.clients.ctl import ctl
from tests.clients.driver import content, driver
from tests.clients.over_http import configure_http
from tests.clients.run_sdk import CHANGE
from tests.support.server_process import Home

pytestmark = pytest.mark.real_time


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def listens(port: int) -> None:
    """Wait until a program listens on a port."""
    while True:
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", port)
        except OSError:
            await trio.sleep(0.1)
        else:
            await stream.aclose()
            return


@asynccontextmanager
async def running(command: list[str], home: Home) -> AsyncIterator[None]:
    """Run a bridge beside the client, for as long as this lasts."""
    process = await trio.lowlevel.open_process(command, env=home.environ, cwd=home.root)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def supergateway(home: Home, root: Path) -> AsyncIterator[dict[str, Any]]:
    """Without --stateful it starts a process of Intercom for each request."""
    port, start = free_port(), home.parameters("--workspace", str(root))
    command = [npm.program("supergateway"), "--stdio", shlex.join([start.command, *start.args])]
    more = ["--outputTransport", "streamableHttp", "--port", str(port)]
    with home.serving():
        async with running([*command, *more], home):
            await listens(port)
            yield {"over": "http", "url": f"http://127.0.0.1:{port}/mcp", "headers": {}}


@asynccontextmanager
async def mcp_proxy(home: Home, root: Path) -> AsyncIterator[dict[str, Any]]:
    """One process of Intercom for all its clients."""
    port, start = free_port(), home.parameters("--workspace", str(root))
    command = [pypi.mcp_proxy(), "--port", str(port), "--pass-environment", start.command, "--", *start.args]
    with home.serving():
        async with running(command, home):
            await listens(port)
            yield {"over": "http", "url": f"http://127.0.0.1:{port}/mcp", "headers": {}}


@asynccontextmanager
async def mcp_remote(home: Home, root: Path) -> AsyncIterator[dict[str, Any]]:
    """From a client that speaks stdio alone to a server over HTTP."""
    port = configure_http(home)
    with home.serving():
        told = port.address(root)
        headers = [word for name, value in told["headers"].items() for word in ("--header", f"{name}:{value}")]
        args = [told["url"], "--allow-http", "--transport", "http-only", *headers]
        yield {
            "over": "stdio",
            "command": npm.program("mcp-remote"),
            "args": args,
            "env": home.environ,
            "cwd": str(home.root),
        }


@pytest.mark.parametrize("bridge", [supergateway, mcp_proxy, mcp_remote])
async def test_over_a_bridge_all_tools_are_listed_and_a_change_is_approved_and_written(home: Home, bridge: Any) -> None:
    root = home.workspace()
    async with bridge(home, root) as reached, driver("driver_v1.mjs") as client:
        await client.do("connect", **reached)
        assert {tool["name"] for tool in await client.do("tools")} == BY_NAME.keys()
        asked = await client.begin("call", tool="check_clearance", arguments=CHANGE)
        async with home.person(root) as person:
            card = await person.card(kind="approval")
            await ctl(home, "approve", card["request_id"])
        answer = content(await asked())
        assert (answer["status"], answer["request_id"]) == ("approved", card["request_id"])
        applied = await client.call("check_diff", request_id=card["request_id"])
        assert applied["status"] == "applied"
        assert (root / "a.txt").read_text() == "a\n"
