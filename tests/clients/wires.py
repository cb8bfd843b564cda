"""How agents speak with their models: OpenAI's responses (Codex) and chat completions (opencode, Qwen Code),
Anthropic's messages (Claude Code, Copilot CLI) and Gemini's contents (Gemini CLI)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

from attrs import frozen

Event = tuple[str, dict[str, Any]]
_numbers = itertools.count(1)


@frozen
class Wire:
    """`server` is how the agent names an MCP server to its model; `tools` names what it offers it; `last_result` what
    the last tool call was answered, None when the conversation begins; `call` (of no server: the agent's own tool) and
    `say` write a step as the events of an answer, which have no name on some wires; `whole` writes it as one value."""

    server: Callable[[str], str]
    tools: Callable[[dict[str, Any]], Iterator[str]]
    last_result: Callable[[dict[str, Any]], str | None]
    call: Callable[[dict[str, Any], str, str, dict[str, Any]], list[Event]]
    say: Callable[[dict[str, Any], str], list[Event]]
    whole: Callable[[list[Event]], dict[str, Any]]


def told(result: str) -> dict[str, Any]:
    """What our tool said, from the text in which an agent told its model of it: the first object in it that is ours."""
    decoder = json.JSONDecoder()
    for text in (result, result.replace('\\"', '"')):
        for at, letter in enumerate(text):
            if letter != "{":
                continue
            try:
                found, _ = decoder.raw_decode(text, at)
            except ValueError:
                continue
            for candidate in (found, found.get("structuredContent"), found.get("structured_content")):
                if isinstance(candidate, dict) and candidate and "content" not in candidate:
                    return candidate
    raise AssertionError(f"there is no answer of ours in: {result}")


# --- responses -------------------------------------------------------------------------------------------------------


def _response_tools(request: dict[str, Any]) -> Iterator[str]:
    for tool in request.get("tools") or ():
        yield str(tool.get("name"))
        for inner in tool.get("tools") or ():
            yield f"{tool.get('name')}__{inner.get('name')}"


def _response_last(request: dict[str, Any]) -> str | None:
    last = None
    for item in request.get("input") or ():
        if item.get("type") == "message" and item.get("role") == "user":
            last = None
        if item.get("type") == "function_call_output":
            output = item["output"]
            last = output if isinstance(output, str) else "\n".join(str(part.get("text", "")) for part in output)
    return last


def _response(item: dict[str, Any]) -> list[Event]:
    number = next(_numbers)
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        ("response.created", {"type": "response.created", "response": {"id": f"resp_{number}"}}),
        ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
        (
            "response.completed",
            {"type": "response.completed", "response": {"id": f"resp_{number}", "output": [item], "usage": usage}},
        ),
    ]


def _response_call(_request: dict[str, Any], server: str, tool: str, arguments: dict[str, Any]) -> list[Event]:
    number = next(_numbers)
    return _response(
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": tool,
            **({"namespace": server} if server else {}),
            "arguments": json.dumps(arguments),
        }
    )


def _response_say(_request: dict[str, Any], text: str) -> list[Event]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return _response({"type": "message", "id": f"msg_{next(_numbers)}", "role": "assistant", "content": content})


def _response_whole(events: list[Event]) -> dict[str, Any]:
    whole: dict[str, Any] = events[-1][1]["response"]
    return whole


# --- messages --------------------------------------------------------------------------------------------------------


def _message_tools(request: dict[str, Any]) -> Iterator[str]:
    for tool in request.get("tools") or ():
        yield str(tool.get("name"))


def _message_last(request: dict[str, Any]) -> str | None:
    messages = [each for each in request.get("messages") or () if each.get("role") == "user"]
    parts = messages[-1].get("content") if messages else None
    if not isinstance(parts, list):
        return None
    results = [part for part in parts if part.get("type") == "tool_result"]
    if not results:
        return None
    content = results[-1].get("content")
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content or ())


def _message(request: dict[str, Any], block: dict[str, Any], delta: dict[str, Any], why: str) -> list[Event]:
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    message = {
        "id": f"msg_{next(_numbers)}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [(str(event["type"]), event) for event in events]


def _message_call(request: dict[str, Any], server: str, tool: str, arguments: dict[str, Any]) -> list[Event]:
    name = f"{server}{tool}"
    block = {"type": "tool_use", "id": f"toolu_{next(_numbers)}", "name": name, "input": {}}
    return _message(request, block, {"type": "input_json_delta", "partial_json": json.dumps(arguments)}, "tool_use")


def _message_say(request: dict[str, Any], text: str) -> list[Event]:
    return _message(request, {"type": "text", "text": ""}, {"type": "text_delta", "text": text}, "end_turn")


def _message_whole(events: list[Event]) -> dict[str, Any]:
    (start, block, delta, _, end, _) = (data for _, data in events)
    content = {**block["content_block"]}
    if "text" in delta["delta"]:
        content["text"] = delta["delta"]["text"]
    else:
        content["input"] = json.loads(delta["delta"]["partial_json"])
    return {**start["message"], "content": [content], **end["delta"]}


# --- chat completions -----------------------------------------------------------------------------------------------


def _chat_tools(request: dict[str, Any]) -> Iterator[str]:
    for tool in request.get("tools") or ():
        yield str(tool["function"]["name"])


def _chat_last(request: dict[str, Any]) -> str | None:
    messages = [each for each in request.get("messages") or () if each["role"] != "system"]
    if not messages or messages[-1]["role"] != "tool":
        return None
    content = messages[-1]["content"]
    return content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)


def _chat(request: dict[str, Any], delta: dict[str, Any], why: str) -> list[Event]:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": f"chatcmpl-{next(_numbers)}", "object": "chat.completion.chunk", "created": 1}
    chunk = {**head, "model": request.get("model")}
    return [
        ("", {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}]}),
        ("", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": why}], "usage": usage}),
    ]


def _chat_call(request: dict[str, Any], server: str, tool: str, arguments: dict[str, Any]) -> list[Event]:
    function = {"name": f"{server}{tool}", "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": f"call_{next(_numbers)}", "type": "function", "function": function}
    return _chat(request, {"tool_calls": [call]}, "tool_calls")


def _chat_say(request: dict[str, Any], text: str) -> list[Event]:
    return _chat(request, {"content": text}, "stop")


def _chat_whole(events: list[Event]) -> dict[str, Any]:
    ((_, first), (_, last)) = events
    choice = {**last["choices"][0], "message": first["choices"][0]["delta"]}
    return {**last, "object": "chat.completion", "choices": [choice]}


# --- contents --------------------------------------------------------------------------------------------------------


def _content_tools(request: dict[str, Any]) -> Iterator[str]:
    for tool in request.get("tools") or ():
        for function in tool.get("functionDeclarations") or ():
            yield str(function["name"])


def _content_last(request: dict[str, Any]) -> str | None:
    contents = request.get("contents") or ()
    results = [part["functionResponse"] for part in contents[-1]["parts"] if "functionResponse" in part]
    if not results:
        return None
    response = results[-1]["response"]
    return str(response.get("output") or response.get("error") or json.dumps(response))


def _content(part: dict[str, Any]) -> list[Event]:
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    return [("", {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"})]


def _content_call(_request: dict[str, Any], server: str, tool: str, arguments: dict[str, Any]) -> list[Event]:
    return _content({"functionCall": {"name": f"{server}{tool}", "args": arguments}})


def _content_say(_request: dict[str, Any], text: str) -> list[Event]:
    return _content({"text": text})


def _content_whole(events: list[Event]) -> dict[str, Any]:
    return events[0][1]


RESPONSES = Wire(
    lambda name: f"mcp__{name.replace('-', '_')}",
    _response_tools,
    _response_last,
    _response_call,
    _response_say,
    _response_whole,
)
MESSAGES = Wire(
    lambda name: f"mcp__{name}__", _message_tools, _message_last, _message_call, _message_say, _message_whole
)
CHAT = Wire(lambda name: f"{name}_", _chat_tools, _chat_last, _chat_call, _chat_say, _chat_whole)
CONTENTS = Wire(lambda name: f"mcp_{name}_", _content_tools, _content_last, _content_call, _content_say, _content_whole)
PATHS = {
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/chat/completions": CHAT,
    "/v1beta/models/{model}:generateContent": CONTENTS,
    "/v1beta/models/{model}:streamGenerateContent": CONTENTS,
}
