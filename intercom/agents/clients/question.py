"""What a client asks its permission hook, and how its fields are read from a payload, which may be anything."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

#: Kinds of operations; these are the values of `intercom.model.request.OperationKind`.
WRITE, COMMAND, FETCH, MCP, READ, OTHER = "write", "command", "fetch", "mcp", "read", "other"
#: Intercom's own tools, and what happens only inside the client: no person is asked about either.
OWN, INNER = "own", "inner"
KINDS = (WRITE, COMMAND, FETCH, MCP, READ, OTHER)


class Operation(NamedTuple):
    """One use of a tool. The fields are those of `intercom.model.request.Operation`; `touches` holds its files as
    JSON."""

    kind: str
    tool: str
    title: str = ""
    text: str | None = None
    touches: tuple[dict[str, Any], ...] = ()
    identity: str = ""
    cwd: str | None = None
    path: str | None = None
    why: str | None = None
    into: str | None = None
    unsandboxed: bool = False


class Question(NamedTuple):
    """The request for a permission. `conversation` and `turn` are the client's names for them, or "". `use` is its id
    of this use of the tool, if any."""

    event: str
    operation: Operation
    conversation: str
    turn: str
    use: str | None
    cwd: str | None
    roots: tuple[str, ...] = ()


class Stopping(NamedTuple):
    """The request at the end of an agent's turn, which asks for work to do first."""

    event: str
    conversation: str
    cwd: str | None
    roots: tuple[str, ...] = ()


class Other(NamedTuple):
    """An event without a question."""

    event: str


Asked = Question | Stopping | Other


class Unreadable(Exception):
    """The payload is not what the client documents for its hooks; the message says what is missing."""


class Contradiction(Exception):
    """Fields that are names for one thing have different values, so it is unknown which one counts."""


def unknown(event: str, tool: str | None) -> Other:
    """Return an unknown event, about which nothing is asked. Raises Unreadable if it is about a tool, so none passes
    unasked."""
    if tool is not None:
        raise Unreadable(f"its event {event[:80]!r} is not one that can be answered")
    return Other(event)


def parse(raw: bytes) -> dict[str, Any]:
    """Parse the JSON object that a client wrote to its hook. Raises Unreadable for anything else."""
    try:
        # Cursor begins with a byte order mark.
        data = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(data, dict):
        raise Unreadable("it is not a JSON object")
    return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def text(data: object, *names: str) -> str | None:
    """Return the first of these fields that is a non-empty text; None if none is."""
    if isinstance(data, Mapping):
        for name in names:
            value = data.get(name)
            if isinstance(value, str) and value:
                return value
    return None


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
