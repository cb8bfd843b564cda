"""Doctor's check of the agents that people start: whether their program exists."""

from __future__ import annotations

import os

from intercom.cli.finding import Finding, State
from intercom.model.config import Config
from intercom.model.errors import ConfigError
from intercom.sessions.spawning import command
from intercom.workspace.running import environment


def examine(config: Config) -> Finding:
    """Look for `host_cli` as a server with this environment would."""
    subject = "agents to start"
    if config.host_cli is None:
        return Finding(subject, State.OK, "no host_cli is set: none can be started from Slack or ctl")
    try:
        program = command.find(config.host_cli, environment(os.environ))
    except ConfigError as fault:
        return Finding(subject, State.FAULT, str(fault))
    missing = [name for name in config.spawn.environment if name not in os.environ]
    if missing:
        text = f"{program}; not set here, though [spawn] environment passes it on: {', '.join(missing)}"
        return Finding(subject, State.WARN, text, "set it where the server is started, unless it is set there already")
    return Finding(subject, State.OK, " ".join((program, *config.host_cli_args)))
