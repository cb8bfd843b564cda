"""What the shim itself says to the client, as lines."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from intercom.local.lines import encode

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
SERVER_ERROR = -32000


class Failure(NamedTuple):
    """Why there is no server: a code of docs/reference/errors.md and a sentence."""

    code: str
    message: str


def result(request_id: object, value: dict[str, Any]) -> bytes:
    """A request's result."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": value})


def error(request_id: object, code: int, message: str, data: object = None) -> bytes:
    """A request's error; `request_id` is None when the request could not be read."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def notification(method: str, params: dict[str, Any]) -> bytes:
    """A notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def failed(request_id: object, method: str, failure: Failure, *, modern: bool) -> bytes:
    """Tell a caller that there is no server, in the shape every tool's errors have.

    A tool call is answered with a result, which models read; anything else with a JSON-RPC error.
    """
    if method != "tools/call":
        return error(request_id, SERVER_ERROR, failure.message, {"error_code": failure.code})
    told = {"status": "error", "error_code": failure.code, "error_message": failure.message}
    value: dict[str, Any] = {
        "content": [{"type": "text", "text": json.dumps(told)}],
        "structuredContent": told,
        "isError": True,
    }
    return result(request_id, {**value, "resultType": "complete"} if modern else value)
