"""The three tools that wait for a person."""

from __future__ import annotations

from functools import partial
from typing import Any

from intercom.agents.call import Call
from intercom.agents.tools import inputs
from intercom.agents.tools.tool import Waiting
from intercom.sessions.answers import (
    NOT_ANSWERED_YET,
    NOT_APPROVED_YET,
    STILL_WAITING,
    ClearanceAnswer,
    PromptAnswer,
    StandbyAnswer,
)
from intercom.sessions.messages import AskPrompt, AwaitClearance, AwaitPrompt, AwaitStandby, Opened, Propose, StandBy

CHECK_CLEARANCE = """\
Ask a person for clearance to change files, before you write anything. Give the change as diff, a unified diff of one \
file or several, or as content, the whole new content of one file. The call waits until a person answers.
- "approved": call check_diff with the request_id; it writes exactly what was approved. Do not write the files yourself.
- "rejected": do not make this change; heed the reason.
- "timeout": nobody answered in time; treat it as not approved and ask again later or use standby.
- "pending": still undecided; do not write; call again with only this request_id to go on waiting.
Asking again for the same change while it is undecided joins the earlier request; nobody is asked twice."""

TRANSMIT = """\
Ask the operator how to go on: whether to continue, what was meant, how to recover from an error, or whether the cost \
is fine. The call waits until a person answers.
- decision "continue": go on as planned. "refine": follow the instruction instead. "stop": end the task now.
- "timed_out": true with a decision: nobody answered, so nobody consented. Do what the message says.
- "auto_approved": the workspace's policy answered, and no person.
- status "pending": no answer yet; call again with only this request_id."""

STANDBY = """\
Say that you have nothing left to do and wait for work. The call waits until the operator gives word.
- "resumed" with an instruction: do what it says ("stop" means end your session). With instructions (steering, a \
task): follow those. With neither: go on with your task.
- "timeout": no word came; end your turn.
- "pending": still waiting; call again with only this request_id."""


async def _propose(call: Call, given: inputs.CheckClearance) -> Opened[ClearanceAnswer]:
    return await call.ask(
        Propose(
            call.name,
            given.title,
            given.diff,
            given.file_path,
            given.description,
            given.risk_level,
            given.request_id,
            given.content,
        )
    )


async def _ask(call: Call, given: inputs.Transmit) -> Opened[PromptAnswer]:
    return await call.ask(
        AskPrompt(
            call.name,
            given.prompt_text,
            given.prompt_type,
            given.elapsed_seconds,
            given.actions_taken,
            given.request_id,
        )
    )


async def _stand_by(call: Call, given: inputs.Standby) -> Opened[StandbyAnswer]:
    return await call.ask(StandBy(call.name, given.message, given.timeout_seconds, given.request_id))


async def _wait(waiting: Waiting, call: Call, given: Any) -> dict[str, Any]:
    """Wait until the poll interval ends. Returns the answer, or how to continue waiting."""
    opened = await waiting.open(call, given)
    id = opened.request_id
    answered = opened.answered or await call.wait(waiting.awaits(call.name, id, call.ticket), id)
    if answered is None:
        return await call.give_up(id, waiting.pending(id))
    return call.finish(answered, own=id)


CLEARANCE = Waiting(_propose, AwaitClearance, lambda id: ClearanceAnswer("pending", id, message=NOT_APPROVED_YET))
PROMPT = Waiting(_ask, AwaitPrompt, lambda id: PromptAnswer(status="pending", request_id=id, message=NOT_ANSWERED_YET))
WAIT = Waiting(_stand_by, AwaitStandby, lambda id: StandbyAnswer("pending", request_id=id, message=STILL_WAITING))

check_clearance = partial(_wait, CLEARANCE)
transmit = partial(_wait, PROMPT)
standby = partial(_wait, WAIT)
