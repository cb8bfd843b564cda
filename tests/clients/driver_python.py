"""Run by a Python that has an SDK 1.x of MCP: its client, driven line by line as those in JavaScript are."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

Command = dict[str, Any]


async def main() -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    say({"ready": True})
    while line := await lines.readline():
        await connection(json.loads(line), lines)


async def connection(command: Command, lines: asyncio.StreamReader) -> None:
    """Connect, and do one command after another within the SDK's blocks, as programs do; until one fails."""
    try:
        async with transport(command) as (reads, writes, *_), ClientSession(reads, writes) as session:
            await session.initialize()
            say({"id": command["id"], "result": None})
            while line := await lines.readline():
                command = json.loads(line)
                say({"id": command["id"], "result": await done(command, session)})
    except Exception as failed:
        say({"id": command["id"], "error": {"code": None, "message": " ".join(map(str, reasons(failed)))}})


def transport(command: Command) -> Any:
    if command["over"] == "http":
        return streamablehttp_client(command["url"], headers=command["headers"])
    return stdio_client(StdioServerParameters(**{name: command[name] for name in ("command", "args", "env", "cwd")}))


async def done(command: Command, session: ClientSession) -> Any:
    if command["do"] == "tools":
        return [{"name": tool.name} for tool in (await session.list_tools()).tools]
    limit = timedelta(milliseconds=command["timeout"]) if "timeout" in command else None

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        say({"id": command["id"], "event": {"progress": message}})

    result = await session.call_tool(command["tool"], command["arguments"], limit, tell)
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def reasons(failed: BaseException) -> list[BaseException]:
    if isinstance(failed, BaseExceptionGroup):
        return [reason for each in failed.exceptions for reason in reasons(each)]
    return [failed]


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
