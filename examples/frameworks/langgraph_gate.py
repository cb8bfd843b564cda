"""LangGraph: a tool that does its work only if a person says so.

    pip install langgraph langchain-mcp-adapters langchain-openai
    python examples/frameworks/langgraph_gate.py gpt-5-mini "Publish that the release is out."

The tool asks through Intercom and waits. Answer with `agent-intercom-ctl`, in Slack, or wherever you are notified.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool, tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

#: The adapter starts a process for each call. The key makes them, and all runs of this program, one agent.
INTERCOM: dict[str, Any] = {
    "transport": "stdio",
    "command": "agent-intercom",
    "args": ["--agent", "langgraph-gate"],
}


async def transmit(tool: BaseTool, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call the tool that asks a person."""
    (said,) = await tool.ainvoke(arguments)
    answer: dict[str, Any] = json.loads(said["text"])
    return answer


async def allows(ask: BaseTool, question: str) -> bool:
    """Ask a person, and wait for as long as that takes. Only an answer of a person counts as a yes."""
    answer = await transmit(ask, {"prompt_text": question})
    while answer.get("status") in ("pending", "paused"):
        known = {"request_id": answer["request_id"]} if "request_id" in answer else {"prompt_text": question}
        answer = await transmit(ask, known)
    return answer.get("decision") == "continue" and not answer.get("timed_out")


def gated_graph(model: BaseChatModel, ask: BaseTool, board: Path) -> Any:
    """A graph whose model can publish text on a board, if a person allows each text."""

    @tool
    async def publish(text: str) -> str:
        """Publish a text for everybody."""
        if not await allows(ask, f"Publish this?\n\n{text}"):
            return "A person did not allow it. Do not try again."
        await asyncio.to_thread(board.write_text, text)
        return "Published."

    able = model.bind_tools([publish])

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await able.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([publish]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


async def run(model: BaseChatModel, task: str, server: dict[str, Any], board: Path) -> str:
    """Have the task done, and return what the model says."""
    tools = await MultiServerMCPClient({"intercom": server}).get_tools()
    (ask,) = (each for each in tools if each.name == "transmit")
    ended = await gated_graph(model, ask, board).ainvoke({"messages": [("user", task)]})
    return str(ended["messages"][-1].content)


if __name__ == "__main__":
    from langchain_openai import ChatOpenAI

    print(asyncio.run(run(ChatOpenAI(model=sys.argv[1]), sys.argv[2], INTERCOM, Path("board.txt"))))
