"""Run by a Python that has a framework: proposes a change over the framework's own client, and applies it.

Prints each answer as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

Call = Callable[..., Awaitable[dict[str, Any]]]
CHANGE = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}


def say(answer: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(answer), flush=True)
    return answer


async def langgraph(start: dict[str, Any]) -> None:
    """As the adapter does it unless told otherwise: a process for each call."""
    from langchain_mcp_adapters.client import MultiServerMCPClient

    tools = await MultiServerMCPClient({"x": {"transport": "stdio", **start}}).get_tools()
    call = _of_langchain(tools)
    answer = await call("check_clearance", **CHANGE)
    await call("check_diff", request_id=answer["request_id"])


async def langgraph_limited(start: dict[str, Any]) -> None:
    """With one session, and a limit of 5 seconds a call."""
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    more = {"session_kwargs": {"read_timeout_seconds": timedelta(seconds=5)}}
    async with MultiServerMCPClient({"x": {"transport": "stdio", **start, **more}}).session("x") as session:
        await cut_and_continued(_of_langchain(await load_mcp_tools(session, handle_tool_errors=False)))


def _of_langchain(tools: Iterable[Any]) -> Call:
    by_name = {each.name: each for each in tools}

    async def call(name: str, **given: Any) -> dict[str, Any]:
        (said,) = await by_name[name].ainvoke(given)
        return say(json.loads(said["text"]))

    return call


async def openai_agents_limited(start: dict[str, Any]) -> None:
    """With the time limit that it has unless told otherwise: 5 seconds a call."""
    from agents.mcp import MCPServerStdio

    async with MCPServerStdio(start) as server:

        async def call(name: str, **given: Any) -> dict[str, Any]:
            result = await server.call_tool(name, given)
            return say(json.loads(result.content[0].text))

        await cut_and_continued(call)


async def pydantic_ai_limited(start: dict[str, Any]) -> None:
    """With a limit of 5 seconds a call."""
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    transport = StdioTransport(start["command"], start["args"], env=start["env"], cwd=start["cwd"])
    async with MCPToolset(transport, read_timeout=5) as intercom:

        async def call(name: str, **given: Any) -> dict[str, Any]:
            return say(await intercom.direct_call_tool(name, given))

        await cut_and_continued(call)


async def cut_and_continued(call: Call) -> None:
    """Propose a change in a call that the client cuts off, wait for the answer in further calls, and apply the change.
    A client that says that it cut the call off is told of its request; one that does not asks for the same again."""
    answer = await _or_cut(call("check_clearance", **CHANGE))
    cut_off = (await call("ping")).get("cut_off")
    again = {"request_id": cut_off[0]["request_id"]} if cut_off else CHANGE
    while answer.get("status", "pending") == "pending":
        answer = await _or_cut(call("check_clearance", **again))
    await call("check_diff", request_id=answer["request_id"])


async def _or_cut(answer: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return await answer
    except Exception as cut:
        return say({"cut": "imed out" in str(cut)})


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](json.loads(sys.argv[2])))
