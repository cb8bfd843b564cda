"""What model providers take of a tool's schema: the rules of Gemini's API and of OpenAI's strict mode, as faults.

Pure. The default suite looks at what we list with them, and `tox -e clients` at what clients make of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

#: The keywords that every converter takes. Limits (`minLength`, `maximum`, ...) and `default` are refused in OpenAI's
#: strict mode; google-genai fails on a false `additionalProperties`, and the converters for OpenAI add it.
TAKEN = frozenset({"type", "properties", "required", "items", "anyOf", "enum", "format", "description"})
#: What may stand beside `anyOf`.
BESIDE_UNION = frozenset({"anyOf", "description", "nullable"})
TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})


def parts(schema: Schema, where: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema within a schema, itself first, each with its place."""
    yield where or "schema", schema
    for name, each in schema.get("properties", {}).items():
        yield from parts(each, f"{where}.{name}")
    if "items" in schema:
        yield from parts(schema["items"], f"{where}[]")
    for number, each in enumerate(schema.get("anyOf", ())):
        yield from parts(each, f"{where}|{number}")


def faults(schema: Schema) -> list[str]:
    """What is outside of the subset that both take, each with its place."""
    found = []
    for where, each in parts(schema):
        found += [f"{where}: {name} is not taken" for name in sorted(each.keys() - TAKEN)]
        found += [f"{where}: {name} beside anyOf" for name in sorted(each.keys() - BESIDE_UNION) if "anyOf" in each]
        if "anyOf" not in each and not (isinstance(each.get("type"), str) and each["type"] in TYPES):
            found.append(f"{where}: type is {each.get('type')!r}")
        if each.get("type") == "array" and "items" not in each:
            found.append(f"{where}: a list without items")
        found += [f"{where}: the member {member!r}" for member in each.get("enum", ()) if not isinstance(member, str)]
    if "anyOf" in schema or schema.get("type") != "object":
        found.append("schema: not an object")
    return found


def may_be_nothing(schema: Schema) -> bool:
    """Whether a schema of the subset accepts null, or an empty list."""
    return any(each.get("type") in ("null", "array") for each in (schema, *schema.get("anyOf", ())))


def faults_of_arguments(schema: Schema) -> list[str]:
    """What keeps arguments from strict mode: it closes each object, and requires each property, so that one that may
    be left out has to accept null or an empty list."""
    found = faults(schema)
    for where, each in parts(schema):
        if each.get("type") == "object" and not each.get("properties"):
            found.append(f"{where}: an object of unknown form")
        optional = each.get("properties", {}).keys() - set(each.get("required", ()))
        missing = [name for name in sorted(optional) if not may_be_nothing(each["properties"][name])]
        found += [f"{where}.{name}: neither required nor null" for name in missing]
    return found


def faults_in_strict_mode(schema: Schema) -> list[str]:
    """What OpenAI's API refuses in a schema that a client sends as strict."""
    found = [fault for fault in faults(schema) if not fault.endswith("additionalProperties is not taken")]
    for where, each in parts(schema):
        if each.get("type") == "object":
            if each.get("additionalProperties") is not False:
                found.append(f"{where}: an open object")
            if set(each.get("required", ())) != each.get("properties", {}).keys():
                found.append(f"{where}: not every property is required")
    return found


def faults_for_gemini(schema: Schema) -> list[str]:
    """What Gemini's API refuses in the `parameters` that a client sends: a subset of OpenAPI's schemas."""
    found = []
    for where, each in parts(schema):
        if "anyOf" in each:
            found += [f"{where}: {name} beside anyOf" for name in sorted(each.keys() - BESIDE_UNION)]
        elif not isinstance(each.get("type"), str):
            found.append(f"{where}: type is {each.get('type')!r}")
        elif each["type"].lower() == "array" and "items" not in each:
            found.append(f"{where}: a list without items")
        elif each["type"].lower() == "object" and not each.get("properties"):
            found.append(f"{where}: an object without properties")
    return found
