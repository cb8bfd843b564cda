"""What a server runs with, and whether a shim was started with the same."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import fields, frozen

from intercom.local import config_file
from intercom.local.places import Places, places, private_directory
from intercom.model.config import Config, without_operators_settings
from intercom.model.errors import IntercomError, SlackError, VersionMismatch

if TYPE_CHECKING:
    from intercom.operators.slack.setup import SlackSetup


@frozen
class Settings:
    """What a server runs with; `digest` is that of the configuration file as it was read, None without a file.

    `slack` is None where no channel is configured, or where `slack_fault` says why it can not be used. `left_out` are
    the settings of the file that were not taken, as an agent's client named it.
    """

    config: Config
    places: Places
    path: Path | None
    digest: str | None
    slack: SlackSetup | None = None
    slack_fault: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def left_out_words(self) -> str:
        """What people are told of that."""
        return (
            f"the server was started by an agent's client with --config {self.path}, and so takes nothing from it about"
            f" {', '.join(self.left_out)}: put these settings into the user's own configuration file, or start the"
            f" server with agent-intercom serve --config {self.path}"
        )

    @property
    def database(self) -> Path:
        return config_file.database_path(self.config, self.places)

    def prepare(self) -> Path:
        """Make the directory the database and its lock stand in; one that is there is the user's business."""
        if not self.database.parent.is_dir():
            private_directory(str(self.database.parent))
        return self.database


def settle(options: argparse.Namespace, *, by_client: bool = False) -> Settings:
    """Read the configuration that the command line names, else the user's own, else none. Raises ConfigError with
    every fault of it, and IpcError for an ipc_name that is not usable. What is wrong with Slack is noted, not raised:
    the terminal works without.

    Where an agent's client started the server, `by_client`, a file that it names other than the user's own says
    nothing of whom the server trusts: settings for operators stay at their defaults.
    """
    path = Path(options.config).absolute() if options.config is not None else None
    name = options.ipc_name
    users = Path(places(name or "agent-intercom").config_file)
    named = path is not None and os.path.realpath(path) != os.path.realpath(users)
    if path is None:
        path = users if users.exists() else None
    config = config_file.load(path)
    left_out: tuple[str, ...] = ()
    if by_client and named:
        config, left_out = without_operators_settings(config)
    where = places(name or config.ipc_name)
    slack, fault = _slack(config, where)
    return Settings(config, where, path, _digest(path), slack, fault, left_out)


def _slack(config: Config, where: Places) -> tuple[SlackSetup | None, str]:
    if config.slack.channel_id is None:
        # A fifth of a second that most servers need not spend.
        return None, ""
    from intercom.operators.slack import credentials, setup

    try:
        # The actors' modules too: loading them once the loop runs would hold it up.
        importlib.import_module("intercom.operators.slack.tree")
        return setup.settle(config, os.environ, file=credentials.file_in(where.state_dir)), ""
    except SlackError as fault:
        return None, fault.message


def _digest(path: Path | None) -> str | None:
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def judge(settings: Settings, hello: dict[str, Any]) -> None:
    """Refuse a shim that was started with another configuration than this server's, saying what differs and what to
    do. Raises IntercomError (`config_mismatch`)."""
    theirs = hello.get("config")
    if theirs is None:
        return
    ours = str(settings.path) if settings.path is not None else "no configuration file"
    if settings.path is None or os.path.realpath(theirs) != os.path.realpath(settings.path):
        raise VersionMismatch(
            f"the running server uses {ours}, this agent was started with --config {theirs}: start it with the server's"
            " configuration, give its own another ipc_name and [database] path, or stop the server with"
            " agent-intercom stop",
            code="config_mismatch",
        )
    if hello.get("config_digest") not in (None, settings.digest):
        raise VersionMismatch(
            f"{theirs} has changed since the server read it ({_differing(settings, str(theirs))}): let the server read"
            " it with agent-intercom stop; it starts again by itself, and nothing that waits is lost",
            code="config_mismatch",
        )


def _differing(settings: Settings, path: str) -> str:
    try:
        now = config_file.load(Path(path))
    except IntercomError as fault:
        return f"it is not valid now: {fault}"
    names = [each.name for each in fields(Config) if getattr(now, each.name) != getattr(settings.config, each.name)]
    return f"settings that differ: {', '.join(names)}" if names else "only comments or layout differ"
