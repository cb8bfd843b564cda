"""What each MCP client needs to reach Intercom over HTTP: address, token, workspace, time-outs.

The token is never copied into a client's file. It is in a file of the user's own, and the entry names the environment
variable that has it, in the client's own syntax. VS Code instead asks for the token once, and keeps it.

Over HTTP the server cannot see a client's directory. Clients that name their roots only in the older protocol version,
or not at all, send the directory in a header, from the shell's PWD.
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

#: The environment variable from which clients take the token.
TOKEN_VARIABLE = "INTERCOM_HTTP_TOKEN"
WORKSPACE_HEADER = "X-Intercom-Workspace"
#: The port if the configuration names none.
DEFAULT_PORT = 3000
#: Keys of one transport that would confuse the other; Codex refuses an entry with both.
STDIO_KEYS = frozenset({"type", "command", "args", "env", "env_vars", "cwd"})
HTTP_KEYS = frozenset({"type", "url", "headers", "bearer_token_env_var", "http_headers", "env_http_headers"})

_INPUT = "intercom-http-token"
#: VS Code asks for this when it first needs the token, and then keeps it among its secrets.
VSCODE_INPUT: Mapping[str, Any] = {
    "type": "promptString",
    "id": _INPUT,
    "description": "Intercom's HTTP token (the content of its http.token file)",
    "password": True,
}


@frozen
class HttpEntry:
    """A client's entry over HTTP: its first keys, how it names the token and the workspace, and its other keys.

    `inputs` are prompts for the token at the top of the client's file. `note` and `token_note` are for the user;
    `token_note` applies only if there is a token.
    """

    leading: Mapping[str, Any]
    token: Mapping[str, Any]
    place: Mapping[str, Any]
    extra: Mapping[str, Any]
    note: str
    token_note: str = f"Start it where {TOKEN_VARIABLE} is set; it reads the token from there."
    inputs: tuple[Mapping[str, Any], ...] = ()

    def entry(self, url: str, *, token: bool) -> dict[str, Any]:
        """Return this client's entry; `token` False leaves out the token."""
        said = _both(self.place, self.token) if token else self.place
        return {**self.leading, "url": url, **said, **self.extra}

    def notes(self, *, token: bool) -> str:
        """Return the notes; `token` False leaves out the note on the token."""
        return f"{self.token_note} {self.note}" if token else self.note


def _bearer(value: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {value}"}}


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two mappings; a table that is in both gets the keys of both."""
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
    """Return the URL at which this client finds a server that listens on `host`. Its `agent` key names the agent
    permanently: a key in the entry `before` is kept, so that the agent's session continues."""
    known = parse_qs(str(before.get("url", "")).partition("?")[2]).get("agent", [""])[0]
    called = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    named = f"[{called}]" if ":" in called else called
    return f"http://{named}:{port}/mcp?{urlencode({'agent': known or f'{client}-{secrets.token_hex(8)}'})}"


def with_port(text: str, port: int) -> str:
    """Return a configuration file's text with `http_port` set, and everything else as it was.

    Uses the line that `init` wrote, if it is there. Raises `tomllib.TOMLDecodeError` if the text is not TOML.
    """
    tomllib.loads(text)
    line = f"http_port = {port}"
    top, table, rest = text.partition("\n[") if not text.startswith("[") else ("", "", text)
    for pattern in (r"^http_port[ \t]*=.*$", r"^# http_port = .*$"):
        changed, count = re.subn(pattern, line, top, count=1, flags=re.MULTILINE)
        if count:
            return changed + table + rest
    return f"{line}\n{text}"
