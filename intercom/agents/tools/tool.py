"""A tool: its names, its description, its schemas and its function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from attrs import field, frozen

from actors import Request
from intercom.agents import schema
from intercom.agents.call import Call
from intercom.sessions.messages import Answered, Opened

Run = Callable[[Call, Any], Awaitable[dict[str, Any]]]


@frozen
class Waiting:
    """How a tool waits for a person. `open` records its request. `awaits` (call, request, ticket) makes the message
    that waits for the decision. `pending` makes the answer at the end of the poll interval."""

    open: Callable[[Call, Any], Awaitable[Opened[Any]]]
    awaits: Callable[[str, str, str], Request[Answered[Any]]]
    pending: Callable[[str], object]


@frozen
class Hints:
    """Hints for a client's user: the tool changes nothing, may destroy data, is idempotent, reaches beyond this
    machine."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


@frozen
class Tool:
    """One tool. `run` gets the call and its arguments as `takes`; `result` is the attrs class of the answer. `waiting`
    is set for tools that wait for a person."""

    name: str
    legacy_name: str
    title: str
    description: str
    takes: type[Any]
    result: type[Any]
    hints: Hints
    run: Run = field(repr=False)
    waiting: Waiting | None = field(default=None, repr=False)

    def input_schema(self) -> dict[str, Any]:
        return schema.of(self.takes)

    def output_schema(self) -> dict[str, Any]:
        """Return the schema of the answer and its pending deliveries. It requires and forbids no fields, so that a
        client's validator never refuses an answer: in a paused session there is only a status and a message."""
        described = schema.of(self.result)
        described.pop("additionalProperties")
        described.pop("required", None)
        properties = described["properties"]
        for name, paused in PAUSED.items():
            properties[name] = {**properties.get(name, {}), **paused}
        properties.update(RIDERS)
        return described


PAUSED: dict[str, Any] = {
    "status": {
        "type": "string",
        "description": '"paused": an operator holds this session up and nothing was done; else as the tool says.',
    },
    "message": {"type": "string", "description": "What to do now, where the status needs it said."},
}


RIDERS: dict[str, Any] = {
    "late_verdicts": {
        "type": "array",
        "description": "Verdicts that came while no call waited for them; act on each as if its call had returned it.",
        "items": {
            "type": "object",
            "properties": {
                "request_id": {"type": "string"},
                "kind": {"type": "string", "enum": ["approval", "permission", "prompt", "standby"]},
                "title": {"type": "string"},
                "answer": {"type": "object"},
            },
            "required": ["request_id", "kind", "answer"],
        },
    },
    "instructions": {
        "type": "array",
        "description": "Words of an operator for you, each told once: a nudge, steering, or a task; follow them.",
        "items": {
            "type": "object",
            "properties": {"kind": {"type": "string"}, "text": {"type": "string"}},
            "required": ["kind", "text"],
        },
    },
}
