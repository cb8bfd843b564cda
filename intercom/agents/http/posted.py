"""Checks of a message in an HTTP request, before the SDK reads it."""

from __future__ import annotations

from http import HTTPStatus

import mcp_types as types

from intercom.agents import reading
from intercom.agents.http.refusal import Refusal, unclear


def require_initialize(method: str, data: bytes | None) -> None:
    """Raise Refusal for a message that opens no session, so that it cannot replace another session."""
    if method == "POST" and data is not None:
        try:
            message = reading.read(data)
        except reading.NotAMessage as unread:
            fault = (unread.answer or reading.refusal(None, types.INVALID_REQUEST, "not a JSON-RPC 2.0 message")).error
            raise Refusal(HTTPStatus.BAD_REQUEST, "invalid_arguments", fault.message, rpc=fault.code) from None
        if isinstance(message, types.JSONRPCRequest) and message.method == "initialize":
            return
    raise unclear("a request outside a session opens one with initialize: send its Mcp-Session-Id with all others")


def cancelled(data: bytes | None) -> str | int | None:
    """Return the id of the request that this message cancels, if it does."""
    if data is None or b"cancelled" not in data:
        return None
    try:
        return reading.cancelled(reading.read(data))
    except reading.NotAMessage:
        return None
