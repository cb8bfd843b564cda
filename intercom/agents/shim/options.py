"""What a shim is started with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple


class Options(NamedTuple):
    """The command line of a shim.

    `config` and `workspace` are paths as given, or None; `ipc_name` overrides the configuration's; `channel` is the id
    of the chat channel where the agent is shown, `session_id` the session it was started for. `role` is "hook" for a
    client's permission hook. `server` is the command that serves, to which `serve_command` adds, and `shipped` a file
    of shipped answers other than the package's: tests put stand-ins there.
    """

    config: str | None = None
    workspace: str | None = None
    ipc_name: str | None = None
    server: Sequence[str] = (sys.executable, "-P", "-m", "intercom.cli.main", "serve")
    shipped: str | None = None
    channel: str | None = None
    session_id: str | None = None
    role: str = "shim"


def serve_command(options: Options, *how: str) -> list[str]:
    """The command that starts a server for this shim; `how` says in which manner."""
    command = [*options.server, *how]
    if options.config is not None:
        import os

        command += ["--config", os.path.abspath(options.config)]
    if options.ipc_name is not None:
        command += ["--ipc-name", options.ipc_name]
    return command
