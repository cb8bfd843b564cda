"""What HTTP needs to know of messages: their text and headers, and whether one is the answer to a POST. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Final

from mcp.shared.inbound import (
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types import PROTOCOL_VERSION_META_KEY

from intercom.gateway.breaker import Failure
from intercom.gateway.http_exchange import ExchangeFailed
from intercom.model.json_types import JsonObject, part

#: How many tools with arguments in headers are remembered.
_MARKED_TOOLS: Final = 10_000
#: Longer messages are not decoded here; whether they are the answer is guessed from both ends (bytes).
_DECODED_BYTES: Final = 65_536
_ENDS: Final = 256


def encoded(message: JsonObject) -> bytes:
    """Return the JSON text of a message. Raises ValueError if it is not JSON."""
    try:
        # In ASCII, because half of a surrogate pair has no UTF-8.
        return json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    except (TypeError, RecursionError):
        raise ValueError("the message is not JSON") from None


def version_in(message: JsonObject) -> str | None:
    """The protocol version that a message itself names, as those of 2026-07-28 do."""
    version = part(part(message, "params"), "_meta").get(PROTOCOL_VERSION_META_KEY)
    return version if isinstance(version, str) else None


def mirrored_headers(message: JsonObject, marked: Mapping[str, Mapping[tuple[str, ...], str]]) -> dict[str, str]:
    """Return the headers in which a message of 2026-07-28 is mirrored: its method, the name it is about, and the
    arguments that the tool's schema marks. `marked` has the headers by argument's path, by tool. Raises ValueError for
    what no header can have."""
    method, params = message.get("method"), part(message, "params")
    if not isinstance(method, str):
        return {}
    headers = {"mcp-method": encode_header_value(method)}
    name = params.get(NAME_BEARING_METHODS.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = encode_header_value(name)
        if method == "tools/call" and name in marked:
            headers |= mcp_param_headers(marked[name], part(params, "arguments"))
    return headers


def note_marked(marked: dict[str, dict[tuple[str, ...], str]], data: bytes) -> None:
    """Note in `marked` what the tools in this answer to `tools/list` mark for headers."""
    try:
        tools = json.loads(data)["result"]["tools"]
        named = [(tool["name"], tool.get("inputSchema")) for tool in tools if isinstance(tool.get("name"), str)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return
    for name, schema in named:
        marked.pop(name, None)
        # Other clients leave a tool with an invalid mark out. Here it is only called without headers.
        if find_invalid_x_mcp_header(schema) is None and (headers := x_mcp_header_map(schema)):
            marked[name] = headers
            if len(marked) > _MARKED_TOOLS:
                del marked[next(iter(marked))]


class Answer(Enum):
    """Whether a message is the answer to the request that its stream belongs to."""

    NO = "no"
    YES = "yes"
    #: It looks so at both ends, and is too long to be decoded here.
    GUESSED = "guessed"


def judge(data: bytes, id: int) -> tuple[bytes, Answer]:
    """Return what to deliver of a message, and whether it is the answer to the request with this id.

    What is not JSON is no answer. An error without an id gets this one, because the POST tells what it is about.
    Raises ExchangeFailed if it is an answer to another request.
    """
    if len(data) > _DECODED_BYTES:
        start, end = data[:_ENDS], data[-_ENDS:]
        is_answer = b'"method"' not in start and any(key in start + end for key in (b'"result"', b'"error"'))
        return data, Answer.GUESSED if is_answer else Answer.NO
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return data, Answer.NO
    found = Answer.NO
    for each in message if isinstance(message, list) else [message]:
        if not isinstance(each, dict) or "method" in each or not ("result" in each or "error" in each):
            continue
        answered = each.get("id")
        if answered is None and each is message and "error" in each:
            data = encoded({**each, "id": id})
        elif isinstance(answered, bool) or answered not in (id, str(id)):
            raise ExchangeFailed(Failure.PROTOCOL, "the server answered with the id of another request")
        found = Answer.YES
    return data, found
