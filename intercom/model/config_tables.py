"""The settings as a configuration file has them: its tables, their settings, and the TOML form of each."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType

import attrs
from attrs import AttrsInstance

from intercom.model.config import Config

WORDS: dict[type, str] = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}


@attrs.frozen
class Setting:
    """One setting: its table ("" at the top of the file), and its TOML form.

    `default` is None if an omitted setting has a meaning that no value expresses.
    """

    table: str
    name: str
    kind: str
    default: str | None
    doc: str


@attrs.frozen
class Table:
    """A table of the file and its settings. `free` means that the user chooses its names."""

    name: str
    doc: str
    settings: tuple[Setting, ...]
    free: bool = False


def tables() -> tuple[Table, ...]:
    """Return every table of the file in order. The first one, named "", is the top of the file."""
    kinds = typing.get_type_hints(Config)
    top: list[Setting] = []
    below: list[Table] = []
    for each in attrs.fields(Config):
        kind, doc = kinds[each.name], each.metadata["doc"]
        if attrs.has(kind):
            below.append(Table(each.name, doc, tuple(_settings(kind, each.name))))
        elif typing.get_origin(kind) is Mapping:
            inner = typing.get_args(kind)[1]
            settings = _settings(inner, f'{each.name}."NAME"') if attrs.has(inner) else iter(())
            below.append(Table(each.name, doc, tuple(settings), free=True))
        else:
            top.append(_setting(each, kind, ""))
    return (Table("", "At the top of the file, before any table.", tuple(top)), *below)


def _settings(kind: type[AttrsInstance], table: str) -> Iterator[Setting]:
    kinds = typing.get_type_hints(kind)
    for each in attrs.fields(kind):
        yield _setting(each, kinds[each.name], table)


def _setting(attribute: attrs.Attribute[object], kind: type, table: str) -> Setting:
    # `load` computes this default; nobody would write it.
    placed = attribute.name == "path" and table == "database"
    default = None if placed else _toml(attribute.default)
    return Setting(table, attribute.name, _words(kind), default, attribute.metadata["doc"])


def _words(kind: type) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is UnionType:
        return _words(next(each for each in arguments if each is not NoneType))
    if origin is tuple:
        return "list of texts"
    if origin is Mapping:
        return f"table of {_words(arguments[1])}, by {_words(arguments[0])}"
    if issubclass(kind, Enum):
        return ", ".join(f'"{each.value}"' for each in kind)
    return WORDS[kind]


def _toml(default: object) -> str | None:
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = default.factory()  # type: ignore[attr-defined]
    if default is None:
        return None
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str):
        return f'"{default}"'
    if isinstance(default, tuple):
        quoted = ", ".join(f'"{each}"' for each in default)
        return f"[{quoted}]"
    return str(default)
