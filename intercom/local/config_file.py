"""Loading of the configuration file. All faults are reported together, each with its line and a correction."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from intercom.local.config_values import Fault, structure
from intercom.local.places import Places, places
from intercom.model.config import Config
from intercom.model.errors import ConfigError


def load(path: Path | None = None, *, required: bool = True, home: Path | None = None) -> Config:
    """Load the configuration from the file at `path`. All its paths become absolute.

    Without `path`, the user's own file is read. The defaults apply if that file does not exist, or if `path` does not
    exist and is not `required`. `~` is the home directory; `home` replaces it if the environment is not trusted.
    Relative paths start at the file's directory. If the file authorizes nobody in Slack, `SLACK_MEMBER_IDS` in the
    environment applies.

    Raises `ConfigError` with all faults: a file that is missing, unreadable or writable by everyone, invalid TOML,
    unknown keys, and values of the wrong type or out of range. Raises `IpcError` if the path of the runtime directory
    is too long for sockets.
    """
    file = (path or Path(places().config_file)).expanduser().absolute()
    text = _read(file, required=required and path is not None)
    try:
        raw = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for too long numbers and too deep tables
        raise ConfigError(f"{file} is not valid TOML: {_lower(str(error))}; correct that") from None
    config, faults = structure(raw)
    faults += _bad_root(raw.get("default_workspace_root"), file.parent, home)
    if config is None or faults:
        raise ConfigError(_report(file, text, faults))
    try:
        return _settle(config, raw, file.parent, home)
    except ValueError as error:
        raise ConfigError(f"SLACK_MEMBER_IDS in the environment {error}") from None


def database_path(config: Config, places: Places) -> Path:
    """Return the path of this configuration's database."""
    return config.database.path if config.database.path.is_absolute() else Path(places.state_dir) / config.database.path


def _read(file: Path, *, required: bool) -> str:
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            content = stream.read()
    except FileNotFoundError:
        if not required:
            return ""
        raise ConfigError(
            f"there is no configuration file at {file}: write one with 'agent-intercom init --write --config {file}'"
        ) from None
    except OSError as error:
        why = _lower(error.strerror or str(error))
        raise ConfigError(f"{file} can not be read ({why}): make it a file you may read") from None
    if mode & stat.S_IWOTH:
        # The file says who may approve, so write access to it is permission to approve.
        raise ConfigError(f"{file} can be written by every user: run 'chmod 600 {file}'")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file} is not UTF-8 text at line {line}: save it as UTF-8") from None


def _settle(config: Config, raw: Mapping[str, Any], directory: Path, home: Path | None) -> Config:
    """Make every path absolute, and compute the defaults that depend on this machine."""

    def absolute(path: Path) -> Path:
        return _absolute(path, directory, home)

    database, root, log, cli = config.database, config.default_workspace_root, config.logging.file, config.host_cli
    if "path" in raw.get("database", {}):
        database = attrs.evolve(database, path=absolute(database.path))
    else:
        database = attrs.evolve(database, path=Path(places(config.ipc_name).database))
    slack = config.slack
    if not slack.authorized_user_ids:
        members = [each.strip() for each in os.environ.get("SLACK_MEMBER_IDS", "").split(",")]
        slack = attrs.evolve(slack, authorized_user_ids=tuple(each for each in members if each))
    # Sessions use resolved workspace paths.
    channels = {absolute(root).resolve(): channel for root, channel in slack.workspace_channels.items()}
    ca_file = slack.ca_file and absolute(slack.ca_file)
    slack = attrs.evolve(slack, workspace_channels=channels, ca_file=ca_file)
    if cli and ("/" in cli or cli.startswith("~")):  # a plain name is looked up in the server's PATH
        cli = str(absolute(Path(cli)))
    return attrs.evolve(
        config,
        default_workspace_root=root and absolute(root).resolve(),
        host_cli=cli,
        database=database,
        slack=slack,
        logging=attrs.evolve(config.logging, file=log and absolute(log)),
    )


def _absolute(path: Path, directory: Path, home: Path | None) -> Path:
    if home is not None and path.parts[:1] == ("~",):
        return home.joinpath(*path.parts[1:])
    try:
        return directory / path.expanduser()
    except RuntimeError:  # ~name of an unknown user
        return directory / path


def _bad_root(value: Any, directory: Path, home: Path | None) -> list[Fault]:
    if not isinstance(value, str) or not value or "\0" in value:
        return []
    root = _absolute(Path(value), directory, home).resolve()
    if root in (Path("/"), (home or Path.home()).resolve()):
        return [Fault("default_workspace_root", f"must not be {root}: an agent would own all below it; name a project")]
    return []


def _report(file: Path, text: str, faults: list[Fault]) -> str:
    found = sorted(((_line_of(text, fault.setting) or 0, fault) for fault in faults), key=lambda each: each[0])
    lines = [f"{f'line {line}: ' if line else ''}{fault.setting} {fault.what}" for line, fault in found]
    if len(lines) == 1:
        return f"{file}, {lines[0]}"
    return "\n  ".join([f"{file} has {len(lines)} faults:", *lines])


def _line_of(text: str, dotted: str) -> int | None:
    """Find the line of the setting, or of its table, for the message. The TOML parser keeps no line numbers."""
    table = ""
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]", line):
            table = _bare(header[1])
            lines.setdefault(table, number)
        elif key := re.match(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""", line):
            lines.setdefault(f"{table}.{_bare(key[1])}".lstrip("."), number)
    while dotted and dotted not in lines:
        dotted = dotted.rpartition(".")[0]
    return lines.get(dotted)


def _bare(key: str) -> str:
    return re.sub(r"\s*\.\s*", ".", key.replace('"', "").replace("'", ""))


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
