"""The demo's agent: a scripted MCP client in its own process, like a coding agent.

Its arguments are the workspace and the server's `ipc_name`. It reports events as JSON lines on stdout. It ends when its
stdin closes: the demo may be killed, and neither the agent nor the server may keep running.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from intercom._version import __version__
from intercom.cli.demo_server import end_all

if TYPE_CHECKING:
    from mcp.client import Client

NAME = "demo-agent"
FILE = "hello.py"

FIRST = '''\
"""Say hello."""


def hello(name: str) -> str:
    return f"Hello, {name}!"
'''

SECOND = '''\
"""Say hello, politely."""


def hello(name: str, title: str = "") -> str:
    if title:
        name = f"{title} {name}"
    return f"Hello, {name}!"
'''

SHORTER = 'print("Hello!")\n'


def main() -> None:
    workspace, ipc_name = sys.argv[1:]
    try:
        trio.run(_until_left_alone, Path(workspace), ipc_name)
    except BaseException as failed:
        tell("failed", message=_words(failed))
        raise SystemExit(1) from None
    finally:
        # The demo, which normally ends the server, may have been killed.
        end_all(ipc_name)


def tell(event: str, **what: Any) -> None:
    print(json.dumps({"event": event, **what}), flush=True)


async def _until_left_alone(workspace: Path, ipc_name: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_leave_with_parent, nursery.cancel_scope)
        nursery.start_soon(_work, workspace, ipc_name)


async def _leave_with_parent(scope: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
        while await stdin.receive_some():
            pass
    scope.cancel()


async def _work(workspace: Path, ipc_name: str) -> None:
    # Imported lazily: it takes half a second, and the demo itself imports only names from this module.
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp_types import Implementation

    began = time.monotonic()
    shim = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "intercom.cli.main", "--workspace", str(workspace), "--ipc-name", ipc_name],
        env=dict(os.environ),
        cwd=workspace,
    )
    async with Client(stdio_client(shim), client_info=Implementation(name=NAME, version=__version__)) as client:
        tools = (await client.list_tools()).tools
        tell("connected", tools=[tool.name for tool in tools], seconds=time.monotonic() - began)
        call = partial(_call, client)
        await _propose(call, f"Add {FILE}", FIRST, "A greeting, to begin with.")
        if (workspace / FILE).exists():
            await _propose(call, f"Let {FILE} take a title", patch(FIRST, SECOND), "Greets Dr. Ada as such.")
        else:
            await _propose(call, f"Add a shorter {FILE}", SHORTER, "The first one was not wanted. Perhaps this?")
        tell("finished")
        # The server ends with this process; until then the demo may read its log.
        await trio.sleep_forever()


async def _propose(call: Any, title: str, diff: str, description: str) -> None:
    tell("asks", title=title)
    began = time.monotonic()
    answer = await call("check_clearance", title=title, diff=diff, file_path=FILE, description=description)
    calls = 1
    while answer["status"] == "pending":
        answer = await call("check_clearance", request_id=answer["request_id"])
        calls += 1
    tell("answered", seconds=time.monotonic() - began, calls=calls, answer=answer)
    if answer["status"] == "approved":
        tell("applied", answer=await call("check_diff", request_id=answer["request_id"]))


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    answer = result.structured_content
    if result.is_error or not isinstance(answer, dict):
        said = answer.get("error_message") if isinstance(answer, dict) else None
        raise RuntimeError(f"{tool} was refused: {said or result.content}")
    return answer


def patch(before: str, after: str) -> str:
    """Return the diff that turns the demo's file from `before` into `after`."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{FILE}", f"b/{FILE}"
    )
    return "".join(lines)


def _words(failed: BaseException) -> str:
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    return str(failed) or type(failed).__name__


if __name__ == "__main__":
    main()
