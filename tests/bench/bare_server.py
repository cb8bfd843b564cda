"""The named peer: a bare SDK server on stdio with one tool that echoes, as its documentation has it."""

from __future__ import annotations

import json
from typing import Any

import anyio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server


async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return types.ListToolsResult(tools=[types.Tool(name="echo", description="say it again", input_schema=schema)])


async def call_tool(_ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    said = {"text": (params.arguments or {}).get("text", "")}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=json.dumps(said))], structured_content=said
    )


async def main() -> None:
    server: Server[Any] = Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, backend="asyncio")
