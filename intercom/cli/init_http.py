"""What each MCP client must be told to reach Intercom over HTTP: address, token, workspace, time-outs.

The token is never copied into a client's file. It stands in a file of the user's own, and the entry names the
environment variable that has it, in the client's own way (for VS Code: what it asks for once, and keeps).

Over HTTP the server can not see in which directory a client runs. Clients that name their roots only in the older
protocol, or not at all, say it in a header, from the variable in which every shell keeps it.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

from attrs import frozen

from intercom.cli.init_clients import A_DAY_SECONDS

#: The environment variable that clients take the token from.
TOKEN_VARIABLE = "INTERCOM_HTTP_TOKEN"
WORKSPACE_HEADER = "X-Intercom-Workspace"
#: The port where the configuration names none.
DEFAULT_PORT = 3000
#: Keys of an entry that belong to one way in and would confuse the other; Codex refuses an entry with both.
STDIO_KEYS = frozenset({"type", "command", "args", "env", "env_vars", "cwd"})
HTTP_KEYS = frozenset({"type", "url", "headers", "bearer_token_env_var", "http_headers", "env_http_headers"})

_INPUT = "intercom-http-token"
#: What VS Code asks for when it first needs it, and then keeps among its secrets.
VSCODE_INPUT: Mapping[str, Any] = {
    "type": "promptString",
    "id": _INPUT,
    "description": "Intercom's HTTP token (the content of its http.token file)",
    "password": True,
}


@frozen
class HttpEntry:
    """A client's entry over HTTP: what leads it, how it names the token, where it runs, and the rest.

    `inputs` stand beside the servers in the client's file, for the token's sake; the notes are what its user has to
    know, `token_note` of the token."""

    leading: Mapping[str, Any]
    token: Mapping[str, Any]
    place: Mapping[str, Any]
    extra: Mapping[str, Any]
    note: str
    token_note: str = f"Start it where {TOKEN_VARIABLE} is set; it reads the token from there."
    inputs: tuple[Mapping[str, Any], ...] = ()

    def entry(self, url: str, *, token: bool) -> dict[str, Any]:
        """What stands under this client's key; `token` False leaves out what shows it."""
        said = _both(self.place, self.token) if token else self.place
        return {**self.leading, "url": url, **said, **self.extra}

    def notes(self, *, token: bool) -> str:
        """The same of the notes."""
        return f"{self.token_note} {self.note}" if token else self.note


def _bearer(value: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {value}"}}


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What either says; a table that both have has all of both."""
    joined = dict(one)
    for key, value in other.items():
        joined[key] = {**joined.get(key, {}), **value} if isinstance(value, dict) else value
    return joined


HTTP: dict[str, HttpEntry] = {
    "claude-code": HttpEntry(
        {"type": "http"},
        _bearer(f"${{{TOKEN_VARIABLE}}}"),
        {"headers": {WORKSPACE_HEADER: "${PWD}"}},
        {"timeout": A_DAY_SECONDS * 1000, "alwaysLoad": True},
        "It asks once whether to trust the project's servers.",
    ),
    "codex": HttpEntry(
        {},
        {"bearer_token_env_var": TOKEN_VARIABLE},
        {"env_http_headers": {WORKSPACE_HEADER: "PWD"}},
        {
            "required": True,
            "startup_timeout_sec": 20,
            "tool_timeout_sec": A_DAY_SECONDS,
            "default_tools_approval_mode": "approve",
        },
        'To use the long time-out, set [clients."codex"] slice_seconds in Intercom\'s configuration.',
    ),
    "cursor": HttpEntry(
        {},
        _bearer(f"${{env:{TOKEN_VARIABLE}}}"),
        {},
        {},
        "Cursor has no setting for the time a call may take: long waits are answered pending.",
    ),
    "vscode": HttpEntry(
        {"type": "http"},
        _bearer(f"${{input:{_INPUT}}}"),
        {},
        {},
        "VS Code has no setting for the time a call may take: long waits are answered pending.",
        "VS Code asks for the token when it first connects, and keeps it among its secrets.",
        inputs=(VSCODE_INPUT,),
    ),
    "copilot-cli": HttpEntry(
        {"type": "http"},
        _bearer(f"${{{TOKEN_VARIABLE}}}"),
        {"headers": {WORKSPACE_HEADER: "${PWD}"}},
        {"tools": ["*"], "timeout": A_DAY_SECONDS * 1000},
        "Restart Copilot CLI after a change.",
    ),
}


def address(host: str, port: int, client: str, before: Mapping[str, Any]) -> str:
    """Where this client finds a server that listens on `host`. The key in it names the agent for good: one that stands
    in its entry `before` is kept, so that its session goes on."""
    known = parse_qs(str(before.get("url", "")).partition("?")[2]).get("agent", [""])[0]
    called = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    named = f"[{called}]" if ":" in called else called
    return f"http://{named}:{port}/mcp?{urlencode({'agent': known or f'{client}-{secrets.token_hex(8)}'})}"


def with_port(text: str, port: int) -> str:
    """A configuration file's text with `http_port` set; all else as it was.

    The line that `init` wrote for it is used if it is there. Raises `tomllib.TOMLDecodeError` for what is no TOML.
    """
    tomllib.loads(text)
    line = f"http_port = {port}"
    top, table, rest = text.partition("\n[") if not text.startswith("[") else ("", "", text)
    for pattern in (r"^http_port[ \t]*=.*$", r"^# http_port = .*$"):
        changed, count = re.subn(pattern, line, top, count=1, flags=re.MULTILINE)
        if count:
            return changed + table + rest
    return f"{line}\n{text}"
