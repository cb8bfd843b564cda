"""The lines that the shim itself sends to the client."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from intercom.local.lines import encode

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
SERVER_ERROR = -32000


class Failure(NamedTuple):
    """Why there is no server: a code of docs/reference/errors.md, and a sentence."""

    code: str
    message: str


def result(request_id: object, value: dict[str, Any]) -> bytes:
    """Return a request's result."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": value})


def error(request_id: object, code: int, message: str, data: object = None) -> bytes:
    """Return a request's error; `request_id` is None if the request could not be read."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def notification(method: str, params: dict[str, Any]) -> bytes:
    """Return a notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def failed(request_id: object, method: str, failure: Failure, *, modern: bool) -> bytes:
    """Return the answer for a caller without a server, in the error shape of all tools. A tool call gets a result,
    which models read; other requests get a JSON-RPC error."""
    if method != "tools/call":
        return error(request_id, SERVER_ERROR, failure.message, {"error_code": failure.code})
    told = {"status": "error", "error_code": failure.code, "error_message": failure.message}
    value: dict[str, Any] = {
        "content": [{"type": "text", "text": json.dumps(told)}],
        "structuredContent": told,
        "isError": True,
    }
    return result(request_id, {**value, "resultType": "complete"} if modern else value)
