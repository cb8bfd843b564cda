"""openai-agents: a tool that does its work only if a person says so.

    pip install openai-agents
    python examples/frameworks/openai_agents_gate.py gpt-5-mini "Publish that the release is out."

The tool asks through Intercom and waits. Answer with `agent-intercom-ctl`, in Slack, or wherever you are notified.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agents import Agent, Runner, function_tool
from agents.mcp import MCPServerStdio, MCPServerStdioParams
from agents.models.interface import Model

#: The key makes all runs of this program one agent, so that each finds the questions of an earlier one.
INTERCOM: MCPServerStdioParams = {"command": "agent-intercom", "args": ["--agent", "openai-agents-gate"]}
#: The framework ends a call after 5 seconds unless told otherwise. Intercom answers "pending" after 50.
CALL_SECONDS = 60


async def transmit(intercom: MCPServerStdio, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call the tool that asks a person."""
    result = await intercom.call_tool("transmit", arguments)
    answer: dict[str, Any] = json.loads(result.content[0].text)
    return answer


async def allows(intercom: MCPServerStdio, question: str) -> bool:
    """Ask a person, and wait for as long as that takes. Only an answer of a person counts as a yes."""
    answer = await transmit(intercom, {"prompt_text": question})
    while answer.get("status") in ("pending", "paused"):
        known = {"request_id": answer["request_id"]} if "request_id" in answer else {"prompt_text": question}
        answer = await transmit(intercom, known)
    return answer.get("decision") == "continue" and not answer.get("timed_out")


def gated_agent(model: Model | str, intercom: MCPServerStdio, board: Path) -> Agent[Any]:
    """An agent that can publish text on a board, if a person allows each text."""

    # An error ends the run: told to the model, it would only be asked again.
    @function_tool(failure_error_function=None)
    async def publish(text: str) -> str:
        """Publish a text for everybody."""
        if not await allows(intercom, f"Publish this?\n\n{text}"):
            return "A person did not allow it. Do not try again."
        await asyncio.to_thread(board.write_text, text)
        return "Published."

    return Agent("publisher", instructions="Do what you are asked with your tools.", model=model, tools=[publish])


async def run(model: Model | str, task: str, server: MCPServerStdioParams, board: Path) -> str:
    """Have the task done, and return what the agent says."""
    async with MCPServerStdio(server, client_session_timeout_seconds=CALL_SECONDS) as intercom:
        return str((await Runner.run(gated_agent(model, intercom, board), task)).final_output)


if __name__ == "__main__":
    print(asyncio.run(run(sys.argv[1], sys.argv[2], INTERCOM, Path("board.txt"))))
