"""A server that agents reach over HTTP, at an address that outlives it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from attrs import frozen

from intercom.local import own_files
from tests.support.server_process import TRUSTING, Home


@frozen
class HttpPort:
    """Where it listens, whenever it runs."""

    home: Home
    port: int

    @property
    def token(self) -> str:
        return own_files.http_token(self.home.places)

    def address(self, root: Path, path: str = "/mcp") -> dict[str, Any]:
        """What the client of an agent in this workspace is told: the URL, and what it says in each request's head."""
        told = {"Authorization": f"Bearer {self.token}", "X-Intercom-Workspace": str(root)}
        return {"url": f"http://127.0.0.1:{self.port}{path}?agent=client-of-{root.name}", "headers": told}


def configure_http(home: Home) -> HttpPort:
    """Have this user's server listen for agents over HTTP, on a port that is free now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = int(one.getsockname()[1])
    home.configure(f"http_port = {port}\n{TRUSTING}")
    return HttpPort(home, port)
