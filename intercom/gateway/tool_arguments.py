"""The arguments of a call and the tool's input schema: what is wrong with them, in sentences; what a person wrote; and
what the schema says, for people. Pure.

An agent that calls a tool by `call_tool` has a client that knows no schema for it. So the gateway checks instead.

Both the schema and the arguments may be hostile. So the work is limited, no schema is loaded from elsewhere, and no
regular expression of a schema is run, because Python's can take for ever. What cannot be checked within these limits is
not refused: the downstream checks it itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import Any, Final, TypeAlias

from attrs import define
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    ValidationError,
    validators,
)
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from referencing import Registry

from intercom.model.errors import InvalidArguments
from intercom.model.gateway_view import ParameterView
from intercom.model.json_types import Json, JsonObject, part
from intercom.model.visible_text import one_line

#: Larger arguments are not checked: their characters and values.
SIZE: Final = 20_000
#: The most keywords of a schema that are evaluated for one call. For each, a validator may write down its whole value:
#: one of many characters or entries counts as several.
STEPS: Final = 3_000
_COUNTS_ONE: Final = 200
#: The most faults that are told, and the most names in one of them.
FAULTS: Final = 5
NAMES: Final = 30
#: The longest list whose entries are compared with each other.
_COMPARED: Final = 100
#: The longest name or value of a schema that a sentence repeats, in characters.
_SHOWN: Final = 60

_NAME_AND_VALUE: Final = re.compile(r"[^\s={}\[\]\"]+=")
#: How a person writes arguments.
_HOW: Final = 'write timezone=Europe/Berlin, or JSON: \'{"timezone": "Europe/Berlin"}\''
_Faults: TypeAlias = "Iterable[ValidationError] | None"
#: It gets the validator, its own value in the schema, what is checked, and the whole schema.
_Keyword: TypeAlias = "Callable[[Validator, Json, Json, Mapping[str, Json]], _Faults]"
_DRAFTS: Final = (Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator, Draft202012Validator)
#: Keywords with regular expressions, and those that need these to know what is left over.
_UNCHECKED: Final = ("pattern", "patternProperties", "unevaluatedProperties", "unevaluatedItems")
_TYPES: Final[Mapping[str, str]] = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_BOUNDS: Final[Mapping[str, str]] = {
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} entries",
    "maxItems": "must have at most {} entries",
    "minProperties": "must have at least {} fields",
    "maxProperties": "must have at most {} fields",
}


class _TooMuch(Exception):
    """A check takes more work than it may."""


@define
class _Work:
    """What is left of the work for one check."""

    steps: int

    def step(self, instance: object) -> None:
        self.steps -= 1 + (len(instance) // _COUNTS_ONE if isinstance(instance, str | list | dict) else 0)
        if self.steps < 0:
            raise _TooMuch


_work: ContextVar[_Work] = ContextVar("_work")


def misfits_of(schema: Json, arguments: Mapping[str, Json]) -> tuple[str, ...]:
    """Return what is wrong with the arguments of a call, as clauses such as "title: missing, and it is needed".

    The result is empty if they fit, and if this cannot be told: the schema is not valid, refers to another document, or
    takes too much work. No value of the arguments is repeated.
    """
    if not isinstance(schema, Mapping) or not _is_small(arguments):
        return ()
    token = _work.set(_Work(STEPS))
    try:
        # Without an own registry, jsonschema would load what a schema refers to from the network.
        validator = _validator_of(schema.get("$schema"))(schema, registry=Registry())
        found = list(islice(validator.iter_errors(arguments), FAULTS + 1))
        told = list(dict.fromkeys(sentence for error in found for sentence in _sentences(error)))
    except Exception:
        # Whatever a schema makes a validator raise, it is no fault of the arguments.
        return ()
    finally:
        _work.reset(token)
    return (*told[:FAULTS], *(["and more faults"] if len(told) > FAULTS else []))


def parameters_of(schema: Mapping[str, Json]) -> tuple[ParameterView, ...]:
    """Return the arguments that a schema names, in its order: for people, who may get it from anybody."""
    properties = part(schema, "properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    return tuple(
        ParameterView(
            name,
            _type_of(each) if isinstance(each, Mapping) else "any",
            name in needed,
            str(each.get("description") or "") if isinstance(each, Mapping) else "",
        )
        for name, each in properties.items()
    )


def _type_of(schema: Mapping[str, Json]) -> str:
    """Return the type of an argument: "string", "list of integer", "one of a, b"; "any" if its schema names none."""
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        listed = ", ".join(str(each)[:_SHOWN] for each in choices[:NAMES])
        return f"one of {listed}{' and more' if len(choices) > NAMES else ''}"
    types = [each for each in _types(schema) if each != "null"]
    if types == ["array"]:
        return f"list of {_type_of(part(schema, 'items'))}"
    return " or ".join(each[:_SHOWN] for each in types[:NAMES]) or "any"


def _types(schema: Mapping[str, Json], depth: int = 3) -> list[str]:
    """Return the types that a schema allows, by name."""
    found = schema.get("type")
    types = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str)]
    for key in ("anyOf", "oneOf") if depth else ():
        ways = schema.get(key)
        for each in ways[:NAMES] if isinstance(ways, list) else ():
            types += _types(each, depth - 1) if isinstance(each, Mapping) else []
    return list(dict.fromkeys(types))


def read_arguments(text: str | None, schema: Mapping[str, Json]) -> JsonObject:
    """Read the arguments that a person wrote: a JSON object, a JSON list of NAME=VALUE, or one NAME=VALUE.

    A VALUE is text if the schema says so. Else it is JSON, or text if it is none. Raises InvalidArguments.
    """
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        if text is not None and _NAME_AND_VALUE.match(text):
            return _named_values([text], schema)
        at = f" ({error.msg}, character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidArguments(f"the arguments are not JSON{at}: {_HOW}") from None
    if isinstance(given, list) and all(isinstance(each, str) and _NAME_AND_VALUE.match(each) for each in given):
        return _named_values([str(each) for each in given], schema)
    if isinstance(given, list):
        wrong = next((each for each in given if not (isinstance(each, str) and _NAME_AND_VALUE.match(each))), "")
        raise InvalidArguments(f"{str(wrong)[:_SHOWN]!r} is no NAME=VALUE: {_HOW}")
    if not isinstance(given, dict):
        raise InvalidArguments(f"the arguments must be one JSON object: {_HOW}")
    return given


def _named_values(words: Iterable[str], schema: Mapping[str, Json]) -> JsonObject:
    properties = part(schema, "properties")
    found: JsonObject = {}
    for word in words:
        name, _, value = word.partition("=")
        if name in found:
            raise InvalidArguments(f"{name[:_SHOWN]} is written twice: write each argument once")
        found[name] = _value(value, part(properties, name))
    return found


def _value(text: str, schema: Mapping[str, Json]) -> Json:
    if "string" in _types(schema) or isinstance(schema.get("enum"), list):
        return text
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _is_small(value: Json) -> bool:
    """Whether a value has few characters and values, without looking at all of a large one."""
    left = SIZE
    stack: list[Json] = [value]
    while stack and left >= 0:
        each = stack.pop()
        left -= 1
        if isinstance(each, str):
            left -= len(each)
        elif isinstance(each, int) and not isinstance(each, bool):
            left -= each.bit_length() // 4
        elif isinstance(each, Mapping | list):
            left -= len(each)
            if left >= 0:
                stack += [*each, *each.values()] if isinstance(each, Mapping) else each
    return left >= 0


# --- the validators --------------------------------------------------------------------------------------------------


@cache
def _validators() -> Mapping[str, type[Validator]]:
    """Return a limited validator for each version of JSON Schema, by its URI without a `#` at the end."""
    return {_uri_of(draft): _limited(draft) for draft in _DRAFTS}


def _uri_of(draft: type[Validator]) -> str:
    return str(draft.META_SCHEMA.get("$id") or draft.META_SCHEMA["id"]).rstrip("#")


def _validator_of(uri: Json) -> type[Validator]:
    known = _validators()
    latest = known[_uri_of(Draft202012Validator)]
    return known.get(uri.rstrip("#"), latest) if isinstance(uri, str) else latest


def _limited(draft: type[Validator]) -> type[Validator]:
    """Return a validator class in which each keyword counts as work."""
    keywords = {name: _counted(keyword) for name, keyword in draft.VALIDATORS.items()}
    keywords.update({name: _counted(_unchecked) for name in _UNCHECKED})
    keywords["additionalProperties"] = _counted(_without_patterns(draft.VALIDATORS["additionalProperties"]))
    keywords["uniqueItems"] = _counted(_short(draft.VALIDATORS["uniqueItems"]))
    extend: Callable[..., type[Validator]] = validators.extend
    return extend(draft, keywords)


def _counted(keyword: _Keyword) -> _Keyword:
    def counted(validator: Validator, value: Json, instance: Json, schema: Mapping[str, Json]) -> _Faults:
        _work.get().step(instance)
        return keyword(validator, value, instance, schema)

    return counted


def _unchecked(_validator: Validator, _value: Json, _instance: Json, _schema: Mapping[str, Json]) -> None:
    return None


def _without_patterns(keyword: _Keyword) -> _Keyword:
    def unless(validator: Validator, value: Json, instance: Json, schema: Mapping[str, Json]) -> _Faults:
        return None if "patternProperties" in schema else keyword(validator, value, instance, schema)

    return unless


def _short(keyword: _Keyword) -> _Keyword:
    def unless(validator: Validator, value: Json, instance: Json, schema: Mapping[str, Json]) -> _Faults:
        # Each entry is compared with each other.
        is_long = isinstance(instance, list) and len(instance) > _COMPARED
        return None if is_long else keyword(validator, value, instance, schema)

    return unless


# --- sentences -------------------------------------------------------------------------------------------------------


def _sentences(error: ValidationError) -> Iterator[str]:
    """Yield what is wrong, in the words of the server's own tools. Of alternatives, the nearest one counts."""
    error = best_match([error]) or error
    path = [_named(step) for step in error.absolute_path]
    where = ".".join(path) or "arguments"
    said: Any = error
    value, instance, schema = said.validator_value, said.instance, said.schema
    match error.validator:
        case "required":
            missing = [name for name in value if name not in instance]
            yield f"{'.'.join([*path, _listed(missing)])}: missing, and {'they are' if missing[1:] else 'it is'} needed"
        case "additionalProperties" if value is False:
            known = [*schema.get("properties", ())]
            for name in islice((name for name in instance if name not in known), FAULTS):
                yield f"{'.'.join([*path, _named(name)])}: no such argument{_suggestion(name, known)}"
        case "type":
            kinds = [value] if isinstance(value, str) else value
            yield f"{where}: must be {' or '.join(_TYPES[kind] for kind in kinds)}, and is {_kind(instance)}"
        case "enum":
            yield f"{where}: must be one of {_listed(value)}"
        case "const":
            yield f"{where}: must be {_named(value)}"
        case "minLength" | "minItems" | "minProperties" if value == 1:
            yield f"{where}: must not be empty"
        case str(keyword) if keyword in _BOUNDS:
            yield f"{where}: {_BOUNDS[keyword].format(_named(value))}"
        case keyword:
            yield f"{where}: does not fit {_named(keyword)} in its schema"


def _suggestion(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name[:_SHOWN], known[:NAMES], n=1)
    if near:
        return f" (did you mean {_named(near[0])}?)"
    return f" (there are: {_listed(known)})" if known else " (it takes none)"


def _listed(values: Sequence[object]) -> str:
    more = f" and {len(values) - NAMES} more" if len(values) > NAMES else ""
    return ", ".join(map(_named, values[:NAMES])) + more


def _named(value: object) -> str:
    """Return a name, or a value of the schema, for a sentence."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = one_line(str(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
    return "an object"
