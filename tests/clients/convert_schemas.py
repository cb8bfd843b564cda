"""Run by a Python that has the clients: what their own converters make of the tools that come in as JSON lines.

Prints an object: for each converter, the arguments' schema by tool.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
from typing import Any

# openai-agents falls back to a schema that is not strict, and only logs that.
logging.basicConfig(level=logging.ERROR)


def by_google_genai(tool: dict[str, Any]) -> Any:
    from google.genai._mcp_utils import mcp_to_gemini_tools
    from mcp.types import Tool

    (made,) = mcp_to_gemini_tools([Tool.model_validate(tool)])
    (declared,) = made.function_declarations or ()
    return declared.model_dump(mode="json", exclude_none=True, by_alias=True)["parameters"]


def by_openai_agents(tool: dict[str, Any]) -> Any:
    from agents.mcp import MCPServerStdio
    from agents.mcp.util import MCPUtil
    from mcp.types import Tool

    server = MCPServerStdio({"command": "none"}, name="intercom")
    made = MCPUtil.to_function_tool(Tool.model_validate(tool), server, convert_schemas_to_strict=True)
    assert made.strict_json_schema, "it is not sent as strict"
    return made.params_json_schema


def by_pydantic_ai_for_openai(tool: dict[str, Any]) -> Any:
    from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

    return OpenAIJsonSchemaTransformer(copy.deepcopy(tool["inputSchema"]), strict=True).walk()


def by_pydantic_ai_for_gemini(tool: dict[str, Any]) -> Any:
    from pydantic_ai.profiles.google import GoogleOpenAPISchemaTransformer

    return GoogleOpenAPISchemaTransformer(copy.deepcopy(tool["inputSchema"])).walk()


CONVERTERS = (by_google_genai, by_openai_agents, by_pydantic_ai_for_openai, by_pydantic_ai_for_gemini)


if __name__ == "__main__":
    tools = json.load(sys.stdin)
    print(json.dumps({make.__name__: {tool["name"]: make(tool) for tool in tools} for make in CONVERTERS}))
