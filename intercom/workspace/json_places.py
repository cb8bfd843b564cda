"""Positions of values in a JSON text, for messages; and duplicate keys, which JSON parsers hide."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

_SPACE = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


def line_and_column(text: str, index: int) -> tuple[int, int]:
    """Return the line and column, both from 1, of an index in `text`."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def locate(text: str, path: Sequence[str | int], key: bool = False) -> int:
    """Return the index of the value at `path` in the valid JSON `text`; with `key`, of its key."""
    at = _skip(text, 0)
    place = at
    for step in path:
        found = next((k, v) for name, k, v in _members(text, at) if name == step)
        place, at = found if key else (found[1], found[1])
    return place


def doubled(text: str) -> tuple[str, int] | None:
    """Return the first duplicate key in an object of the valid JSON `text`, and its second index; or None."""
    waiting = [_skip(text, 0)]
    while waiting:
        at = waiting.pop()
        seen: set[str | int] = set()
        for name, key, value in _members(text, at):
            if isinstance(name, str) and name in seen:
                return name, key
            seen.add(name)
            waiting.append(value)
    return None


def _members(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Yield name or number, index of the key and index of the value, of each member of the container at `at`."""
    opening = text[at]
    if opening not in "{[":
        return
    count, i = 0, _skip(text, at + 1)
    while text[i] not in "}]":
        name: str | int = count
        key = i
        if opening == "{":
            name, i = _decoder.raw_decode(text, i)
            i = _skip(text, _skip(text, i) + 1)
        yield name, key, i
        _, i = _decoder.raw_decode(text, i)
        i = _skip(text, i)
        i = _skip(text, i + 1) if text[i] == "," else i
        count += 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
