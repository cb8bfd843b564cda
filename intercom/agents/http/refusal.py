"""Refusals as HTTP responses: a status, and a body for JSON-RPC and for people."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import mcp_types as types
from attrs import field, frozen
from starlette.types import Send


@frozen
class Refusal(Exception):
    """A refused request. `code` is one of the documented error codes, `rpc` its JSON-RPC code."""

    status: HTTPStatus
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    rpc: int = field(default=types.INVALID_REQUEST)

    def body(self) -> bytes:
        error = {"code": self.rpc, "message": self.message, "data": {"error_code": self.code}}
        return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()

    async def send(self, send: Send) -> None:
        """Send this as the response, of which nothing may have been sent before."""
        await answer(send, self.status, b"application/json", self.body(), self.headers)


async def answer(
    send: Send, status: int, media_type: bytes, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a whole response."""
    told: list[tuple[bytes, bytes]] = [
        (b"content-type", media_type),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *headers,
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": int(status), "headers": told}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})


def unknown_path(path: str, known: tuple[str, ...]) -> Refusal:
    return Refusal(HTTPStatus.NOT_FOUND, "not_found", f"nothing is at {path[:200]!r}; there are {', '.join(known)}")


def wrong_method(path: str, *allowed: str) -> Refusal:
    allow = (b"allow", ", ".join(allowed).encode())
    message = f"{path} takes {' and '.join(allowed)}"
    return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", message, (allow,))


def too_many(message: str, status: HTTPStatus = HTTPStatus.TOO_MANY_REQUESTS) -> Refusal:
    return Refusal(status, "busy", message, ((b"retry-after", b"5"),))


def unclear(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "invalid_arguments", message)
