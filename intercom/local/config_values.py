"""Conversion of parsed TOML to a `Config`. All faults are collected on the way."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from intercom.model.config import Config

#: Obsolete names, and secrets, which need a better hint than the most similar setting.
KNOWN_ELSEWHERE = {
    "server": "its settings stand at the top of the file now",
    "server.workspace_root": "write default_workspace_root at the top of the file",
    "workspace_root": "write default_workspace_root",
    "sse_port": "write http_port",
    "remote_commands": "write [commands]",
    "session": "write host_cli, host_cli_args and max_concurrent_sessions at the top of the file",
    "host_args": "write host_cli_args",
    "approval_timeout_seconds": "write approval_seconds under [timeouts]",
    "prompt_timeout_seconds": "write prompt_seconds under [timeouts]",
    "command_timeout_seconds": "it stands under [timeouts]",
    "log_level": "write level under [logging]",
    "log_file": "write file under [logging]",
    "slack.app_token": "a token never stands in this file: agent-intercom slack login keeps it; revoke this one",
    "slack.bot_token": "a token never stands in this file: agent-intercom slack login keeps it; revoke this one",
    "slack.team_id": "agent-intercom slack login finds it out",
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


def structure(raw: Mapping[str, Any]) -> tuple[Config | None, list[Fault]]:
    """Convert `raw`, a parsed file. Return the configuration, or None if there are faults, and all faults."""
    faults: list[Fault] = []
    return _table(Config, raw, "", faults), faults


def _table(kind: type[Any], raw: Mapping[str, Any], where: str, faults: list[Fault]) -> Any:
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


def _check(setting: Any, value: Any, dotted: str, faults: list[Fault]) -> None:
    if setting.validator is not None:
        try:
            setting.validator(None, setting, value)
        except ValueError as error:
            faults.append(Fault(dotted, str(error)))


def _value(kind: Any, value: Any, dotted: str, faults: list[Fault]) -> Any:
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


def _mapping(kinds: tuple[Any, ...], value: Any, dotted: str, faults: list[Fault]) -> dict[Any, Any] | None:
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


def _plain(kind: Any, value: Any) -> Any:
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
            hint = f"it stands under [{table}]" if table else "it stands at the top of the file"
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


def _shown(value: Any) -> str:
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
