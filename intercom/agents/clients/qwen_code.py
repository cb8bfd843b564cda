"""Qwen Code, which began as a copy of Gemini CLI. Its hooks are not used."""

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

# Without trust it asks before every call, and refuses the call if nobody can be asked. These tools ask a person anyway.
# Unless they are always loaded, its model sees 160 characters of each, and has to search for the rest.
_SETTINGS: JsonObject = {"timeout": A_DAY_SECONDS * 1000, "trust": True, "alwaysLoadTools": True}


def _stdio(start: list[str]) -> JsonObject:
    return {"command": start[0], "args": start[1:], **_SETTINGS}


def _http(url: str, token: bool) -> JsonObject:
    headers = bearer(f"${{{TOKEN_VARIABLE}}}", token=token, **{WORKSPACE_HEADER: "${PWD}"})
    return {"httpUrl": url, **headers, **_SETTINGS}


CLIENT = Client(
    "qwen-code",
    call_waits={"qwen-cli": 570.0, "qwen-code": 570.0},
    entry=Entry(
        Location("settings.json", ".qwen", "QWEN_HOME"),
        "mcpServers",
        _stdio,
        _http,
        call_wait_note("qwen-code"),
        timeout=Timeout("timeout", 0.001, 600.0),
    ),
    instructions=Instructions(Location("QWEN.md", ".qwen", "QWEN_HOME")),
)
