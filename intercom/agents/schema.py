"""JSON Schemas from attrs classes: the only description of each tool's arguments and results.

A field's metadata may hold "doc" (its description), "minimum", "maximum" and "min_length". The schema omits "most" and
"items", which `arguments` checks. A field without default is required, unless the class sets `nothing_required`: some
clients refuse schemas with alternatives at the top. Unknown keys are refused, unless the class sets `open_to_more`.
"""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, fields, has

Schema = dict[str, Any]


def of(kind: type[Any]) -> Schema:
    """Return the schema of an object of this attrs class."""
    hints = get_type_hints(kind)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for attribute in fields(kind):
        described = _of_type(hints[attribute.name])
        if doc := attribute.metadata.get("doc"):
            described = {**described, "description": doc}
        for name, keyword in (("minimum", "minimum"), ("maximum", "maximum"), ("min_length", "minLength")):
            if name in attribute.metadata:
                described[keyword] = attribute.metadata[name]
        if attribute.default is NOTHING:
            required.append(attribute.name)
        elif isinstance(attribute.default, str | int | bool) and not attribute.metadata.get("hide_default"):
            described["default"] = attribute.default.value if isinstance(attribute.default, Enum) else attribute.default
        properties[attribute.name] = described
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if getattr(kind, "open_to_more", False):
        schema["additionalProperties"] = True
    if required and not getattr(kind, "nothing_required", False):
        schema["required"] = required
    return schema


def _of_type(hint: Any) -> Schema:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _of_union([part for part in get_args(hint) if part is not type(None)], type(None) in get_args(hint))
    if origin in (tuple, list):
        return {"type": "array", "items": _of_type(get_args(hint)[0])}
    if origin is dict or hint is dict:
        return {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "enum": [member.value for member in hint]}
    if isinstance(hint, type) and has(hint):
        return of(hint)
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[hint]}


def _of_union(parts: list[Any], nullable: bool) -> Schema:
    schemas = [_of_type(part) for part in parts]
    if len(schemas) == 1:
        only = schemas[0]
        if not nullable:
            return only
        widened = {**only, "type": [only["type"], "null"]}
        if "enum" in only:
            widened["enum"] = [*only["enum"], None]
        return widened
    kinds = [schema["type"] for schema in schemas] + (["null"] if nullable else [])
    merged: Schema = {"type": kinds}
    for schema in schemas:
        merged.update({key: value for key, value in schema.items() if key != "type"})
    return merged
