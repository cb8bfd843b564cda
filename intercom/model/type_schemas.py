"""JSON Schemas of types: of texts, numbers, enums, instants, lists, mappings, and unions of these.

The schema of an attrs class is the caller's: an agent's arguments and the answers to people are described differently.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Literal, NewType, Union, get_args, get_origin

from attrs import AttrsInstance, has

Schema = dict[str, Any]
#: Returns the schema of the objects of an attrs class.
OfClass = Callable[[type[AttrsInstance]], Schema]

NULL: Schema = {"type": "null"}
_SIMPLE: Mapping[object, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


def of_type(hint: object, of_class: OfClass) -> Schema:
    """Return the schema of the values of a type, as JSON. `hint` is resolved: no part of it is a text. Raises TypeError
    for a type without a known form."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        schemas = [of_type(part, of_class) for part in parts if part is not type(None)]
        return one_of(schemas, nullable=type(None) in parts)
    if origin in (tuple, list, Sequence):
        return {"type": "array", "items": of_type(parts[0], of_class)}
    if origin in (dict, Mapping) or hint is dict:
        is_open = not parts or parts[1] in (Any, object)
        return (
            {"type": "object"} if is_open else {"type": "object", "additionalProperties": of_type(parts[1], of_class)}
        )
    if origin is Literal:
        return {"type": "string", "enum": [*parts]}
    if isinstance(hint, NewType):
        return of_type(hint.__supertype__, of_class)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": [member.value for member in hint]}
    if isinstance(hint, type) and has(hint):
        return of_class(hint)
    if hint is datetime:
        return {"type": "string", "format": "date-time"}
    if hint in (Any, object):
        return {}
    if hint not in _SIMPLE:
        raise TypeError(f"no JSON Schema is known for {hint}")
    return {"type": _SIMPLE[hint]}


def one_of(schemas: Sequence[Schema], *, nullable: bool = False) -> Schema:
    """Return the schema of the values of any of these schemas. If each has a type of its own, their constraints stand
    side by side: each counts for its own type only."""
    if not all(isinstance(each.get("type"), str) for each in schemas):
        choices = [*schemas, NULL] if nullable else [*schemas]
        return choices[0] if len(choices) == 1 else {"anyOf": choices}
    if len(schemas) == 1:
        only = schemas[0]
        if not nullable:
            return only
        widened = {**only, "type": [only["type"], "null"]}
        if "enum" in only:
            widened["enum"] = [*only["enum"], None]
        return widened
    merged: Schema = {"type": [each["type"] for each in schemas] + (["null"] if nullable else [])}
    for each in schemas:
        merged.update({key: value for key, value in each.items() if key != "type"})
    return merged
