"""pydantic-ai: a tool that does its work only if a person says so.

    pip install 'pydantic-ai-slim[mcp,openai]'
    python examples/frameworks/pydantic_ai_gate.py openai:gpt-5-mini "Publish that the release is out."

The tool asks through Intercom and waits. Answer with `agent-intercom-ctl`, in Slack, or wherever you are notified.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models import Model

#: The key makes all runs of this program one agent, so that each finds the questions of an earlier one.
COMMAND = ["agent-intercom", "--agent", "pydantic-ai-gate"]


async def allows(intercom: MCPToolset, question: str) -> bool:
    """Ask a person, and wait for as long as that takes. Only an answer of a person counts as a yes."""
    answer = await intercom.direct_call_tool("transmit", {"prompt_text": question})
    while answer.get("status") in ("pending", "paused"):
        known = {"request_id": answer["request_id"]} if "request_id" in answer else {"prompt_text": question}
        answer = await intercom.direct_call_tool("transmit", known)
    return answer.get("decision") == "continue" and not answer.get("timed_out")


def gated_agent(model: Model | str, intercom: MCPToolset, board: Path) -> Agent:
    """An agent that can publish text on a board, if a person allows each text."""
    agent = Agent(model, instructions="Do what you are asked with your tools.")

    @agent.tool_plain
    async def publish(text: str) -> str:
        """Publish a text for everybody."""
        if not await allows(intercom, f"Publish this?\n\n{text}"):
            return "A person did not allow it. Do not try again."
        await asyncio.to_thread(board.write_text, text)
        return "Published."

    return agent


async def run(model: Model | str, task: str, transport: StdioTransport, board: Path) -> str:
    """Have the task done, and return what the agent says."""
    async with MCPToolset(transport) as intercom:
        return str((await gated_agent(model, intercom, board).run(task)).output)


if __name__ == "__main__":
    command, *arguments = COMMAND
    print(asyncio.run(run(sys.argv[1], sys.argv[2], StdioTransport(command, arguments), Path("board.txt"))))
