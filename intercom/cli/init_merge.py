"""Merge one entry into a client's configuration file, leaving everything else as it was."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable


class Unmergeable(Exception):
    """The file can not be changed without harm; the message says why."""


def merge(format: str, text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """The file's new text with `entry` as `name` in `table`; `text` itself when it says so already.

    Keys of an older entry that `entry` does not have are kept, and a number the user has raised stays. `format` is
    "json" or "toml". Raises `Unmergeable` when the text is not plain JSON or TOML, or has something else in that place.
    """
    return (_merge_toml if format == "toml" else _merge_json)(text, table, name, entry)


def snippet(format: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    """The same entry as the whole of a new file."""
    return merge(format, "", table, name, entry)


def _wanted(before: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    def kept(key: str, value: Any) -> Any:
        old = before.get(key)
        return max(old, value) if type(value) is int and isinstance(old, int) else value

    return {**before, **{key: kept(key, value) for key, value in entry.items()}}


def _below(document: Any, *names: str) -> Mapping[str, Any]:
    found = document
    for at, name in enumerate(names, 1):
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise Unmergeable(f"has something other than a table at {'.'.join(names[:at])}")
    return found  # type: ignore[no-any-return]


def _merge_json(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    if text.strip() in ("", "{}"):
        return json.dumps({table: {name: dict(entry)}}, indent=2, ensure_ascii=False) + "\n"
    try:
        document = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise Unmergeable(f"is not plain JSON ({error}); comments and trailing commas can not be kept") from None
    if not isinstance(document, dict):
        raise Unmergeable("is not a JSON object")
    before = _below(document, table, name)
    wanted = _wanted(before, entry)
    if wanted == before:
        return text
    document.setdefault(table, {})[name] = wanted
    indent = re.search(r"\n([ \t]+)\S", text)
    new = json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False)
    return new + ("\n" if text.endswith("\n") else "")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: an object whose names each stand once. Raises ValueError for another."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _merge_toml(text: str, table: str, name: str, entry: Mapping[str, Any]) -> str:
    try:
        plain = tomllib.loads(text)
        document = tomlkit.parse(text)
    except (ValueError, TOMLKitError, RecursionError) as error:
        raise Unmergeable(f"is not TOML ({error})") from None
    before = _below(plain, table, name)
    wanted = _wanted(before, entry)
    if wanted == before:
        return text
    if table not in document:
        document.add(table, tomlkit.table(is_super_table=True))
    servers: Any = document[table]
    if name not in servers:
        servers[name] = tomlkit.inline_table() if isinstance(servers, InlineTable) else tomlkit.table()
    for key, value in wanted.items():
        if before.get(key) != value:
            servers[name][key] = value
    new = tomlkit.dumps(document)
    # The file may be laid out in a way that the editing library gets wrong: look before it is written.
    expected = {**plain, table: {**_below(plain, table), name: wanted}}
    if tomllib.loads(new) != expected:
        raise Unmergeable("is laid out in a way that can not be edited safely")
    return new
