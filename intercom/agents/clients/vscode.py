"""VS Code. It has no permission hooks that `init` could install: their format differs from all others."""

from __future__ import annotations

from intercom.agents.clients.client import Client, Entry, Location, bearer
from intercom.model.json_types import JsonObject

#: VS Code asks for this when it first needs the token, and then stores it with its secrets.
_INPUT: JsonObject = {
    "type": "promptString",
    "id": "intercom-http-token",
    "description": "Intercom's HTTP token (the content of its http.token file)",
    "password": True,
}


def _stdio(start: list[str]) -> JsonObject:
    return {"type": "stdio", "command": start[0], "args": start[1:]}


def _http(url: str, token: bool) -> JsonObject:
    return {"type": "http", "url": url, **bearer(f"${{input:{_INPUT['id']}}}", token=token)}


CLIENT = Client(
    "vscode",
    call_waits={"visual studio code": 270.0, "vscode": 270.0},
    entry=Entry(
        Location(".vscode/mcp.json"),
        "servers",
        _stdio,
        _http,
        "VS Code has no setting for the time a call may take: long waits are answered pending and asked for again.",
        "VS Code asks for the token when it first connects, and stores it with its secrets.",
        inputs=(_INPUT,),
    ),
)
