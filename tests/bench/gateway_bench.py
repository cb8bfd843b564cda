"""A downstream's tool through the gateway, against the same downstream called directly and through FastMCP's proxy.

All are called by the SDK's client on Trio, in turns, so that all meet the same noise. Directly, it speaks the version
of the protocol that the gateway speaks with that downstream, which is the newest of both: the downstream's own work
for a request differs by version. The gateway has roles, budgets, redaction and audit on, and the agent's shim is in
the path. The downstream is a bare SDK server in Python, and the MCP project's `everything` if INTERCOM_EVERYTHING
names its `dist/index.js`. FastMCP's row needs INTERCOM_FASTMCP, the python of an environment that has fastmcp.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import trio
from attrs import frozen
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.client.stdio import StdioServerParameters, stdio_client

from intercom.gateway.offer_snapshot import OfferSnapshot
from intercom.gateway.roles import parse
from tests.bench.bench_rig import SHIM, home, row

ROUNDS = 9
CALLS = 60
AT_ONCE = 16
BURST = 480
IDLE = 50

_PROXY = """
import sys
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy
create_proxy(StdioTransport(command=sys.argv[1], args=sys.argv[2:]), name="proxy").run(show_banner=False)
"""
#: A downstream that does nothing, and takes little memory itself.
_IDLE = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    if asked["method"] == "initialize":
        info = {"name": "idle", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "nothing", "inputSchema": {"type": "object"}}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@frozen
class Way:
    """One way to the downstream: the server to start, what its tool is called there, and how the client connects."""

    name: str
    command: list[str]
    tool: str
    mode: ConnectMode = "legacy"


def main() -> None:
    decisions()
    for name, command, argument in downstreams():
        with home() as root:
            configure(root, {name: command})
            serve(root)
            trio.run(compare, ways_to(root, name, command), argument)
    memory()


def downstreams() -> list[tuple[str, list[str], str]]:
    found = [("bare", [sys.executable, "-m", "tests.bench.bare_server"], "text")]
    everything = os.environ.get("INTERCOM_EVERYTHING")
    if everything:
        found.append(("everything", ["node", everything, "stdio"], "message"))
    return found


def ways_to(root: Path, name: str, command: list[str]) -> list[Way]:
    found = [
        Way(f"{name}, direct", command, "echo", "auto"),
        Way(f"{name}, through the gateway", [*SHIM, "--workspace", str(root / "w")], f"{name}__echo"),
    ]
    fastmcp = os.environ.get("INTERCOM_FASTMCP")
    if fastmcp:
        found.append(Way(f"{name}, through FastMCP's proxy", [fastmcp, "-c", _PROXY, *command], "echo"))
    return found


def configure(root: Path, commands: dict[str, list[str]]) -> None:
    """Write a gateway with these downstreams, each with a role's rules and a budget that never refuses."""
    own = root / "c" / "agent-intercom"
    gateway = own / "gateway"
    gateway.mkdir(exist_ok=True)
    (own / "config.toml").write_text("[ctl]\ntrust_agent_processes = true\n[gateway]\nenabled = true\n")
    budget = {"rateLimit": {"requestsPerSecond": 100_000, "burstSize": 100_000}, "dailyQuota": 10_000_000}
    for name, command in commands.items():
        entry = {
            "name": name,
            "transport": "stdio",
            "command": command[0],
            "args": command[1:],
            "cwd": os.getcwd(),
            "capabilities": [f"{name}.*"],
            "budget": budget,
            "schemaVersion": "1.0.0",
        }
        (gateway / f"{name}.json").write_text(json.dumps(entry))
    rules = [f"{name}.*" for name in commands]
    roles = {"roles": [{"role": "dev", "capabilities": rules, "deny": ["*.delete_*"]}], "defaultRole": "dev"}
    (gateway / "roles.json").write_text(json.dumps(roles))


def serve(root: Path) -> None:
    """Start the server, which `home` stops. One that a shim starts would be that of the installed package, whatever
    code is measured here."""
    subprocess.Popen([*SHIM, "serve"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not any((root / "r").rglob("*.mcp.sock")):
        time.sleep(0.05)


async def compare(ways: list[Way], argument: str) -> None:
    singles: dict[str, list[float]] = {way.name: [] for way in ways}
    rates: dict[str, list[float]] = {way.name: [] for way in ways}
    async with contextlib.AsyncExitStack() as stack:
        calls: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        for way in ways:
            calls.append((way.name, await stack.enter_async_context(connected(way, argument))))
        for _ in range(ROUNDS):
            for name, call in calls:
                singles[name].append(await median(call))
                rates[name].append(await rate(call))
    direct = statistics.median(singles[ways[0].name])
    for way in ways:
        took = statistics.median(singles[way.name])
        more = [one - base for one, base in zip(singles[way.name], singles[ways[0].name], strict=True)]
        reach = f"{statistics.median(more) * 1000:+.2f} ms, to reach: <= +1.00 ms" if "gateway" in way.name else ""
        row(f"{way.name}, one call", took, direct, reach)
    for way in ways:
        reach = "to reach: >= 600" if "gateway" in way.name else ""
        print(f"{f'{way.name}, {AT_ONCE} at once':<58} {statistics.median(rates[way.name]):9.0f} /s         {reach}")


async def seconds_of_a_call() -> float:
    """Return what one call of the bare server through the gateway takes, in seconds: the median, after a warm-up."""
    name, command, argument = downstreams()[0]
    with home() as root:
        configure(root, {name: command})
        serve(root)
        async with connected(ways_to(root, name, command)[1], argument) as call:
            return statistics.median([await median(call) for _ in range(ROUNDS)])


@contextlib.asynccontextmanager
async def connected(way: Way, argument: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Yield what calls the tool by this way once, warm."""
    parameters = StdioServerParameters(
        command=way.command[0], args=way.command[1:], env=dict(os.environ), cwd=os.getcwd()
    )
    async with Client(stdio_client(parameters), mode=way.mode) as client:
        await listed(client, way.tool)

        async def call() -> None:
            result = await client.call_tool(way.tool, {argument: "hello"})
            assert not result.is_error, result

        for _ in range(50):
            await call()
        yield call


async def listed(client: Client, tool: str) -> None:
    """Wait until a tool is listed: a downstream behind the gateway takes a moment to start."""
    with trio.fail_after(60):
        while all(each.name != tool for each in (await client.list_tools()).tools):  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)


async def median(call: Callable[[], Awaitable[None]]) -> float:
    times = []
    for _ in range(CALLS):
        began = time.perf_counter()
        await call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def rate(call: Callable[[], Awaitable[None]]) -> float:
    left = BURST

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call()

    began = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(work)
    return BURST / (time.perf_counter() - began)


def decisions() -> None:
    """The time of a decision of a role with 201 rules about tools that were never asked about."""
    rules = [f"d{number}.tool_{number}" for number in range(200)]
    roles, faults = parse({"roles": [{"role": "dev", "capabilities": rules, "ask": ["*.write_*"]}], "classes": {}})
    assert roles is not None, faults
    times = []
    snapshot = OfferSnapshot(roles=roles)
    for number in range(2000):
        began = time.perf_counter()
        snapshot.decision("dev", f"d{number % 200}", f"tool_{number}")
        times.append(time.perf_counter() - began)
    row("a decision of a role with 201 rules", statistics.median(times), None, "to reach: <= 0.05 ms")


def memory() -> None:
    """The server's own memory with and without idle downstreams."""
    found = {}
    for number in (0, IDLE):
        with home() as root:
            program = root / "idle.py"
            program.write_text(_IDLE)
            configure(root, {f"idle{at}": [sys.executable, "-S", "-E", str(program)] for at in range(number)})
            serve(root)
            trio.run(
                settle, [*SHIM, "--workspace", str(root / "w")], f"idle{number - 1}__nothing" if number else "ping"
            )
            found[number] = own_memory()
    each = (found[IDLE] - found[0]) / IDLE
    print(f"{f'{IDLE} idle downstreams, each':<58} {each / 1024:9.0f} KiB  (server alone {found[0] / 2**20:.0f} MiB)")


async def settle(command: list[str], tool: str) -> None:
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ), cwd=os.getcwd())
    async with Client(stdio_client(parameters), mode="legacy") as client:
        await listed(client, tool)


def own_memory() -> int:
    """The proportional set of the server that runs in this home, in bytes."""
    (server,) = (
        each
        for each in psutil.process_iter(["cmdline", "environ"])
        if "serve" in (each.info["cmdline"] or [])
        and (each.info["environ"] or {}).get("XDG_STATE_HOME") == os.environ["XDG_STATE_HOME"]
    )
    return int(server.memory_full_info().pss)


if __name__ == "__main__":
    main()
