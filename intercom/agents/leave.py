"""Leave for an operation: from what a client's tool does to what is asked, and from the answer to what it is told."""

from __future__ import annotations

import json
from typing import Any

from intercom.agents import arguments
from intercom.agents.hook import question
from intercom.model.operation import Operation
from intercom.sessions.answers import PermissionAnswer
from intercom.sessions.messages import Answered


def operation_of(found: question.Operation) -> Operation:
    """What a hook's table made of the use of a tool, as a value."""
    return arguments.read(Operation, found._asdict() | {"touches": list(found.touches)})


def verdict(answer: PermissionAnswer) -> dict[str, Any]:
    """What a hook is told: `behavior` and a sentence for the model."""
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
    """What an agent that wanted to stop is told instead: verdicts that reached it by no call, and people's words."""
    lines = [
        f'the verdict on "{late.title}" (request {late.request_id}) is there: {json.dumps(late.answer)}'
        for late in answered.late_verdicts
    ]
    lines += [word.text for word in answered.instructions]
    return "\n".join(["before you stop, an operator has this for you:", *lines])
