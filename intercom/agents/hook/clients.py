"""The known clients with hooks, and the detection of which one sent a payload."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from intercom.agents.hook import claude_code, codex, copilot, cursor
from intercom.agents.hook.question import Asked, Said, Unreadable


class Client(NamedTuple):
    """How a client asks and how it is answered. `seconds` is the time limit of its hooks in the entry that
    `agent-intercom init` writes. `agent` is its name over MCP."""

    name: str
    agent: str
    seconds: int
    read: Callable[[dict[str, Any], str | None], Asked]
    allow: Callable[[str, str], Said]
    deny: Callable[[str, str], Said]
    pass_on: Callable[[str], Said]
    go_on: Callable[[str, str], Said]


def _client(module: Any, agent: str) -> Client:
    return Client(module.NAME, agent, 3600, module.read, module.allow, module.deny, module.pass_on, module.go_on)


CLIENTS: dict[str, Client] = {
    each.name: each
    for each in (
        _client(claude_code, "claude-code"),
        _client(codex, "codex-mcp-client"),
        _client(copilot, "github-copilot"),
        _client(cursor, "cursor"),
    )
}


def parse(raw: bytes) -> dict[str, Any]:
    """Parse the JSON object that a client wrote to its hook. Raises Unreadable for anything else."""
    try:
        # Cursor begins with a byte order mark.
        data = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(data, dict):
        raise Unreadable("it is not a JSON object")
    return data


def writer(named: str, data: dict[str, Any]) -> Client:
    """Return the client that sent this payload. Cursor and Copilot also run Claude Code's hooks, with their own
    payloads."""
    if named == claude_code.NAME:
        if "cursor_version" in data:
            return CLIENTS[cursor.NAME]
        if "toolName" in data or ("timestamp" in data and "permission_mode" not in data):
            return CLIENTS[copilot.NAME]
    return CLIENTS[named]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
