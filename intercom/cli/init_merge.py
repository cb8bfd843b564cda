"""Merges one entry into a client's configuration file, and leaves everything else as it was."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tomlkit
from attrs import frozen
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable


class Unmergeable(Exception):
    """Raised if the file cannot be changed safely; the message says why."""


@frozen
class Wish:
    """What a file should say: `entry` as `name` in `table`. Keys in `without` are removed from an older entry.
    `inputs`, identified by their `id`, are at the top of the file (JSON only)."""

    table: str
    name: str
    entry: Mapping[str, Any]
    without: Collection[str] = ()
    inputs: Sequence[Mapping[str, Any]] = ()


def merge(format: str, text: str, wish: Wish) -> str:
    """Return the file's new text, or `text` itself if it says so already.

    Other keys of an older entry stay, and so does a number that the user raised or a variable that the user added.
    `format` is "json" or "toml". Raises `Unmergeable` if the text is not plain JSON or TOML, or has another value in
    that place.
    """
    return (_merge_toml if format == "toml" else _merge_json)(text, wish)


def snippet(format: str, wish: Wish) -> str:
    """Return the entry as the whole text of a new file."""
    return merge(format, "", wish)


def without(format: str, text: str, table: str, name: str, inputs: Collection[str] = ()) -> str:
    """Return the file's text without this entry and the `inputs` with these ids; everything else stays as it was.

    A table that becomes empty is removed too. Raises `Unmergeable` like `merge`.
    """
    return (_without_toml if format == "toml" else _without_json)(text, table, name, inputs)


def is_empty(format: str, text: str) -> bool:
    """Tell whether a file has no content left."""
    if format == "toml":
        return not text.strip()
    try:
        return bool(json.loads(text or "{}") == {})
    except (ValueError, RecursionError):
        return False


def present(format: str, text: str, table: str, name: str) -> Mapping[str, Any]:
    """Return the existing entry; empty if there is none, or if the text cannot be read."""
    try:
        document = tomllib.loads(text) if format == "toml" else json.loads(text or "{}")
        return _below(document if isinstance(document, dict) else {}, table, name)
    except (ValueError, RecursionError, Unmergeable):
        return {}


def _wanted(before: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
    def kept(key: str, value: Any) -> Any:
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            return {**old, **value}
        if key == "env_vars" and isinstance(old, list):
            return [*old, *(name for name in value if name not in old)]
        return max(old, value) if type(value) is int and isinstance(old, int) else value

    left = {key: value for key, value in before.items() if key not in wish.without}
    return {**left, **{key: kept(key, value) for key, value in wish.entry.items()}}


def _below(document: Any, *names: str) -> Mapping[str, Any]:
    found = document
    for at, name in enumerate(names, 1):
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise Unmergeable(f"has something other than a table at {'.'.join(names[:at])}")
    return found  # type: ignore[no-any-return]


def _merge_json(text: str, wish: Wish) -> str:
    if text.strip() in ("", "{}"):
        inputs = {"inputs": list(wish.inputs)} if wish.inputs else {}
        whole = {**inputs, wish.table: {wish.name: dict(wish.entry)}}
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    document = json_object(text)
    before = _below(document, wish.table, wish.name)
    wanted = _wanted(before, wish)
    missing = _missing(document, wish.inputs)
    if wanted == before and not missing:
        return text
    if missing:
        document["inputs"] = [*document.get("inputs", ()), *missing]
    document.setdefault(wish.table, {})[wish.name] = wanted
    return json_text(document, like=text)


def _without_json(text: str, table: str, name: str, inputs: Collection[str]) -> str:
    document = json_object(text)
    if name not in _below(document, table):
        return text
    del document[table][name]
    if not document[table]:
        del document[table]
    if inputs and isinstance(document.get("inputs"), list):
        kept = [each for each in document["inputs"] if not (isinstance(each, dict) and each.get("id") in inputs)]
        document["inputs"] = kept
        if not kept:
            del document["inputs"]
    return json_text(document, like=text)


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object in a file; empty for a file without text. Raises Unmergeable."""
    try:
        document = json.loads(text or "{}", object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise Unmergeable(f"is not plain JSON ({error}); comments and trailing commas can not be kept") from None
    if not isinstance(document, dict):
        raise Unmergeable("is not a JSON object")
    return document


def json_text(document: Mapping[str, Any], *, like: str) -> str:
    """Return a document as text, with the layout of `like`."""
    indent = re.search(r"\n([ \t]+)\S", like)
    new = json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False)
    return new + ("\n" if like.endswith("\n") else "")


def _missing(document: Mapping[str, Any], inputs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    there = document.get("inputs", [])
    if not isinstance(there, list):
        raise Unmergeable("has something other than a list at inputs")
    known = [each.get("id") for each in there if isinstance(each, dict)]
    return [each for each in inputs if each["id"] not in known]


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object hook for `json.loads` that raises ValueError if a name occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _without_toml(text: str, table: str, name: str, _inputs: Collection[str]) -> str:
    plain, document = _toml(text)
    if name not in _below(plain, table):
        return text
    servers: Any = document[table]
    del servers[name]
    if not servers:
        del document[table]
    rest = {key: value for key, value in _below(plain, table).items() if key != name}
    return _checked(
        document, {**{key: value for key, value in plain.items() if key != table}, **({table: rest} if rest else {})}
    )


def _toml(text: str) -> tuple[dict[str, Any], tomlkit.TOMLDocument]:
    try:
        return tomllib.loads(text), tomlkit.parse(text)
    except (ValueError, TOMLKitError, RecursionError) as error:
        raise Unmergeable(f"is not TOML ({error})") from None


def _checked(document: tomlkit.TOMLDocument, expected: Mapping[str, Any]) -> str:
    """Return the document's text. It is checked first, because the editing library gets some layouts wrong."""
    new = tomlkit.dumps(document)
    if tomllib.loads(new) != expected:
        raise Unmergeable("is laid out in a way that can not be edited safely")
    return new


def _merge_toml(text: str, wish: Wish) -> str:
    table, name = wish.table, wish.name
    plain, document = _toml(text)
    before = _below(plain, table, name)
    wanted = _wanted(before, wish)
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
    for key in before.keys() - wanted.keys():
        del servers[name][key]
    return _checked(document, {**plain, table: {**_below(plain, table), name: wanted}})
