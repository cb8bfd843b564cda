"""What a connection of the handshake era is told once, and every later server must be told again."""

from __future__ import annotations

from typing import Any

from intercom.local.lines import encode

#: Ids of the shim's own requests begin so; their answers are for nobody else.
OWN = "intercom/"


class Greeting:
    """Remembers `initialize`, `notifications/initialized`, the log level and the subscriptions."""

    __slots__ = ("_asked", "_initialize", "_initialized", "_level", "_subscribed")

    def __init__(self) -> None:
        self._initialize: Any = None
        self._initialized = False
        self._level: Any = None
        self._subscribed: dict[str, Any] = {}
        self._asked = 0

    @property
    def given(self) -> bool:
        """Whether the client has been greeted: its `initialize` has been answered."""
        return self._initialize is not None

    def initialized(self) -> None:
        """The client has said that it is ready."""
        self._initialized = True

    def learn(self, method: str, params: Any) -> None:
        """A request has been answered with a result: keep what outlives the server that gave it."""
        if method == "initialize":
            self._initialize = params
        elif method == "logging/setLevel":
            self._level = params
        elif method == "resources/subscribe" and isinstance(params, dict):
            self._subscribed[str(params.get("uri"))] = params
        elif method == "resources/unsubscribe" and isinstance(params, dict):
            self._subscribed.pop(str(params.get("uri")), None)

    def again(self) -> list[bytes]:
        """The lines that bring a new server to where the last one was."""
        lines: list[bytes] = []
        if self.given:
            lines.append(self._own("initialize", self._initialize))
            if self._initialized:
                lines.append(encode({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        if self._level is not None:
            lines.append(self._own("logging/setLevel", self._level))
        return lines + [self._own("resources/subscribe", params) for params in self._subscribed.values()]

    def _own(self, method: str, params: Any) -> bytes:
        self._asked += 1
        return encode({"jsonrpc": "2.0", "id": f"{OWN}{self._asked}/{method}", "method": method, "params": params})
