"""Conversions for permission requests: a tool's operation to a request, and the answer to a hook's result."""

from __future__ import annotations

import json
from typing import Any

from intercom.agents import arguments
from intercom.agents.hook import question
from intercom.model.operation import Operation
from intercom.sessions.answers import PermissionAnswer
from intercom.sessions.messages import Answered


def operation_of(found: question.Operation) -> Operation:
    """Convert an operation from a hook's table to the model's value."""
    return arguments.read(Operation, found._asdict() | {"touches": list(found.touches)})


def verdict(answer: PermissionAnswer) -> dict[str, Any]:
    """Return a hook's result: `behavior`, a `message` for the model, and the request's id."""
    if answer.status == "allowed":
        why = f"allowed by the policy: {answer.rule}" if answer.rule else "a person has allowed it"
        return {"behavior": "allow", "message": f"{why}: {answer.reason}" if answer.reason else why}
    match answer.status:
        case "denied":
            reason = f": {answer.reason}" if answer.reason else ""
            why = f"a person has refused this{reason}; do not do it by other means"
        case "timeout":
            why = "nobody answered in time, so this is not allowed; ask again later, or do something else"
        case _:
            why = (
                f"not decided yet: request {answer.request_id} still waits for a person; do not do this by other means;"
                " try exactly the same again to go on waiting"
            )
    return {"behavior": "deny", "message": why, "request_id": answer.request_id}


def words(answered: Answered[None]) -> str:
    """Return the text for an agent that is about to stop: undelivered decisions, and people's instructions."""
    lines = [
        f'the verdict on "{late.title}" (request {late.request_id}) is there: {json.dumps(late.answer)}'
        for late in answered.late_verdicts
    ]
    lines += [word.text for word in answered.instructions]
    return "\n".join(["before you stop, an operator has this for you:", *lines])
