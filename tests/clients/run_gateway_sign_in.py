"""Real servers with OAuth behind the gateway: a person signs in to the TypeScript SDK's example and to FastMCP's
server, an agent calls, and the sign-in ends."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.clients import npm, pypi
from tests.gateway.sign_in_command import browse, browse_elsewhere, configure_far, signing_in
from tests.support.person_shell import the_person
from tests.support.server_process import CTL, TRUSTING, Home, user_home

pytestmark = pytest.mark.real_time

CONFIG = f"http_port = 0\n{TRUSTING}\n[gateway]\nenabled = true\n"
COMMAND = "agent-intercom gateway sign-in far"
EXAMPLE = "@modelcontextprotocol/sdk/dist/esm/examples/server/simpleStreamableHttp.js"
#: How long a server may take to start on a busy machine (seconds).
START_SECONDS = 60.0


def free_ports(number: int) -> list[int]:
    """Ports that were free just now: these servers take no free one by themselves."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def program(command: list[str], port: int, **environ: str) -> Iterator[None]:
    """A server that listens at a port, for as long as the block."""
    process = subprocess.Popen(
        command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "it has ended"
                assert time.monotonic() < until, "it does not listen"
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def typescript() -> Iterator[str]:
    """The TypeScript SDK's example, whose page agrees at once. It renews no tokens, and offers no way to end one."""
    port, auth_port = free_ports(2)
    command = [npm.program("node"), str(npm.directory() / "node_modules" / EXAMPLE), "--oauth"]
    with program(command, port, MCP_PORT=str(port), MCP_AUTH_PORT=str(auth_port)):
        yield f"http://localhost:{port}/mcp"


@contextmanager
def fastmcp(port: int, seconds: int = 3600) -> Iterator[str]:
    """FastMCP's server with the tokens in its memory, whose page agrees at once."""
    script = Path(__file__).with_name("fastmcp_server.py")
    with program([pypi.fastmcp_python(), str(script), str(port), str(seconds)], port):
        yield f"http://127.0.0.1:{port}/mcp"


async def shown(home: Home, *words: str) -> str:
    """What ctl prints for people."""
    line = [word for word in CTL if word != "--json"]
    done = await the_person().run_async([*line, "gateway", *words], home.environ)
    return done.stdout + done.stderr


async def becomes(home: Home, text: str) -> None:
    """Wait until the list of the downstreams has this text."""
    with trio.fail_after(START_SECONDS):
        while text not in await shown(home, "list"):  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)


async def called(home: Home) -> str:
    return await shown(home, "call", "far", "greet", '{"name": "Kim"}')


async def signed_in(home: Home, *words: str, elsewhere: bool = False) -> str:
    """Sign in as a person does. Returns what the command said."""
    async with signing_in(home, "far", *words) as command:
        address = await command.address()
        if elsewhere:
            await command.paste(await browse_elsewhere(address))
        else:
            assert await browse(address) == 200
        code, said = await command.end()
    assert code == 0, said
    return said


async def sign_out(home: Home) -> str:
    done = await trio.to_thread.run_sync(lambda: home.command("gateway", "sign-out", "far"))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.real_time(seconds=300)
async def test_a_person_signs_in_to_the_typescript_sdks_example() -> None:
    with typescript() as url, user_home(CONFIG) as home:
        configure_far(home, url)
        with home.serving():
            await becomes(home, COMMAND)
            assert f"run '{COMMAND}'" in await called(home)
            said = await signed_in(home)
            assert "granted: mcp:tools" in said
            assert "cannot be renewed" in said
            await becomes(home, "ready")
            assert "Hello, Kim!" in await called(home)
            async with home.agent(home.workspace()) as client:
                result: Any = await client.call_tool("far__greet", {"name": "an agent"})
                assert result.content[0].text == "Hello, an agent!"
            await signed_in(home, elsewhere=True)
            await becomes(home, "ready")
            assert "offers no way to end the token" in await sign_out(home)
            await becomes(home, COMMAND)
            assert f"run '{COMMAND}'" in await called(home)


@pytest.mark.real_time(seconds=300)
async def test_a_person_signs_in_to_fastmcps_server_which_renews_ends_and_forgets() -> None:
    [port] = free_ports(1)
    with user_home(CONFIG) as home:
        configure_far(home, f"http://127.0.0.1:{port}/mcp")
        with fastmcp(port, seconds=2), home.serving():
            await becomes(home, COMMAND)
            assert "Intercom renews it" in await signed_in(home)
            await becomes(home, "ready")
            # Each call is long after the end of the token before.
            for _ in range(3):
                assert "Hello, Kim!" in await called(home)
                await trio.sleep(2.5)
            assert "has ended the token" in await sign_out(home)
            await becomes(home, COMMAND)
            await signed_in(home)
            await becomes(home, "ready")
        with fastmcp(port), home.serving():
            # It knows neither the token nor the client any more.
            await becomes(home, COMMAND)
            await signed_in(home, "--register")
            await becomes(home, "ready")
            assert "Hello, Kim!" in await called(home)
