"""The status of the HTTP port, for the rest of the server. Loads nothing of the web server."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field, frozen

from intercom.model.server_view import local_base


@frozen
class SessionCounts:
    """The counts of open connections, HTTP sessions, agents known by name alone, and requests in progress."""

    connections: int = 0
    sessions: int = 0
    agents: int = 0
    requests: int = 0


@define
class HttpStatus:
    """The status of the HTTP service. `port` is the open port, None while there is none; `fault` then says why. `token`
    is the token that callers must show; None if none is required. `counts` returns the counts."""

    host: str
    token: str | None = field(default=None, repr=False)
    port: int | None = None
    fault: str | None = None
    counts: Callable[[], SessionCounts] = SessionCounts

    @property
    def url(self) -> str | None:
        """The URL of MCP for clients on this machine; None while the port is closed."""
        base = self.base
        return None if base is None else f"{base}/mcp"

    @property
    def base(self) -> str | None:
        """The same without a path."""
        return None if self.port is None else local_base(self.host, self.port)
