"""Taking fields out of what a client wrote, which may be anything."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any


def text(data: object, *names: str) -> str | None:
    """The first of these fields that is a text with something in it; None when none is."""
    if isinstance(data, Mapping):
        for name in names:
            value = data.get(name)
            if isinstance(value, str) and value:
                return value
    return None


class Contradiction(Exception):
    """Fields that are names of one thing hold different values: it is not known which one counts."""


def one(given: Mapping[str, Any], *names: str) -> str | None:
    """The text in whichever of these fields is there, which are names of one thing; None when none is.

    Raises Contradiction where two differ: the one shown may not be the one that is heeded.
    """
    values = [given[name] for name in names if given.get(name) is not None]
    if any(value != values[0] for value in values[1:]):
        raise Contradiction
    return values[0] if values and isinstance(values[0], str) else None


def one_text(given: Mapping[str, Any], *names: str) -> str | None:
    """As `one`, and None for an empty text."""
    return one(given, *names) or None


def table(data: object, *names: str) -> dict[str, Any]:
    """The first of these fields that is an object, or a text that holds one as JSON; empty when none is."""
    if isinstance(data, Mapping):
        for name in names:
            value = data.get(name)
            if isinstance(value, str):
                value = _parsed(value)
            if isinstance(value, dict):
                return value
    return {}


def rows(data: object, name: str) -> list[dict[str, Any]]:
    """The objects in a field that is a list."""
    value = data.get(name) if isinstance(data, Mapping) else None
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts(data: object, name: str) -> list[str]:
    """The texts in a field that is a list."""
    value = data.get(name) if isinstance(data, Mapping) else None
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def event_of(data: object, named: str | None, known: Collection[str], *names: str) -> str | None:
    """The event that a client says this is, by one of these fields; `named`, the one the hook was set up for, where the
    client says none, or one that is not `known` (it may be called otherwise tomorrow, and asks all the same)."""
    said = text(data, *names)
    return named if said is None or (said not in known and named in known) else said


def canonical(value: object) -> str:
    """The same text for the same JSON value."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _parsed(value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
