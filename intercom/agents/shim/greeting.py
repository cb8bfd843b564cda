"""The state of an MCP connection with handshake that each new server must be told again."""

from __future__ import annotations

from typing import Any

from intercom.local.lines import encode

#: The prefix of the shim's own request ids; their answers are not passed on.
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
        """Whether the client's `initialize` has been answered."""
        return self._initialize is not None

    def initialized(self) -> None:
        """Note that the client is ready."""
        self._initialized = True

    def learn(self, method: str, params: Any) -> None:
        """Note a request that succeeded, if its effect must outlive the server."""
        if method == "initialize":
            self._initialize = params
        elif method == "logging/setLevel":
            self._level = params
        elif method == "resources/subscribe" and isinstance(params, dict):
            self._subscribed[str(params.get("uri"))] = params
        elif method == "resources/unsubscribe" and isinstance(params, dict):
            self._subscribed.pop(str(params.get("uri")), None)

    def again(self) -> list[bytes]:
        """Return the lines that restore this state in a new server."""
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
