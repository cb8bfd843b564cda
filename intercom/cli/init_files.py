"""Edits the text of files that other programs own: only what is asked for changes.

`init` first works out what to write, and only reads. `file_replacement.commit` then writes, and restores everything if
a step fails. Nothing is printed meanwhile, so a reader that closes the pipe cannot stop it half-way.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from intercom.model.json_types import Json, JsonObject


def glance(file: Path) -> str:
    """Return the file's text as far as it can be read; empty if it cannot."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


# --- JSON and TOML that somebody else wrote --------------------------------------------------------------------------


class Unmergeable(Exception):
    """Raised if the file cannot be changed safely; the message says why."""


def parse(text: str, *, toml: bool) -> JsonObject:
    """Return the document in a text; empty for an empty text. Raises Unmergeable if it is not plain JSON or TOML."""
    try:
        found = tomllib.loads(text) if toml else json.loads(text.strip() or "{}", object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        if toml:
            raise Unmergeable(f"is not TOML ({error})") from None
        raise Unmergeable(f"is not plain JSON ({error}); comments and trailing commas cannot be kept") from None
    if not isinstance(found, dict):
        raise Unmergeable("is not a JSON object")
    return found


def _unique(pairs: list[tuple[str, Json]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def table(document: JsonObject, *names: str) -> JsonObject:
    """Return the table at these names; empty if there is none. Raises Unmergeable if there is another value."""
    found = document
    for at, name in enumerate(names, 1):
        inner = found.get(name, {})
        if not isinstance(inner, dict):
            raise Unmergeable(f"has something other than a table at {'.'.join(names[:at])}")
        found = inner
    return found


def edit(text: str, change: Callable[[JsonObject], None], *, toml: bool) -> str:
    """Return the text after `change` has changed its document.

    Everything else stays: in TOML the comments and the layout, in JSON the order and the indentation. Returns `text`
    itself if the document stays the same. Raises Unmergeable if the text cannot be read, or cannot be edited safely.
    """
    before = parse(text, toml=toml)
    after = copy.deepcopy(before)
    change(after)
    if after == before:
        return text
    return _toml_text(text, before, after) if toml else _json_text(text, after)


def _json_text(text: str, document: JsonObject) -> str:
    indent = re.search(r"\n([ \t]+)\S", text)
    end = "\n" if text.endswith("\n") or text.strip() in ("", "{}") else ""
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + end


def _toml_text(text: str, before: JsonObject, after: JsonObject) -> str:
    try:
        document = tomlkit.parse(text)
        _amend(document, before, after)
        new = tomlkit.dumps(document)
        # The editing library gets some layouts wrong.
        if tomllib.loads(new) == after:
            return new
    except (ValueError, TOMLKitError, RecursionError):
        pass
    raise Unmergeable("is laid out in a way that cannot be edited safely")


def _amend(document: Any, before: Mapping[str, Json], after: Mapping[str, Json]) -> None:
    """Make a TOML document say `after` instead of `before`."""
    for key in before.keys() - after.keys():
        del document[key]
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _amend(document[key], old, value)
        elif value != old:
            document[key] = value


# --- for people ------------------------------------------------------------------------------------------------------


def describe(error: Exception) -> str:
    """Describe the error for a person."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror[:1].lower()}{error.strerror[1:]}: {error.filename}"
    return str(error)


def indented(text: str) -> str:
    """Indent text that is shown among other lines."""
    return "".join(f"  {line}\n" for line in text.splitlines())
