"""Reading JSON-RPC messages: a line that is none is answered, where it says to whom, and harms nobody."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
from pydantic import ValidationError


class NotAMessage(Exception):
    """`answer` is what its sender is to be told; None where nobody waits for one."""

    def __init__(self, answer: types.JSONRPCError | None) -> None:
        super().__init__("the line is no JSON-RPC message")
        self.answer = answer


def read(line: bytes) -> types.JSONRPCMessage:
    """The message in a line. Raises NotAMessage, and nothing else, whatever the bytes."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        raise NotAMessage(_answer(line)) from None


def cancelled(message: types.JSONRPCMessage) -> str | int | None:
    """The id of the request that this message cancels; None for any other message."""
    if not isinstance(message, types.JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    given = (message.params or {}).get("requestId")
    # What can be no id: true and 1.0 would name the request 1.
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None


def refusal(request_id: str | int | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


def _answer(line: bytes) -> types.JSONRPCError | None:
    try:
        said: Any = json.loads(line)
    except (ValueError, RecursionError):
        return refusal(None, types.PARSE_ERROR, "not a line of JSON that can be read: send one message a line")
    if isinstance(said, dict) and "id" not in said and "method" in said:
        return None
    given = said.get("id") if isinstance(said, dict) and "method" in said else None
    known = given if isinstance(given, str | int) and not isinstance(given, bool) and _can_be_written(given) else None
    text = "not a JSON-RPC 2.0 request: it has jsonrpc, id, method, and params: an object nested less than 200 deep"
    return refusal(known, types.INVALID_REQUEST, text)


def _can_be_written(value: str | int) -> bool:
    """Whether an answer could carry it: half a surrogate pair can be read and not written."""
    try:
        str(value).encode()
    except ValueError:
        return False
    return True
