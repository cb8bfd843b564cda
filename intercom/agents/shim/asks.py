"""Requests from a server to the client, with ids that differ between server runs."""

from __future__ import annotations

import json
from typing import Any


class ServerAsks:
    """Maps each request of a server to an id that no other server run used, and its answer back. The request's progress
    token is mapped to the same id."""

    __slots__ = ("_life", "_open", "_tokens")

    def __init__(self) -> None:
        self._life = 0
        self._open: dict[str, Any] = {}
        self._tokens: dict[str, Any] = {}

    def new_life(self) -> list[str]:
        """Switch to another server run. Returns the open request ids of the earlier one."""
        left = list(self._open)
        self._life += 1
        self._open.clear()
        self._tokens.clear()
        return left

    def outward(self, message: dict[str, Any]) -> dict[str, Any]:
        """Convert a server's request to what the client sees."""
        key = f"s{self._life}/{json.dumps(message['id'])}"
        self._open[key] = message["id"]
        params: Any = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if not isinstance(meta, dict) or "progressToken" not in meta:
            return {**message, "id": key}
        self._tokens[key] = meta["progressToken"]
        return {**message, "id": key, "params": {**params, "_meta": {**meta, "progressToken": key}}}

    def inward(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """Convert a client's answer to what the server expects; None if no server waits for it."""
        key = answer.get("id")
        if not isinstance(key, str) or key not in self._open:
            return None
        self._tokens.pop(key, None)
        return {**answer, "id": self._open.pop(key)}

    def withdrawn(self, server_id: object) -> str | None:
        """Remove a request that the server cancelled. Returns the id that the client got; None if it is not open."""
        key = f"s{self._life}/{json.dumps(server_id)}"
        if key not in self._open:
            return None
        del self._open[key]
        self._tokens.pop(key, None)
        return key

    def progressed(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """Convert a client's progress report to what the server expects; None to drop it."""
        token = params.get("progressToken")
        if not isinstance(token, str) or token not in self._tokens:
            return None
        return {**params, "progressToken": self._tokens[token]}
