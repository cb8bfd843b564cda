"""Functions that take fields from a client's payload, which may contain anything."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any


def text(data: object, *names: str) -> str | None:
    """Return the first of these fields that is a non-empty text; None if none is."""
    if isinstance(data, Mapping):
        for name in names:
            value = data.get(name)
            if isinstance(value, str) and value:
                return value
    return None


class Contradiction(Exception):
    """Fields that are names for one thing have different values, so it is unknown which one counts."""


def one(given: Mapping[str, Any], *names: str) -> str | None:
    """Return the text of these fields, which are names for one thing; None if there is none. Raises Contradiction if
    two differ: the client may not use the one that people see."""
    values = [given[name] for name in names if given.get(name) is not None]
    if any(value != values[0] for value in values[1:]):
        raise Contradiction
    return values[0] if values and isinstance(values[0], str) else None


def one_text(given: Mapping[str, Any], *names: str) -> str | None:
    """Like `one`, and None for an empty text."""
    return one(given, *names) or None


def table(data: object, *names: str) -> dict[str, Any]:
    """Return the first of these fields that is an object, or a text with one as JSON; empty if none is."""
    if isinstance(data, Mapping):
        for name in names:
            value = data.get(name)
            if isinstance(value, str):
                value = _parsed(value)
            if isinstance(value, dict):
                return value
    return {}


def rows(data: object, name: str) -> list[dict[str, Any]]:
    """Return the objects in a field that is a list."""
    value = data.get(name) if isinstance(data, Mapping) else None
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def texts(data: object, name: str) -> list[str]:
    """Return the texts in a field that is a list."""
    value = data.get(name) if isinstance(data, Mapping) else None
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def event_of(data: object, named: str | None, known: Collection[str], *names: str) -> str | None:
    """Return the event that the client names in one of these fields. Returns `named`, which the hook was set up for, if
    the client names none. A client's name that is not `known` gives way to a known `named`, in case the client renames
    the event."""
    said = text(data, *names)
    return named if said is None or (said not in known and named in known) else said


def canonical(value: object) -> str:
    """Return the same text for equal JSON values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _parsed(value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
