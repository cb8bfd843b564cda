"""Edits the text of files that other programs own: only what is asked for changes.

`init` first works out what to write, and only reads. `file_replacement.commit` then writes, and restores everything if
a step fails. Nothing is printed meanwhile, so a reader that closes the pipe cannot stop it half-way.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from intercom.agents.clients.client import Client, Location
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


# --- one file of a client ---------------------------------------------------------------------------------------------


class ClientFile(ABC):
    """A file of a client, and what is Intercom's in it."""

    client: Client
    project: Path

    @property
    def mode(self) -> int:
        """The mode of a new file."""
        return 0o600

    @property
    def scope(self) -> str:
        """Where it applies, if a person has to know."""
        return ""

    @property
    def note(self) -> str:
        """What a person has to know after a change."""
        return ""

    @property
    @abstractmethod
    def title(self) -> str:
        """What the file is, for people."""

    @property
    @abstractmethod
    def location(self) -> Location:
        """Where the file is."""

    @abstractmethod
    def merged(self, text: str) -> str:
        """Return the file's text with what is Intercom's; `text` itself if it says so already. Raises Unmergeable."""

    @abstractmethod
    def removed_from(self, text: str, before: JsonObject | None) -> str:
        """Return the text without what is Intercom's. `before` is the entry of its name that was there earlier. Raises
        Unmergeable."""

    @abstractmethod
    def entry_in(self, text: str) -> JsonObject | None:
        """Return Intercom's entry in the text, for files that name servers. Raises Unmergeable."""

    @abstractmethod
    def is_bare(self, text: str) -> bool:
        """Whether nothing is left in a text from which Intercom's was removed. Raises Unmergeable."""


class DocumentFile(ClientFile):
    """A file in JSON or TOML, whose document is changed."""

    @abstractmethod
    def put(self, document: JsonObject) -> None:
        """Change the document so that it has what is Intercom's."""

    @abstractmethod
    def take(self, document: JsonObject, before: JsonObject | None) -> None:
        """Take what is Intercom's out of the document."""

    def entry_of(self, document: JsonObject) -> JsonObject | None:
        """Return Intercom's entry in the document; None where it has another form."""
        return None

    @abstractmethod
    def is_empty(self, document: JsonObject) -> bool:
        """Whether the document has nothing that a new file of ours would not have."""

    def merged(self, text: str) -> str:
        return edit(text, self.put, toml=self.location.is_toml)

    def removed_from(self, text: str, before: JsonObject | None) -> str:
        return edit(text, lambda document: self.take(document, before), toml=self.location.is_toml)

    def entry_in(self, text: str) -> JsonObject | None:
        return self.entry_of(parse(text, toml=self.location.is_toml))

    def is_bare(self, text: str) -> bool:
        return self.is_empty(parse(text, toml=self.location.is_toml))


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
