"""Reads a tool's arguments, and reports all their faults at once without repeating values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import cattrs
from attrs import fields
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from intercom.agents import schema
from intercom.model import text_limits
from intercom.model.errors import InvalidArguments

T = TypeVar("T")

_TYPES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def read(kind: type[T], given: Mapping[str, Any] | None) -> T:
    """Make the attrs value of `kind` from a call's arguments. Raises InvalidArguments naming every fault. A null counts
    as an absent argument because some clients fill in every optional field."""
    arguments = _present(given or {}) | {name: given[name] for name in _verbatim(kind) if given and name in given}
    validator = _validator(kind)
    if not validator.is_valid(arguments):
        faults = sorted({_say(error, kind) for error in validator.iter_errors(arguments)})
        raise InvalidArguments("; ".join(faults))
    if too_long := sorted(_too_long(kind, arguments, "")):
        raise InvalidArguments("; ".join(too_long))
    return _CONVERTER.structure(arguments, kind)


def _too_long(kind: type[Any], given: Mapping[str, Any], within: str) -> Iterator[str]:
    """Yield a fault for each text or list longer than its field's `most`. The default for texts is the limit of a path.
    The limits are not part of the schema that clients see: some refuse schemas with limits."""
    for attribute in fields(kind):
        value, meta = given.get(attribute.name), attribute.metadata
        name = f"{within}{attribute.name}"
        most = meta.get("most", text_limits.PATH)
        if value is None or meta.get("verbatim") or attribute.name in _CHANGES:
            continue
        if isinstance(value, str):
            if (fault := text_limits.over(name, value, most)) is not None:
                yield fault
        elif isinstance(value, list):
            if len(value) > meta.get("most_items", text_limits.ITEMS):
                yield f"{name}: must have at most {meta.get('most_items', text_limits.ITEMS)} entries; name fewer"
                continue
            inner = meta.get("items")
            if inner is None:
                yield from (fault for each in value if (fault := text_limits.over(name, each, most)) is not None)
            else:
                for number, each in enumerate(value):
                    yield from _too_long(inner, each, f"{name}.{number}.")
        elif isinstance(value, Mapping) and (inner := meta.get("items")) is not None:
            yield from _too_long(inner, value, f"{name}.")


def _verbatim(kind: type[Any]) -> tuple[str, ...]:
    """Return the arguments that are passed on unchanged because another program defines them."""
    return tuple(each.name for each in fields(kind) if each.metadata.get("verbatim"))


def _present(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {name: _present(value) for name, value in given.items() if value is not None}
    return [_present(each) for each in given] if isinstance(given, list) else given


def _text_or_texts(given: Any, _kind: Any) -> str | tuple[str, ...] | None:
    """Make a tuple of a list. The schema has already checked the rest."""
    return tuple(given) if isinstance(given, list) else given


_CONVERTER = cattrs.Converter()
_CONVERTER.register_structure_hook(str | tuple[str, ...] | None, _text_or_texts)

#: The arguments that hold a change. They are measured in bytes at the place of their use.
_CHANGES = frozenset({"diff", "content"})

_VALIDATORS: dict[type[Any], Draft202012Validator] = {}


def _validator(kind: type[Any]) -> Draft202012Validator:
    if kind not in _VALIDATORS:
        _VALIDATORS[kind] = Draft202012Validator(schema.of(kind))
    return _VALIDATORS[kind]


def _say(error: ValidationError, kind: type[Any]) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    wanted: Any = error.validator_value
    given: Any = error.instance
    schema_here: Any = error.schema
    match error.validator:
        case "required":
            missing = [name for name in wanted if name not in given]
            return f"{_prefix(where)}{', '.join(missing)}: missing, and it is needed"
        case "additionalProperties":
            known = list(schema_here["properties"])
            unknown = [name for name in given if name not in known]
            return "; ".join(
                f"{_prefix(where)}{name[:60]}: no such argument{_nearest(name, known)}" for name in unknown
            )
        case "type":
            kinds = wanted if isinstance(wanted, list) else [wanted]
            return f"{where or 'arguments'}: must be {' or '.join(_TYPES[kind] for kind in kinds if kind != 'null')}"
        case "enum":
            return f"{where}: must be one of {', '.join(str(value) for value in wanted if value is not None)}"
        case "minLength":
            return f"{where}: must not be empty"
        case "minimum":
            return f"{where}: must be at least {wanted}"
        case "maximum":
            return f"{where}: must be at most {wanted}"
        case _:
            return f"{where or 'arguments'}: does not fit the schema of {kind.__name__}"


def _prefix(where: str) -> str:
    return f"{where}." if where else ""


def _nearest(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else f" (there are: {', '.join(known)})"
