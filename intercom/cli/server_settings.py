"""The settings that a server runs with, and the check that a shim was started with the same."""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, field, fields, frozen

from intercom.local import config_file, own_files, processes, server_secrets
from intercom.local.places import Places, places, private_directory, system_home
from intercom.local.server_secrets import RoomsSecrets
from intercom.model.config import Config, SlackSettings, strictest, with_operators_settings
from intercom.model.errors import ConfigError, IntercomError, SlackError, VersionMismatch
from intercom.store import processes as known_processes

if TYPE_CHECKING:
    from intercom.agents.shim_connection import Hello
    from intercom.operators.slack.settings import SlackSetup


@frozen
class ServerSettings:
    """The settings of a server. `digest` is the hash of the configuration file as it was read, None without a file.

    `slack` is None if no channel is configured, or if `slack_fault` says why it cannot be used.

    `named_by_client` says which file or directory of an agent's client is not the user's own. Then `left_out` lists the
    settings of the file that were ignored. `own_fault` says why the user's own configuration was not used either.

    `rooms_secrets` are those of the rooms, if there are rooms, and `proxy_secret` that of the page's proxy. With
    `only_rooms`, the HTTP port serves nothing else.
    """

    config: Config
    places: Places
    path: Path | None
    digest: str | None
    slack: SlackSetup | None = None
    slack_fault: str = ""
    left_out: tuple[str, ...] = ()
    named_by_client: str = ""
    own_fault: str = ""
    rooms_secrets: RoomsSecrets = field(factory=RoomsSecrets)
    proxy_secret: str | None = field(default=None, repr=False)
    only_rooms: bool = False

    @property
    def left_out_message(self) -> str:
        """The message to people about this; empty if there is nothing to say."""
        if not self.named_by_client:
            return ""
        told = f"the server was started by an agent's client with {self.named_by_client}"
        if self.left_out:
            told += (
                f", and so takes nothing from its configuration about {', '.join(self.left_out)}: it takes the user's"
                " own, without Slack"
            )
        if self.own_fault:
            return (
                f"{told}; because the user's own configuration cannot be read, the strictest settings apply"
                f" ({self.own_fault}): correct that, then run agent-intercom stop"
            )
        if self.named_by_client.startswith("--config"):
            return (
                f"{told}; put these settings into the user's own configuration file, or start the server with"
                f" agent-intercom serve --config {self.path}"
                if self.left_out
                else ""
            )
        return (
            f"{told}; if it was you who chose these directories, run agent-intercom init --write with the same"
            " environment in a terminal of your own, then agent-intercom stop"
        )

    @property
    def database(self) -> Path:
        return config_file.database_path(self.config, self.places)

    def prepare(self) -> Path:
        """Return the database's path. Creates its directory if it does not exist, and changes no existing one. Raises
        ConfigError if the path is that of a directory."""
        if self.database.is_dir():
            raise ConfigError(f"the database {self.database} is a directory: set [database] path to a file in it")
        if not self.database.parent.is_dir():
            private_directory(str(self.database.parent))
        return self.database


def settle(options: argparse.Namespace, *, by_client: bool = False) -> ServerSettings:
    """Read the configuration that the command line names, else the user's own, else none. Raises ConfigError with all
    its faults, and IpcError for an unusable ipc_name. A fault of Slack is recorded, not raised: the terminal works
    without it.

    `by_client` says that an agent's client started the server. Then only the user's own files and directories (see
    `own_directories`) say which people the server trusts. With others, operators' settings come from the user's default
    configuration file. Slack stays off then, because the user's own server uses it.
    """
    path = Path(options.config).absolute() if options.config is not None else None
    name = options.ipc_name
    users = Path(places(name or "agent-intercom").config_file)
    if path is None:
        path = users if users.exists() else None
    # What a client's environment calls home need not be the user's.
    home = system_home() if by_client else None
    config = config_file.load(path, home=None if home is None else Path(home))
    left_out: tuple[str, ...] = ()
    named = own_fault = ""
    if by_client:
        named = _named_by_client(path, options.config is not None, places(name or config.ipc_name))
    if named:
        own, own_fault = _own_config()
        config, left_out = with_operators_settings(config, evolve(own, slack=SlackSettings()))
    where = places(name or config.ipc_name)
    slack, fault = _slack(config, where)
    secrets = server_secrets.read(config.rooms, os.environ)
    proxy = server_secrets.proxy_secret(config.web, os.environ, by_client=by_client)
    return ServerSettings(config, where, path, _digest(path), slack, fault, left_out, named, own_fault, secrets, proxy)


def with_workspace(settings: ServerSettings, workspace: str | None) -> ServerSettings:
    """Return the settings with the directory of `--workspace` as the default one. Raises ConfigError for one that no
    agent may have."""
    if workspace is None:
        return settings
    config = evolve(settings.config, default_workspace_root=config_file.workspace_root(workspace))
    return evolve(settings, config=config)


def _named_by_client(path: Path | None, is_option: bool, where: Places) -> str:
    """Name what a client chose that is not the user's own; empty if there is nothing."""
    own, fault = own_files.own_directories()
    directory = os.path.dirname(where.config_file)
    named = []
    if path is not None and not own_files.is_own_config(str(path), own):
        named.append(f"--config {path}" if is_option else f"the configuration {path}, which is not known to be yours")
    elif not own_files.is_own(directory, own):
        # Without a configuration here, the user's own settings would not apply.
        named.append(f"the configuration directory {directory}, which is not known to be yours")
    if not own_files.is_own(where.state_dir, own):
        named.append(f"the state directory {where.state_dir}, which is not known to be yours")
    return " and ".join(named) + (f" ({fault})" if named and fault else "")


def _own_config() -> tuple[Config, str]:
    """Return the user's own configuration, or the strictest one and the reason if it cannot be read."""
    where, home = own_files.default_places(), system_home()
    if where is None or home is None:
        return Config(), ""
    try:
        return config_file.load(Path(where.config_file), required=False, home=Path(home)), ""
    except IntercomError as fault:
        return strictest(), fault.message


def record_directories(where: Places, *databases: Path) -> bool:
    """Record a server's directories as the user's own if an operator at a terminal runs this process. Returns whether
    they are the user's own now. `databases` and the user's default one list agents' processes."""
    directories = (os.path.dirname(where.config_file), where.state_dir)
    own = own_files.own_directories()[0]
    if all(own_files.is_own(each, own) for each in directories):
        return True
    default = own_files.default_places()
    if default is not None:
        databases = (*databases, Path(default.database))
    try:
        agents = processes.known_agents(each for file in databases for each in known_processes.recorded_in(file))
    except sqlite3.Error:
        # It is unknown which processes are agents'.
        return False
    if processes.recognise(os.getpid(), agents).who is not processes.Who.OPERATOR:
        return False
    own_files.record_directories(*directories)
    return True


def record_or_explain(where: Places, *databases: Path) -> str:
    """Call `record_directories`. Returns a message for people if it failed, else an empty string."""
    try:
        if record_directories(where, *databases):
            return ""
        why = "no operator at a terminal of their own was recognised"
    except IntercomError as fault:
        why = fault.message
    except OSError as fault:
        why = str(fault)
    return (
        f"not recorded as yours, in {own_files.directories_file()}: {os.path.dirname(where.config_file)} and"
        f" {where.state_dir} ({why}): a server that an agent's client starts takes no operators' settings from them"
    )


def _slack(config: Config, where: Places) -> tuple[SlackSetup | None, str]:
    if config.slack.channel_id is None:
        # Saves a fifth of a second of imports that most servers do not need.
        return None, ""
    from intercom.operators.slack import credentials
    from intercom.operators.slack import settings as slack_settings

    try:
        # Import the actors' modules too: importing them in the running loop would block it.
        importlib.import_module("intercom.operators.slack.supervision")
        return slack_settings.settle(config, os.environ, file=credentials.file_in(where.state_dir)), ""
    except SlackError as fault:
        return None, fault.message


def _digest(path: Path | None) -> str | None:
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


def require_same_settings(settings: ServerSettings, hello: Hello) -> None:
    """Refuse a shim that was started with another configuration than this server's. Raises IntercomError
    (`config_mismatch`), which says what differs and what to do."""
    theirs = hello.config
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
    if hello.config_digest not in (None, settings.digest):
        raise VersionMismatch(
            f"{theirs} has changed since the server read it ({_differing(settings, str(theirs))}): let the server read"
            " it with agent-intercom stop; it starts again by itself, and nothing that waits is lost",
            code="config_mismatch",
        )


def _differing(settings: ServerSettings, path: str) -> str:
    try:
        now = config_file.load(Path(path))
    except IntercomError as fault:
        return f"it is not valid now: {fault}"
    names = [each.name for each in fields(Config) if getattr(now, each.name) != getattr(settings.config, each.name)]
    return f"settings that differ: {', '.join(names)}" if names else "only comments or layout differ"
