"""What a shim is started with, and the server that it starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple


def isolation(executable: str, package: str) -> tuple[str, ...]:
    """The interpreter's options for a server that a client's relay starts.

    It takes nothing from the client's directory, and from its environment only what `intercom.local.daemon` lets
    through: no PYTHON* variable, and no directory that these name. Nor does it load the user's own site directory,
    unless that is where Intercom is installed: there it would not find itself.
    """
    import site

    try:
        own = site.getusersitepackages()
    except (OSError, KeyError):
        own = ""
    return ("-E", "-P") if own and package.startswith(own + "/") else ("-I",)


ISOLATED = isolation(sys.executable, __file__)
#: The command that serves.
SERVER: tuple[str, ...] = (sys.executable, *ISOLATED, "-m", "intercom.cli.main", "serve")


class Options(NamedTuple):
    """The command line of a shim.

    `config` and `workspace` are paths as given, or None; `ipc_name` overrides the configuration's; `channel` is the id
    of the chat channel where the agent is shown, `session_id` the session it was started for. `role` is "hook" for a
    client's permission hook. `server` is the command that serves where it is not SERVER, to which `serve_command` adds,
    and `shipped` a file of shipped answers other than the package's: tests put stand-ins there.
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
    """The command that starts a server for this shim; `how` says in which manner."""
    command = [*(options.server or SERVER), *how]
    if options.config is not None:
        import os

        command += ["--config", os.path.abspath(options.config)]
    if options.ipc_name is not None:
        command += ["--ipc-name", options.ipc_name]
    return command
