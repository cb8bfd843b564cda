"""Reads the configuration file. All its faults are reported at once, each with its line and what would be right."""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import attrs

from intercom.local.places import Places, places
from intercom.model.config import Config
from intercom.model.errors import ConfigError

S = TypeVar("S", bound=attrs.AttrsInstance)

#: Obsolete names, and secrets, which need a better hint than the most similar setting.
KNOWN_ELSEWHERE = {
    "server": "its settings are at the top of the file now",
    "server.workspace_root": "write default_workspace_root at the top of the file",
    "workspace_root": "write default_workspace_root",
    "sse_port": "write http_port",
    "remote_commands": "write [commands]",
    "session": "write host_cli, host_cli_args and max_concurrent_sessions at the top of the file",
    "host_args": "write host_cli_args",
    "approval_timeout_seconds": "write approval_seconds under [timeouts]",
    "prompt_timeout_seconds": "write prompt_seconds under [timeouts]",
    "command_timeout_seconds": "it is under [timeouts]",
    "log_level": "write level under [logging]",
    "log_file": "write file under [logging]",
    "slack.app_token": "a token is never in this file: agent-intercom slack login stores it; revoke this one",
    "slack.bot_token": "a token is never in this file: agent-intercom slack login stores it; revoke this one",
    "slack.team_id": "agent-intercom slack login finds it out",
    "rooms.secret": "a secret is never in this file: set INTERCOM_ROOMS_SECRET, or write secret_file; choose a new one",
    "web.proxy_secret": (
        "a secret is never in this file: set INTERCOM_PROXY_SECRET, or write proxy_secret_file; choose a new one"
    ),
    "rooms.database_url": "a password is never in this file: write database_url_env, the name of a variable",
}


WANTED: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    Path: "a path in quotes",
}


@attrs.frozen
class Fault:
    """A fault in the file. `setting` is the dotted name; `what` continues the sentence: "must be ..."."""

    setting: str
    what: str


class Unfit(Exception):
    """A single value does not have the required form."""


def structure(raw: Mapping[str, object]) -> tuple[Config | None, list[Fault]]:
    """Convert `raw`, a parsed file. Return the configuration, or None if there are faults, and all faults."""
    faults: list[Fault] = []
    return _table(Config, raw, "", faults), faults


def _table(kind: type[Any], raw: Mapping[str, object], where: str, faults: list[Fault]) -> Any:
    """Return an instance of the attrs class `kind`, or None if a fault was found in it or below it."""
    kinds = typing.get_type_hints(kind)
    known = {each.name: each for each in attrs.fields(kind)}
    before = len(faults)
    values = {}
    for key, value in raw.items():
        dotted = f"{where}{key}"
        if key not in known:
            faults.append(Fault(dotted, _unknown(key, where, list(known))))
            continue
        found = _value(kinds[key], value, dotted, faults)
        if found is not None:
            values[key] = found
            _check(known[key], found, dotted, faults)
    if len(faults) > before:
        return None
    try:
        return kind(**values)
    except ValueError as error:
        # A fault between several settings; its message begins with the name of one.
        name, _, what = str(error).partition(" ")
        faults.append(Fault(f"{where}{name}", what))
        return None


def _check(setting: attrs.Attribute[object], value: object, dotted: str, faults: list[Fault]) -> None:
    if setting.validator is not None:
        try:
            setting.validator(None, setting, value)
        except ValueError as error:
            faults.append(Fault(dotted, str(error)))


def _value(kind: Any, value: object, dotted: str, faults: list[Fault]) -> Any:
    """Convert `value` to the type of a setting's annotation. Return None if a fault was found."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        kind = next(each for each in arguments if each is not type(None))
        return _value(kind, value, dotted, faults)
    if attrs.has(kind):
        if isinstance(value, dict):
            return _table(kind, value, f"{dotted}.", faults)
        faults.append(Fault(dotted, f"is {_shown(value)} but must be a table: write [{dotted}] and settings below it"))
        return None
    if origin is tuple:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        faults.append(Fault(dotted, f'is {_shown(value)} but must be a list of texts, as in ["one", "two"]'))
        return None
    if origin is not None:
        return _mapping(arguments, value, dotted, faults)
    try:
        return _plain(kind, value)
    except Unfit as unfit:
        faults.append(Fault(dotted, str(unfit)))
        return None


def _mapping(kinds: tuple[Any, ...], value: object, dotted: str, faults: list[Fault]) -> dict[Any, Any] | None:
    if not isinstance(value, dict):
        faults.append(Fault(dotted, f"is {_shown(value)} but must be a table: write [{dotted}] and entries below it"))
        return None
    found = {}
    for name, each in value.items():
        try:
            key = _plain(kinds[0], name)
        except Unfit as unfit:
            faults.append(Fault(f"{dotted}.{name}", str(unfit)))
            continue
        found[key] = _value(kinds[1], each, f"{dotted}.{name}", faults)
    return found


def _plain(kind: Any, value: object) -> Any:
    if issubclass(kind, Enum):
        allowed = [each.value for each in kind]
        if value in allowed:
            return kind(value)
        near = difflib.get_close_matches(str(value).lower(), allowed, 1)
        raise Unfit(f"is {_shown(value)} but must be {_either(allowed)}{f' (did you mean {near[0]}?)' if near else ''}")
    if isinstance(value, str) and "\0" in value:
        raise Unfit("must not contain a NUL character")
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    wanted = (int, float) if kind is float else kind
    # In Python a bool is an int; in the file it is not.
    if isinstance(value, wanted) and (kind is bool) == isinstance(value, bool):
        return value
    raise Unfit(f"is {_shown(value)} but must be {WANTED[kind]}")


def _unknown(key: str, where: str, known: list[str]) -> str:
    hint = KNOWN_ELSEWHERE.get(f"{where}{key}") or KNOWN_ELSEWHERE.get(key)
    if hint is None:
        near = difflib.get_close_matches(key, known, 1)
        homes = [name for name in _everywhere() if name.rpartition(".")[2] == key]
        if near:
            hint = f"did you mean {where}{near[0]}?"
        elif homes:
            table = homes[0].rpartition(".")[0]
            hint = f"it is under [{table}]" if table else "it is at the top of the file"
        else:
            hint = f"known here: {', '.join(known)}"
    return f"is not a setting: {hint}"


def _everywhere() -> list[str]:
    names = []
    for kind, prefix in [(Config, "")] + [
        (hint, f"{name}.") for name, hint in typing.get_type_hints(Config).items() if attrs.has(hint)
    ]:
        names += [f"{prefix}{each.name}" for each in attrs.fields(kind)]
    return names


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _either(choices: list[str]) -> str:
    quoted = [f'"{each}"' for each in choices]
    return f"{', '.join(quoted[:-1])} or {quoted[-1]}"


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
        raise ConfigError(f"{file} is not valid TOML: {_toml_fault(str(error))}") from None
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
        raise ConfigError(f"{file} cannot be read ({why}): make it a file you may read") from None
    if mode & stat.S_IWOTH:
        # The file says who may approve, so write access to it is permission to approve.
        raise ConfigError(f"{file} can be written by every user: run 'chmod 600 {file}'")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file} is not UTF-8 text at line {line}: save it as UTF-8") from None


def _settle(config: Config, raw: Mapping[str, object], directory: Path, home: Path | None) -> Config:
    """Make every path absolute, and compute the defaults that depend on this machine."""

    def absolute(path: Path) -> Path:
        return _absolute(path, directory, home)

    # Of every section, so that none is forgotten: a path that depends on the directory in which the server is started
    # may lead to an agent's file.
    config = _evolved(config, {name: _with_paths(section, absolute) for name, section in _sections(config)})
    root, cli = config.default_workspace_root, config.host_cli
    written = raw.get("database")
    if not isinstance(written, dict) or "path" not in written:
        database = attrs.evolve(config.database, path=Path(places(config.ipc_name).database))
        config = attrs.evolve(config, database=database)
    slack = config.slack
    if not slack.authorized_user_ids:
        members = [each.strip() for each in os.environ.get("SLACK_MEMBER_IDS", "").split(",")]
        slack = attrs.evolve(slack, authorized_user_ids=tuple(each for each in members if each))
    # Sessions use resolved workspace paths.
    channels = {absolute(root).resolve(): channel for root, channel in slack.workspace_channels.items()}
    slack = attrs.evolve(slack, workspace_channels=channels)
    if cli and ("/" in cli or cli.startswith("~")):  # a plain name is looked up in the server's PATH
        cli = str(absolute(Path(cli)))
    return attrs.evolve(
        config,
        default_workspace_root=root and absolute(root).resolve(),
        host_cli=cli,
        slack=slack,
    )


def _sections(config: Config) -> Iterator[tuple[str, attrs.AttrsInstance]]:
    """Return the sections of a configuration with their names."""
    for each in attrs.fields(Config):
        section = getattr(config, each.name)
        if attrs.has(type(section)):
            yield each.name, section


def _with_paths(section: S, absolute: Callable[[Path], Path]) -> S:
    """Return a section with every path in it made absolute."""
    values = {each.name: getattr(section, each.name) for each in attrs.fields(type(section))}
    return _evolved(section, {name: absolute(value) for name, value in values.items() if isinstance(value, Path)})


def _evolved(value: S, changes: Mapping[str, object]) -> S:
    """Return a value with these fields changed, whose names are computed."""
    evolve: Callable[..., S] = attrs.evolve
    return evolve(value, **changes)


def _absolute(path: Path, directory: Path, home: Path | None) -> Path:
    if home is not None and path.parts[:1] == ("~",):
        return home.joinpath(*path.parts[1:])
    try:
        return directory / path.expanduser()
    except RuntimeError:  # ~name of an unknown user
        return directory / path


def _bad_root(value: object, directory: Path, home: Path | None) -> list[Fault]:
    if not isinstance(value, str) or not value or "\0" in value:
        return []
    root = _absolute(Path(value), directory, home).resolve()
    if root in (Path("/"), (home or Path.home()).resolve()):
        return [Fault("default_workspace_root", f"must not be {root}: an agent would own all below it; name a project")]
    return []


def workspace_root(given: str) -> Path:
    """Return the directory that a command line names as the default workspace, resolved. Raises ConfigError if it is
    not a directory, or one that agents may not own."""
    faults = _bad_root(given, Path.cwd(), None)
    if faults:
        raise ConfigError(f"--workspace {faults[0].what}")
    root = _absolute(Path(given), Path.cwd(), None).resolve() if given and "\0" not in given else None
    if root is None or not root.is_dir():
        raise ConfigError(f"--workspace {given!r} is not a directory: name the project that agents work in")
    return root


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


def _toml_fault(said: str) -> str:
    """Return what is wrong with a text that is no TOML, from the parser's message."""
    if twice := re.match(r"Cannot declare \((.*?),?\) twice \((at [^)]*)", said):
        table = twice[1].replace("'", "").replace(", ", ".")
        return f"it has the table [{table}] twice ({twice[2]}); keep one, and move the lines of the other into it"
    return f"{_lower(said)}; correct that"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
