"""How serving over HTTP stands, for whoever asks: nothing that has to be loaded for it."""

from __future__ import annotations

from attrs import define


@define
class Standing:
    """`port` is the one listened at now, None while there is none; `fault` then says why in a sentence. `token` is what
    callers have to show, None where nothing is asked."""

    host: str
    token: str | None
    port: int | None = None
    fault: str | None = None

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
