"""A tool: its names, its words, its schemas and what it does."""

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
    """How a tool waits for a person: `open` puts its request on record, `awaits` (call, request, ticket) is the message
    that waits for the verdict, and `pending` the answer for a call that can wait no longer."""

    open: Callable[[Call, Any], Awaitable[Opened[Any]]]
    awaits: Callable[[str, str, str], Request[Answered[Any]]]
    pending: Callable[[str], object]


@frozen
class Hints:
    """What a client may tell its user of the tool, honestly: whether it changes nothing, may destroy something, does no
    more when repeated, and reaches beyond this machine."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


@frozen
class Tool:
    """`run` gets the call and its arguments as `takes`; `result` is the attrs class of the answer. `waiting` is there
    for the tools that wait for a person."""

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
        """The answer, and what may ride on any answer. Open to more and to less, so that a client's validator never
        refuses one: while the session is paused there is a status and a message, and nothing else."""
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
