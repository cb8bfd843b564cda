"""JSON Schemas from attrs classes, and arguments read by them: the first faults are reported together.

Fields have their descriptions and limits in their metadata (`intercom.model.field_docs`); fields that the server sets
are left out. The schema omits "most" (unless it is asked for) and "items", which `read` checks; a "schema" replaces
what the type says. A field without default is required, unless the class sets `nothing_required`: some clients refuse
schemas with alternatives at the top. Unknown keys are refused, unless the class sets `open_to_more`.

What is read may be hostile. `read` looks only at what the schema describes and at the first unknown keys. So its time
does not depend on how many keys, entries or levels a value has.
"""

from __future__ import annotations

import functools
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from itertools import islice
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import cattrs
from attrs import NOTHING, Attribute, AttrsInstance, fields, frozen, has

from intercom.model import limits
from intercom.model.errors import InvalidArguments
from intercom.model.type_schemas import Schema, of_type
from intercom.sessions.request_kinds import MESSAGE


def of(kind: type[AttrsInstance], *, bounds: bool = True, lengths: bool = False) -> Schema:
    """Return the schema of an object of this attrs class; without `bounds`, any number and text fits. With `lengths`,
    it limits texts and lists as `read` does."""
    hints = get_type_hints(kind)
    of_class = functools.partial(of, bounds=bounds, lengths=lengths)
    properties: dict[str, Schema] = {}
    required: list[str] = []
    for attribute in _public(kind):
        described = attribute.metadata.get("schema") or of_type(hints[attribute.name], of_class)
        if doc := attribute.metadata.get("doc"):
            described = {**described, "description": doc}
        for name, keyword in (("minimum", "minimum"), ("maximum", "maximum"), ("min_length", "minLength")):
            if bounds and name in attribute.metadata:
                described[keyword] = attribute.metadata[name]
        if lengths and "string" in described["type"] and "enum" not in described:
            described["maxLength"] = attribute.metadata.get("most", limits.PATH)
        if lengths and "items" in described:
            described["maxItems"] = attribute.metadata.get("most_items", limits.ITEMS)
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


def of_result(kind: type[AttrsInstance]) -> Schema:
    """Return the schema of an answer to which nothing is attached. It forbids no fields, as later ones may come."""
    described = of(kind, bounds=False)
    described.pop("additionalProperties")
    return described


def of_answer(kind: type[AttrsInstance]) -> Schema:
    """Return the schema of a tool's answer, with what may be attached to it. It requires and forbids no fields, so that
    a client's validator never refuses an answer: in a paused session there is only a status and a message."""
    described = of_result(kind)
    described.pop("required", None)
    properties = described["properties"]
    status, message = properties.get("status", {}), properties.get("message", {})
    said = f"{status['description']} {_PAUSED}" if status else _PAUSED
    properties["status"] = {**status, "type": "string", "description": said}
    properties["message"] = {**message, "type": "string", "description": MESSAGE["doc"]}
    properties.update(ATTACHED)
    return described


def portable(schema: Schema) -> Schema:
    """Return a schema of `of`, `of_result` or `of_answer` in the subset that model providers take, for listing.

    It accepts whatever `schema` accepts. Gemini's API refuses an `anyOf` with other constraints beside it, and
    google-genai fails on a false `additionalProperties`. OpenAI's strict mode refuses limits and defaults, and requires
    each argument, so that an optional one has to accept null. So a value of several types is an `anyOf` with the
    constraints inside, no limits are listed, defaults are told in words, and only `read` refuses unknown keys. An
    optional argument of several types does not get null as one more: google-genai would send a branch without a type.
    """
    needed = frozenset(schema.get("required", ()))
    is_closed = schema.get("additionalProperties") is False
    made = {name: each for name, each in schema.items() if name != "additionalProperties"}
    if "properties" in schema:
        made["properties"] = {
            name: _portable(each, nullable=is_closed and name not in needed)
            for name, each in schema["properties"].items()
        }
    return made


def _portable(schema: Schema, *, nullable: bool = False) -> Schema:
    kinds = list(schema["type"]) if isinstance(schema["type"], list) else [schema["type"]]
    if nullable and len(kinds) == 1:
        kinds.append("null")
    branches = [_portable_branch(schema, kind) for kind in kinds]
    made = branches[0] if len(branches) == 1 else {"anyOf": branches}
    said = [schema["description"]] if "description" in schema else []
    if "default" in schema:
        said.append(f"Default: {json.dumps(schema['default'])}.")
    return {**made, "description": " ".join(said)} if said else made


def _portable_branch(schema: Schema, kind: str) -> Schema:
    """Return the schema of the values of one type that `schema` accepts, without limits."""
    if kind == "object":
        kept: Schema = {
            name: schema[name] for name in ("properties", "additionalProperties", "required") if name in schema
        }
        return portable({"type": kind, **kept})
    branch: Schema = {"type": kind}
    if kind == "string" and "enum" in schema:
        branch["enum"] = [member for member in schema["enum"] if member is not None]
    if kind == "string" and "format" in schema:
        branch["format"] = schema["format"]
    if kind == "array":
        branch["items"] = _portable(schema["items"])
    return branch


_PAUSED = '"paused": an operator has paused this session, and nothing was done.'
ATTACHED: dict[str, Schema] = {
    "late_verdicts": {
        "type": "array",
        "description": "Decisions that came while no call waited for them: act on each as if its call had returned it.",
        "items": {
            "type": "object",
            "properties": {
                "request_id": {"type": "string", "description": "The id of the request that was decided."},
                "kind": {
                    "type": "string",
                    "enum": ["approval", "permission", "prompt", "standby"],
                    "description": "What kind of request it was.",
                },
                "title": {"type": "string", "description": "What was asked, in one line."},
                "answer": {"type": "object", "description": "What the call that made the request would have returned."},
            },
            "required": ["request_id", "kind", "answer"],
        },
    },
    "instructions": {
        "type": "array",
        "description": "Messages of an operator for you, each told once: follow them.",
        "items": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "description": '"nudge", "steer" or "task".'},
                "text": {"type": "string", "description": "What the operator says."},
            },
            "required": ["kind", "text"],
        },
    },
    "cut_off": {
        "type": "array",
        "description": "Your earlier requests whose calls ended before they were answered, each told once: to continue"
        " waiting for one, call its tool with only this request_id.",
        "items": {
            "type": "object",
            "properties": {
                "request_id": {"type": "string", "description": "The id of the request."},
                "tool": {"type": "string", "description": "The tool to call."},
            },
            "required": ["request_id", "tool"],
        },
    },
}


@functools.cache
def _public(kind: type[AttrsInstance]) -> tuple[Attribute[object], ...]:
    """Return the fields that are part of the JSON value."""
    return tuple(each for each in fields(kind) if not each.metadata.get("internal"))


T = TypeVar("T", bound=AttrsInstance)

_TYPES = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


#: The faults of a call that are reported.
MOST_FAULTS = 5
#: An object with this many keys more than its class has fields is not read in full.
MOST_EXTRA_KEYS = 20
#: The unknown keys for which a similar argument is looked up, and the longest such key, in characters.
MOST_LOOKED_UP = 3
LONGEST_LOOKED_UP = 100


def read(kind: type[T], given: Mapping[str, object] | None) -> T:
    """Make the attrs value of `kind` from a call's arguments. Raises InvalidArguments naming the first faults. A null
    counts as an absent argument because some clients fill in every optional field."""
    check, schema = _prepared(kind)
    arguments: Any = _excerpt(schema, given or {})
    if not check(arguments) and (faults := list(islice(_faults(schema, arguments, ""), MOST_FAULTS + 1))):
        raise _refusal(_sentences(faults))
    if too_long := list(islice(_too_long(kind, arguments, ""), MOST_FAULTS + 1)):
        raise _refusal(too_long)
    return _CONVERTER.structure(arguments, kind)


def _refusal(faults: list[str]) -> InvalidArguments:
    told = sorted(set(faults[:MOST_FAULTS]))
    return InvalidArguments("; ".join(told if len(faults) <= MOST_FAULTS else [*told, "and more faults"]))


def _excerpt(schema: Schema, given: object) -> object:
    """Return the part of a value that decides whether the value is accepted, without nulls. An object has its known
    keys and the first unknown ones. A list ends with its first entry too many. Anything else is returned unchanged."""
    known = schema.get("properties")
    if isinstance(given, Mapping) and known is not None:
        most = len(known) + MOST_EXTRA_KEYS
        is_crowded = len(given) > most
        kept: dict[str, object] = {}
        if not schema["additionalProperties"]:
            for name in islice(given, most + 1):
                if name not in known and (is_crowded or given[name] is not None):
                    kept[name] = given[name]
        for name, each in known.items():
            if (value := given.get(name)) is not None:
                kept[name] = _excerpt(each, value)
        return kept
    if isinstance(given, list) and "items" in schema:
        return [_excerpt(schema["items"], each) for each in islice(given, schema["maxItems"] + 1)]
    return given


def _too_long(kind: type[AttrsInstance], given: Mapping[str, object], within: str) -> Iterator[str]:
    """Yield a fault for each text or list longer than its field's `most`. The default for texts is the limit of a path.
    The limits are not part of the schema that clients see: some refuse schemas with limits."""
    for attribute in _public(kind):
        value, meta = given.get(attribute.name), attribute.metadata
        name = f"{within}{attribute.name}"
        most = meta.get("most", limits.PATH)
        if value is None or meta.get("verbatim") or attribute.name in _CHANGES:
            continue
        if isinstance(value, str):
            if (fault := limits.over(name, value, most)) is not None:
                yield fault
        elif isinstance(value, list):
            if len(value) > meta.get("most_items", limits.ITEMS):
                yield f"{name}: must have at most {meta.get('most_items', limits.ITEMS)} entries; name fewer"
                continue
            inner = meta.get("items")
            if inner is None:
                yield from (fault for each in value if (fault := limits.over(name, each, most)) is not None)
            else:
                for number, each in enumerate(value):
                    yield from _too_long(inner, each, f"{name}.{number}.")
        elif isinstance(value, Mapping) and (inner := meta.get("items")) is not None:
            yield from _too_long(inner, value, f"{name}.")


def _text_or_texts(given: str | list[str], _kind: object) -> str | tuple[str, ...]:
    """Make a tuple of a list. The schema has already checked the rest."""
    return tuple(given) if isinstance(given, list) else given


def _is_text_or_object(kind: object) -> bool:
    """Whether this is `str | C` with an attrs class C."""
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else ()
    return len(parts) == 2 and str in parts and any(isinstance(part, type) and has(part) for part in parts)


def _text_or_object(kind: object) -> Callable[[object, object], object]:
    inner = next(part for part in get_args(kind) if part is not str)
    return lambda given, _kind: given if isinstance(given, str) else _CONVERTER.structure(given, inner)


def _float(given: float, _kind: object) -> float:
    try:
        return float(given)
    except OverflowError:
        # A whole number that no float can hold.
        return math.inf if given > 0 else -math.inf


_CONVERTER = cattrs.Converter()
_CONVERTER.register_structure_hook(float, _float)
_CONVERTER.register_structure_hook(str | tuple[str, ...], _text_or_texts)
_CONVERTER.register_structure_hook_factory(_is_text_or_object, _text_or_object)

#: The arguments that hold a change. They are measured in bytes at the place of their use.
_CHANGES = frozenset({"diff", "content"})

Check = Callable[[Any], bool]


@functools.cache
def _prepared(kind: type[AttrsInstance]) -> tuple[Check, Schema]:
    """Return a quick check of arguments, and the schema that says what is wrong with them."""
    schema = of(kind, lengths=True)
    return quick_check(schema), schema


def quick_check(schema: Schema) -> Check:
    """Return a check of decoded JSON that is made from a schema of `of`. It accepts nothing that a validator refuses,
    and takes a twentieth of the time of one."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    checks = {python: check for kind in kinds for python, check in _CHECKS[kind](schema).items()}

    def check(value: object) -> bool:
        found = checks.get(type(value))
        return found is not None and found(value)

    return check


def _always(_value: object) -> bool:
    return True


def _check_text(schema: Schema) -> dict[type, Check]:
    shortest, members = schema.get("minLength", 0), schema.get("enum")
    if members is not None:
        return {str: frozenset(members).__contains__}
    return {str: lambda text: len(text) >= shortest} if shortest else {str: _always}


def _check_number(schema: Schema) -> dict[type, Check]:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    bounded = (low, high) != (-math.inf, math.inf)

    def within(number: float) -> bool:
        return bool(low <= number <= high)

    return {int: within, float: within} if bounded else {int: _always, float: _always}


def _check_whole(schema: Schema) -> dict[type, Check]:
    return {int: _check_number(schema)[int]}


def _check_list(schema: Schema) -> dict[type, Check]:
    each = quick_check(schema["items"])
    return {list: lambda values: all(map(each, values))}


def _check_object(schema: Schema) -> dict[type, Check]:
    checks = {name: quick_check(each) for name, each in schema.get("properties", {}).items()}
    required = frozenset(schema.get("required", ()))
    is_open = schema.get("additionalProperties", True)

    def check(given: dict[str, object]) -> bool:
        for name, value in given.items():
            known = checks.get(name)
            if known is None:
                if not is_open:
                    return False
            elif not known(value):
                return False
        return required <= given.keys()

    return {dict: check}


_CHECKS: dict[str, Callable[[Schema], dict[type, Check]]] = {
    "string": _check_text,
    "number": _check_number,
    # A float without a fraction is a whole number too: `_faults` knows that.
    "integer": _check_whole,
    "boolean": lambda _schema: {bool: _always},
    "array": _check_list,
    "object": _check_object,
    "null": lambda _schema: {type(None): _always},
}


@frozen
class _Fault:
    """What is wrong at a place. `unknown` is the name of an argument that does not exist, and `known` has those that
    do."""

    where: str
    text: str
    unknown: str = ""
    known: tuple[str, ...] = ()


_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": lambda value: _is_number(value),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _faults(schema: Schema, given: Any, where: str) -> Iterator[_Fault]:
    """Yield what a validator would refuse in decoded JSON, except lengths. It looks no deeper than the schema, and
    never writes a value into a sentence, so that each step is short for any value."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_IS[kind](given) for kind in kinds):
        wanted = " or ".join(_TYPES[kind] for kind in kinds if kind != "null")
        yield _Fault(where or "arguments", f"must be {wanted}")
    elif isinstance(given, str):
        if "enum" in schema and given not in schema["enum"]:
            members = ", ".join(str(value) for value in schema["enum"] if value is not None)
            yield _Fault(where, f"must be one of {members}")
        elif len(given) < schema.get("minLength", 0):
            yield _Fault(where, "must not be empty")
    elif _is_number(given):
        if "minimum" in schema and given < schema["minimum"]:
            yield _Fault(where, f"must be at least {schema['minimum']}")
        elif "maximum" in schema and given > schema["maximum"]:
            yield _Fault(where, f"must be at most {schema['maximum']}")
    elif isinstance(given, list):
        for number, each in enumerate(given):
            yield from _faults(schema["items"], each, f"{where}.{number}")
    elif isinstance(given, dict):
        yield from _faults_of_object(schema, given, f"{where}." if where else "")


def _faults_of_object(schema: Schema, given: dict[str, Any], prefix: str) -> Iterator[_Fault]:
    known = schema.get("properties", {})
    if missing := [name for name in schema.get("required", ()) if name not in given]:
        yield _Fault(prefix + ", ".join(missing), "missing, and it is needed")
    for name, each in known.items():
        if name in given:
            yield from _faults(each, given[name], prefix + name)
    if not schema.get("additionalProperties", True):
        for name in given:
            if name not in known:
                yield _Fault(f"{prefix}{name[:60]}", "no such argument", name, tuple(known))


def _sentences(faults: Iterable[_Fault]) -> list[str]:
    """Write faults. Only for the first unknown arguments it says which one is similar, which takes a while to find."""
    written: list[str] = []
    looked_up = 0
    for fault in faults:
        hint = ""
        if fault.known and len(fault.unknown) <= LONGEST_LOOKED_UP and looked_up < MOST_LOOKED_UP:
            looked_up += 1
            hint = _nearest(fault.unknown, fault.known)
        written.append(f"{fault.where}: {fault.text}{hint}")
    return written


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else f" (there are: {', '.join(known)})"
