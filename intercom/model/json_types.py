"""The types of decoded JSON: what a value may be is checked where it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "str | int | float | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"


def part(whole: Mapping[str, Json], name: str) -> JsonObject:
    """Return the object that `whole` holds under this name; an empty one if there is none."""
    found = whole.get(name)
    return found if isinstance(found, dict) else {}
