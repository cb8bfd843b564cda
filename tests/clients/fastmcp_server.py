"""A server of FastMCP with its own authorization server, for `run_gateway_sign_in.py`.

Run by FastMCP's Python as `python fastmcp_server.py PORT SECONDS`, with the life of its tokens.
"""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers import in_memory


def main(port: int, seconds: int) -> None:
    in_memory.DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS = seconds
    auth = in_memory.InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{port}",
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=["read", "write"], default_scopes=["read"]
        ),
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=["read"],
    )
    server = FastMCP("far", auth=auth)

    @server.tool
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    server.run(transport="http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
