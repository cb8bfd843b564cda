"""The policy file of a workspace: reads it, parses it, and describes what is wrong with it.

The file is read once, so the bytes that are hashed are the bytes that are parsed. A file with any fault grants nothing,
and the fault is described with its line.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import cattrs
from attrs import frozen
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match

from intercom.model.errors import FileError, PathViolation
from intercom.model.json_types import Json, JsonObject, part
from intercom.model.policy import DENY_ALL, OLDER_POLICY_FILE, POLICY_FILE, WorkspacePolicy
from intercom.workspace.files import digest, lexical, read, relative, resolved

#: The newer file counts if both exist.
POLICY_FILES = (POLICY_FILE, OLDER_POLICY_FILE)

MAX_POLICY_BYTES = 256 * 1024

_SPACE = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()
#: What is wrong, by the rule of the schema that a value breaks.
_FAULTS = {
    "type": "{name} should be of type {allowed}",
    "enum": "{name} should be one of {allowed}",
    "pattern": "the pattern leads outside the workspace; write it relative to the workspace, without ..",
    "not": "the pattern has more than two **, which takes too long to match; write it simpler",
    "minimum": "{name} should be a number from 0 to 86400",
    "maximum": "{name} should be a number from 0 to 86400",
    "minLength": "the text is {size} characters long, which is not allowed here",
    "maxLength": "the text is {size} characters long, which is not allowed here",
    "maxItems": "{name} holds more than {allowed} entries",
}


@frozen
class Loaded:
    """The result of reading the policy file.

    `sha256` and `text` are of the file's bytes (including a byte order mark), None if there is no readable file.
    `source` is its path in the workspace. `fault` says why an existing file grants nothing.
    """

    policy: WorkspacePolicy = DENY_ALL
    sha256: str | None = None
    source: str | None = None
    fault: str | None = None
    text: str | None = None


def load(root: Path, known: Loaded | None = None) -> Loaded:
    """Read the policy of the workspace `root`: `.intercom/settings.json`, else the older `.monocoque/settings.json`.

    Never raises: a missing file grants nothing, nor does one with a fault. If the bytes are those of `known`, they are
    not parsed again and `known` is returned.
    """
    for name in POLICY_FILES:
        try:
            if resolved(root) != str(root):
                # People accept a policy for a directory, but a link can lead the same path to any directory.
                raise PathViolation(f"{root} leads through a symbolic link; a policy needs the path itself")
            path = relative(root, name)
            if lexical(path).split("/")[0] not in (".intercom", ".monocoque"):
                # A policy might allow an agent to write there.
                raise PathViolation("it is a symbolic link that leads out of its directory")
            found = read(root, path, MAX_POLICY_BYTES)
        except (PathViolation, FileError) as error:
            return Loaded(source=name, fault=f"{name} cannot be used: {error.message}")
        if found is not None:
            return _of_bytes(name, found.data, known)
    return Loaded()


def _of_bytes(name: str, data: bytes, known: Loaded | None) -> Loaded:
    sha = digest(data)
    if known is not None and (known.sha256, known.source) == (sha, name):
        return known
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Loaded(sha256=sha, source=name, fault=f"{name}, line {line}: the file is not UTF-8")
    policy, fault = parse(text)
    return Loaded(policy, sha, name, f"{name}, {fault}" if fault else None, text)


def parse(text: str) -> tuple[WorkspacePolicy, str | None]:
    """Return the policy that `text` states, in the flat or the older nested form, and None. If there is a fault,
    return a policy that grants nothing, and the fault: line, column and reason."""
    text = text.removeprefix("\ufeff")
    try:
        return _policy(_checked(text)), None
    except _Fault as fault:
        return DENY_ALL, _placed(text, fault)


def _placed(text: str, fault: _Fault) -> str:
    line = text.count("\n", 0, fault.index) + 1
    column = fault.index - text.rfind("\n", 0, fault.index)
    return f"line {line}, column {column}: {fault.why}"


def faults(text: str) -> tuple[str, ...]:
    """Return every fault of a policy's text, in the order of the lines: line, column and reason. `parse` names the one
    that matters most. Text that is not JSON has one fault."""
    text = text.removeprefix("\ufeff")
    try:
        data, twice = _json(text)
        found = [] if twice is None else [twice]
        for error in _validator("nested" if is_nested(data) else "flat").iter_errors(data):
            found += _all_worded(text, error)
    except _Fault as fault:
        found = [fault]
    return tuple(_placed(text, each) for each in sorted(found, key=lambda fault: fault.index))


def render(policy: WorkspacePolicy) -> str:
    """Return a policy as text that `parse` reads as the same policy."""
    return json.dumps(cattrs.unstructure(policy), indent=2)


class _Fault(Exception):
    def __init__(self, index: int, why: str) -> None:
        super().__init__(why)
        self.index, self.why = index, why


def _checked(text: str) -> JsonObject:
    data, twice = _json(text)
    if twice is not None:
        raise twice
    worst = best_match(_validator("nested" if is_nested(data) else "flat").iter_errors(data))
    if worst is not None:
        raise _all_worded(text, worst)[0]
    assert isinstance(data, dict)
    return data


def _json(text: str) -> tuple[Json, _Fault | None]:
    """Return the value, and the fault of a key that stands twice. Raises the fault of text that cannot be read."""
    if not text.strip():
        raise _Fault(0, "the file is empty; write {} to grant nothing")
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
        twice = _doubled(text)
    except json.JSONDecodeError as error:
        raise _Fault(error.pos, f"this is not JSON: {error.msg[:1].lower()}{error.msg[1:]}") from None
    except RecursionError:
        raise _Fault(0, "values are nested too deeply") from None
    except ValueError as error:
        raise _Fault(0, f"a number cannot be read: {error}") from None
    return data, None if twice is None else _Fault(twice[1], f'the key "{twice[0]}" stands twice')


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def is_nested(data: object) -> bool:
    return isinstance(data, Mapping) and bool({"autoApprove", "notifications"} & data.keys())


def _policy(data: Mapping[str, Json]) -> WorkspacePolicy:
    if is_nested(data):
        both = {**part(data, "autoApprove"), **part(data, "notifications")}
        data = {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value for key, value in both.items()}
    return cattrs.structure(data, WorkspacePolicy)


@functools.cache
def schema() -> JsonObject:
    """Return the JSON Schema of policy files, as shipped with the package."""
    text = resources.files("intercom.workspace").joinpath("settings.schema.json").read_text(encoding="utf-8")
    loaded: JsonObject = json.loads(text)
    return loaded


@functools.cache
def _validator(form: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{form}", "$defs": schema()["$defs"]})


def _all_worded(text: str, error: ValidationError) -> list[_Fault]:
    """Return the faults that one error of the schema stands for: one for each unknown setting, else one."""
    path: Sequence[str | int] = list(error.absolute_path)
    # Any, because the types depend on the rule that failed.
    allowed: Any = error.validator_value
    given: Any = error.instance
    rules: Any = error.schema
    if error.validator == "additionalProperties":
        known = ", ".join(key for key in rules["properties"] if key != "$schema")
        unknown = [key for key in given if key not in rules["properties"]]
        return [
            _Fault(_locate(text, [*path, each], key=True), f'no setting is called "{each}"; known: {known}')
            for each in unknown
        ]
    why = _FAULTS[str(error.validator)].format(
        name=f'"{path[-1]}"' if path and isinstance(path[-1], str) else "this",
        allowed=", ".join(allowed) if isinstance(allowed, list) else allowed,
        size=len(given) if isinstance(given, str) else 0,
    )
    return [_Fault(_locate(text, path), why)]


def _locate(text: str, path: Sequence[str | int], key: bool = False) -> int:
    """Return the index of the value at `path` in the valid JSON `text`; with `key`, of its key."""
    place = at = skip(text, 0)
    for step in path:
        found = next((k, v) for name, k, v in members(text, at) if name == step)
        place, at = found if key else (found[1], found[1])
    return place


def _doubled(text: str) -> tuple[str, int] | None:
    """Return the first duplicate key in an object of the valid JSON `text`, and its second index; or None."""
    waiting = [skip(text, 0)]
    while waiting:
        at = waiting.pop()
        seen: set[str | int] = set()
        for name, key, value in members(text, at):
            if isinstance(name, str) and name in seen:
                return name, key
            seen.add(name)
            waiting.append(value)
    return None


def members(text: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Yield name or number, index of the key and index of the value, of each member of the container at `at`."""
    opening = text[at]
    if opening not in "{[":
        return
    count, i = 0, skip(text, at + 1)
    while text[i] not in "}]":
        name: str | int = count
        key = i
        if opening == "{":
            name, i = _decoder.raw_decode(text, i)
            i = skip(text, skip(text, i) + 1)
        yield name, key, i
        _, i = _decoder.raw_decode(text, i)
        i = skip(text, i)
        i = skip(text, i + 1) if text[i] == "," else i
        count += 1


def skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
