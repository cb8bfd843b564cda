"""What each MCP client needs to reach Intercom: in which file, under which key, with which time-outs.

Clients end a long call for different reasons (docs/how-to/connect-an-agent.md). No client needs more than this: a call
that exceeds the client's limit is answered `pending` and asked for again.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from intercom.cli.init_files import glance

#: The name of the entry in every client's file.
SERVER_NAME = "agent-intercom"

#: The variables that a shim needs, for clients that pass on listed variables only.
VARIABLES = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "INTERCOM_SESSION_ID"]

#: How long an approved change stays valid: a client that can wait a day need not ask again.
A_DAY_SECONDS = 86_400


@frozen
class Client:
    """A client's file, and the shape of its entry. A `shared` file is in the project and its repository."""

    name: str
    title: str
    file: Callable[[Path], Path]
    format: str
    table: str
    extra: Mapping[str, Any]
    note: str
    shared: bool = False
    leading: Mapping[str, Any] = {}

    def entry(self, command: list[str]) -> dict[str, Any]:
        """Return this client's entry for Intercom."""
        return {**self.leading, "command": command[0], "args": command[1:], **self.extra}


def _home_file(variable: str, directory: str, name: str) -> Callable[[Path], Path]:
    """Locate a file in the client's own directory: the one in `variable`, else `directory` in the home directory."""
    return lambda _workspace: Path(os.environ.get(variable) or Path.home() / directory) / name


CLIENTS: dict[str, Client] = {
    each.name: each
    for each in (
        Client(
            "claude-code",
            "Claude Code",
            lambda workspace: workspace / ".mcp.json",
            "json",
            "mcpServers",
            # `timeout` also lifts the limit for calls without progress; `alwaysLoad` keeps the tools out of tool
            # search.
            {"timeout": A_DAY_SECONDS * 1000, "alwaysLoad": True},
            "Claude Code asks once whether to trust the project's servers.",
            shared=True,
            leading={"type": "stdio"},
        ),
        Client(
            "codex",
            "Codex",
            _home_file("CODEX_HOME", ".codex", "config.toml"),
            "toml",
            "mcp_servers",
            # Without `required`, a slow server is missing in the first turn. Without the variables, a shim might find
            # another server than ctl. Without approval, `codex exec` refuses every tool that is not read-only.
            {
                "required": True,
                "startup_timeout_sec": 20,
                "tool_timeout_sec": A_DAY_SECONDS,
                "default_tools_approval_mode": "approve",
                "env_vars": VARIABLES,
            },
            'To use the long time-out, set [clients."codex"] slice_seconds in Intercom\'s configuration.',
        ),
        Client(
            "cursor",
            "Cursor",
            lambda _workspace: Path.home() / ".cursor" / "mcp.json",
            "json",
            "mcpServers",
            {},
            "Cursor has no setting for the time a call may take: long waits are answered pending and asked for again.",
            leading={"type": "stdio"},
        ),
        Client(
            "vscode",
            "VS Code",
            lambda workspace: workspace / ".vscode" / "mcp.json",
            "json",
            "servers",
            {},
            "VS Code has no setting for the time a call may take: long waits are answered pending and asked for again.",
            shared=True,
            leading={"type": "stdio"},
        ),
        Client(
            "copilot-cli",
            "Copilot CLI",
            _home_file("COPILOT_HOME", ".copilot", "mcp-config.json"),
            "json",
            "mcpServers",
            {"tools": ["*"], "timeout": A_DAY_SECONDS * 1000},
            "Restart Copilot CLI after a change.",
            leading={"type": "local"},
        ),
    )
}


def command(config: Path | None, *, shared: bool) -> list[str]:
    """Return the command that starts the shim, for a client's file.

    A file of the user gets an absolute path, because a client started from a desktop has another PATH. A shared file
    gets the bare name if the PATH finds this very program, so that it works on other machines too. `config` is None for
    the default file.
    """
    script = Path(sys.executable).parent / SERVER_NAME
    found = shutil.which(SERVER_NAME)
    if script.is_file():
        same = found is not None and os.path.realpath(found) == os.path.realpath(script)
        start = [SERVER_NAME if shared and same else str(script)]
    else:
        start = [found] if found else [sys.executable, "-m", "intercom.cli.main"]
    return [*start, "--config", str(config)] if config else start


def names_us(file: Path) -> bool:
    """Tell whether a client's file contains our entry's name."""
    return SERVER_NAME in glance(file)
