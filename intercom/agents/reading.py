"""The parsing of JSON-RPC messages, with an error answer for lines that are not messages."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
from pydantic import ValidationError


class NotAMessage(Exception):
    """The line is not a message. `answer` is the error for its sender; None if no answer is expected."""

    def __init__(self, answer: types.JSONRPCError | None) -> None:
        super().__init__("the line is no JSON-RPC message")
        self.answer = answer


def read(line: bytes) -> types.JSONRPCMessage:
    """Return the message in a line. Raises NotAMessage, and nothing else, for any other bytes."""
    try:
        return types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError:
        raise NotAMessage(_answer(line)) from None


def cancelled(message: types.JSONRPCMessage) -> str | int | None:
    """Return the id of the request that this message cancels; None for any other message."""
    if not isinstance(message, types.JSONRPCNotification) or message.method != "notifications/cancelled":
        return None
    given = (message.params or {}).get("requestId")
    # Booleans and floats are not ids: true and 1.0 would match the request 1.
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
    """Whether an answer can contain this id: half a surrogate pair can be read but not written."""
    try:
        str(value).encode()
    except ValueError:
        return False
    return True
