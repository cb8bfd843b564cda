"""Run by a Python that has a framework: its example, with a script in place of the model.

Reads the framework's name and how to start Intercom from its arguments, and prints what the agent says in the end. The
script calls the gated tool once, and then repeats the tool's answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

TEXT = "The release is out."
TASK = "Publish that the release is out."


async def pydantic_ai(start: dict[str, Any], board: Path) -> str:
    import pydantic_ai_gate as gate
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, _info: Any) -> ModelResponse:
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse([TextPart(str(last.content))])
        return ModelResponse([ToolCallPart("publish", {"text": TEXT})])

    transport = StdioTransport(start["command"], start["args"], env=start["env"], cwd=start["cwd"])
    return await gate.run(FunctionModel(answer), TASK, transport, board)


async def openai_agents(start: dict[str, Any], board: Path) -> str:
    import openai_agents_gate as gate
    from agents import ModelResponse, Usage, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    class Scripted(Model):
        async def get_response(self, *_args: Any, input: Any, **_named: Any) -> ModelResponse:
            last = input[-1] if isinstance(input, list) else {}
            said: Any
            if last.get("type") == "function_call_output":
                text = ResponseOutputText(text=str(last["output"]), type="output_text", annotations=[])
                said = ResponseOutputMessage(
                    id="m1", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                given = json.dumps({"text": TEXT})
                said = ResponseFunctionToolCall(arguments=given, call_id="c1", name="publish", type="function_call")
            return ModelResponse([said], Usage(), None)

        def stream_response(self, *_args: Any, **_named: Any) -> Any:
            raise NotImplementedError

    set_tracing_disabled(True)
    return await gate.run(Scripted(), TASK, start, board)


async def langgraph(start: dict[str, Any], board: Path) -> str:
    import langgraph_gate as gate
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, _tools: Any, **_named: Any) -> Any:
            return self

        def _generate(self, messages: Any, *_args: Any, **_named: Any) -> ChatResult:
            if messages[-1].type == "tool":
                said = AIMessage(messages[-1].content)
            else:
                said = AIMessage("", tool_calls=[{"name": "publish", "args": {"text": TEXT}, "id": "c1"}])
            return ChatResult(generations=[ChatGeneration(message=said)])

    return await gate.run(Scripted(), TASK, {"transport": "stdio", **start}, board)


if __name__ == "__main__":
    framework, examples, start, board = sys.argv[1:]
    sys.path.insert(0, examples)
    print(asyncio.run(globals()[framework](json.loads(start), Path(board))))
