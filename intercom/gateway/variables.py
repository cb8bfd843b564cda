"""References to variables in the values of a configuration. Pure.

- `${NAME}` and `${env:NAME}` stand for the variable NAME of the environment, which must be set;
- `${NAME:-text}` stands for `text` if the variable is not set;
- `${keychain:NAME}` stands for a secret in the user's keychain.

A run of `$` before `{` is written twice to mean itself: `$${` stands for `${`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, TypeAlias

from attrs import frozen

_PART: Final = re.compile(r"(?P<dollar>\$\$)(?=\$*\{)|\$\{(?P<inside>[^}]*)(?P<end>\})?")
_INSIDE: Final = re.compile(
    r"keychain:(?P<secret>[A-Za-z0-9_.@/-]+)|(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL
)
_DOLLARS: Final = re.compile(r"\$+(?=\{)")


class Source(StrEnum):
    """Where the value of a reference comes from."""

    ENVIRONMENT = "environment"
    KEYCHAIN = "keychain"


@frozen
class Reference:
    """A variable of the environment, or a secret in the keychain."""

    source: Source
    name: str

    def __str__(self) -> str:
        return self.name if self.source is Source.ENVIRONMENT else f"keychain:{self.name}"


#: Returns the value of a reference, or None if there is none.
Lookup: TypeAlias = Callable[[Reference], "str | None"]


class Malformed(ValueError):
    """A text has a `${` that is no reference."""


def references(text: str) -> list[tuple[Reference, bool]]:
    """Return the references in a text, and whether each has a default. Raises Malformed."""
    return [(reference, default is not None) for _, reference, default in _parts(text) if reference]


def expand(text: str, lookup: Lookup, missing: list[Reference]) -> str:
    """Return the text with the values of its references. Those without a value are added to `missing`."""
    found = []
    for literal, reference, default in _parts(text):
        found.append(literal)
        if reference is not None:
            value = lookup(reference)
            if value is None and default is None:
                missing.append(reference)
            found.append(value if value is not None else default or "")
    return "".join(found)


def escape(text: str, *, before_reference: bool = False) -> str:
    """Write a text so that `expand` returns it as it is; `before_reference` if a reference is to follow it."""
    escaped = _DOLLARS.sub(lambda found: found[0] * 2, text)
    if before_reference:
        escaped += "$" * (len(text) - len(text.rstrip("$")))
    return escaped


def _parts(text: str) -> Iterator[tuple[str, Reference | None, str | None]]:
    """Yield each piece of text with the reference that follows it and its default."""
    at, literal = 0, ""
    for found in _PART.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        if found["dollar"]:
            literal += "$"
            continue
        inside = _INSIDE.fullmatch(found["inside"]) if found["end"] else None
        if inside is None or "${" in (inside["default"] or ""):
            raise Malformed("a ${ that begins no variable")
        secret, name = inside["secret"], inside["name"]
        reference = Reference(Source.KEYCHAIN, secret) if secret else Reference(Source.ENVIRONMENT, name)
        yield literal, reference, inside["default"]
        literal = ""
    yield literal + text[at:], None, None
