"""How serving over HTTP stands, for whoever asks: nothing that has to be loaded for it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field, frozen


@frozen
class Guestbook:
    """How many connections are open; how many sessions and agents known by their name alone are in by them, and how
    many requests are being served."""

    connections: int = 0
    sessions: int = 0
    agents: int = 0
    requests: int = 0


@define
class Standing:
    """`port` is the one listened at now, None while there is none; `fault` then says why in a sentence. `token` is what
    callers have to show while it is open, None where nothing is asked. `guests` counts who is in."""

    host: str
    token: str | None = field(default=None, repr=False)
    port: int | None = None
    fault: str | None = None
    guests: Callable[[], Guestbook] = Guestbook

    @property
    def url(self) -> str | None:
        """Where MCP is served now; a client on this machine takes it as it is."""
        base = self.base
        return None if base is None else f"{base}/mcp"

    @property
    def base(self) -> str | None:
        """The same without a path."""
        if self.port is None:
            return None
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{self.port}"
