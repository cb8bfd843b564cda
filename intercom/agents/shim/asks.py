"""Requests a server sends to the client: their ids are kept apart by the server's life."""

from __future__ import annotations

import json
from typing import Any


class ServerAsks:
    """Gives each of a server's requests an id no other life used, and finds the way back for the answer.

    A request's progress token gets the same treatment, with the same id as the new token.
    """

    __slots__ = ("_life", "_open", "_tokens")

    def __init__(self) -> None:
        self._life = 0
        self._open: dict[str, Any] = {}
        self._tokens: dict[str, Any] = {}

    def new_life(self) -> list[str]:
        """Another server asks from here on; returns the ids of requests the old one left open."""
        left = list(self._open)
        self._life += 1
        self._open.clear()
        self._tokens.clear()
        return left

    def outward(self, message: dict[str, Any]) -> dict[str, Any]:
        """Turn a server's request into what the client sees."""
        key = f"s{self._life}/{json.dumps(message['id'])}"
        self._open[key] = message["id"]
        params: Any = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if not isinstance(meta, dict) or "progressToken" not in meta:
            return {**message, "id": key}
        self._tokens[key] = meta["progressToken"]
        return {**message, "id": key, "params": {**params, "_meta": {**meta, "progressToken": key}}}

    def inward(self, answer: dict[str, Any]) -> dict[str, Any] | None:
        """Turn a client's answer into what the server expects; None when no server waits for it (any more)."""
        key = answer.get("id")
        if not isinstance(key, str) or key not in self._open:
            return None
        self._tokens.pop(key, None)
        return {**answer, "id": self._open.pop(key)}

    def withdrawn(self, server_id: object) -> str | None:
        """The server cancelled its request: the id the client knows it by; None when it is not open."""
        key = f"s{self._life}/{json.dumps(server_id)}"
        if key not in self._open:
            return None
        del self._open[key]
        self._tokens.pop(key, None)
        return key

    def progressed(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """Turn a client's progress on a request of the server's into what the server expects; None to drop it."""
        token = params.get("progressToken")
        if not isinstance(token, str) or token not in self._tokens:
            return None
        return {**params, "progressToken": self._tokens[token]}
