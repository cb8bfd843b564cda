"""Gemini CLI. Its hooks are not used.

It works in no directory that the person has not trusted. It marks the results of tools as
untrusted, and tells its model not to obey them.
"""

from __future__ import annotations

from intercom.agents.clients.client import (
    A_DAY_SECONDS,
    TOKEN_VARIABLE,
    WORKSPACE_HEADER,
    Client,
    Entry,
    Instructions,
    Location,
    Timeout,
    bearer,
    call_wait_note,
)
from intercom.model.json_types import JsonObject

# Without trust it asks before every call, and shows its model no such tool if nobody can be asked. These tools ask a
# person anyway.
_SETTINGS: JsonObject = {"timeout": A_DAY_SECONDS * 1000, "trust": True}


def _stdio(start: list[str]) -> JsonObject:
    return {"command": start[0], "args": start[1:], **_SETTINGS}


def _http(url: str, token: bool) -> JsonObject:
    headers = bearer(f"${{{TOKEN_VARIABLE}}}", token=token, **{WORKSPACE_HEADER: "${PWD}"})
    return {"type": "http", "url": url, **headers, **_SETTINGS}


CLIENT = Client(
    "gemini-cli",
    call_waits={"gemini-cli": 570.0},
    entry=Entry(
        Location(".gemini/settings.json", ".", "GEMINI_CLI_HOME"),
        "mcpServers",
        _stdio,
        _http,
        f"Gemini CLI works only in directories that you trust. {call_wait_note('gemini-cli')}",
        timeout=Timeout("timeout", 0.001, 600.0),
    ),
    instructions=Instructions(Location(".gemini/GEMINI.md", ".", "GEMINI_CLI_HOME")),
)
