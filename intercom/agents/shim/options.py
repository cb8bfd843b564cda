"""The command line of a shim, and of the server that it starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple


def isolation(executable: str, package: str) -> tuple[str, ...]:
    """Return the interpreter's options for a server that a client's relay starts.

    The server takes nothing from the client's directory. From the environment it takes only what
    `intercom.local.daemon` passes: no PYTHON* variable, and no directory in one. It also ignores the user's site
    directory, unless Intercom is installed there and could not be imported otherwise.
    """
    import site

    try:
        own = site.getusersitepackages()
    except (OSError, KeyError):
        own = ""
    return ("-E", "-P") if own and package.startswith(own + "/") else ("-I",)


ISOLATED = isolation(sys.executable, __file__)
#: The default server command.
SERVER: tuple[str, ...] = (sys.executable, *ISOLATED, "-m", "intercom.cli.main", "serve")


class Options(NamedTuple):
    """The command line of a shim.

    `config` and `workspace` are paths as given, or None; `ipc_name` overrides the configuration's. `channel` is the id
    of the chat channel of the agent, `session_id` the session it was started for. `role` is "hook" for a client's
    permission hook. For tests, `server` replaces SERVER, to which `serve_command` adds, and `shipped` the package's
    file of shipped answers.
    """

    config: str | None = None
    workspace: str | None = None
    ipc_name: str | None = None
    server: Sequence[str] = ()
    shipped: str | None = None
    channel: str | None = None
    session_id: str | None = None
    role: str = "shim"


def serve_command(options: Options, *how: str) -> list[str]:
    """Return the command that starts a server for this shim; `how` holds additional options."""
    command = [*(options.server or SERVER), *how]
    if options.config is not None:
        import os

        command += ["--config", os.path.abspath(options.config)]
    if options.ipc_name is not None:
        command += ["--ipc-name", options.ipc_name]
    return command
