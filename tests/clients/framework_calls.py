"""Run by a Python that has a framework: proposes a change over the framework's own client, and applies it.

Prints each answer as a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

CHANGE = {"title": "Add a", "diff": "a\n", "file_path": "a.txt"}


def say(answer: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(answer), flush=True)
    return answer


async def langgraph(start: dict[str, Any]) -> None:
    """As the adapter does it unless told otherwise: a process for each call."""
    from langchain_mcp_adapters.client import MultiServerMCPClient

    tools = {each.name: each for each in await MultiServerMCPClient({"x": {"transport": "stdio", **start}}).get_tools()}

    async def call(name: str, **given: Any) -> dict[str, Any]:
        (said,) = await tools[name].ainvoke(given)
        return say(json.loads(said["text"]))

    answer = await call("check_clearance", **CHANGE)
    await call("check_diff", request_id=answer["request_id"])


async def openai_agents(start: dict[str, Any]) -> None:
    """With the time limit that it has unless told otherwise: 5 seconds a call."""
    from agents.mcp import MCPServerStdio

    async with MCPServerStdio(start) as server:

        async def call(name: str, **given: Any) -> dict[str, Any]:
            result = await server.call_tool(name, given)
            return say(json.loads(result.content[0].text))

        try:
            await call("check_clearance", **CHANGE)
        except Exception as cut:
            say({"cut": "Timed out" in str(cut) or "timed out" in str(cut)})
        (cut_off,) = (await call("ping"))["cut_off"]
        answer: dict[str, Any] = {"status": "pending"}
        while answer["status"] == "pending":
            answer = await call(cut_off["tool"], request_id=cut_off["request_id"])
        await call("check_diff", request_id=cut_off["request_id"])


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](json.loads(sys.argv[2])))
