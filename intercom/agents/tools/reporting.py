"""The tools that answer at once; only a forced check_diff may wait for a person."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from intercom.agents.call import Call
from intercom.agents.tools import inputs
from intercom.model.session import ProgressItem
from intercom.sessions.answers import NOT_OVERWRITTEN, ApplyAnswer
from intercom.sessions.messages import (
    Answered,
    Apply,
    AwaitClearance,
    Beat,
    Broadcast,
    CheckPolicy,
    Recall,
    SwitchMode,
)

CHECK_DIFF = """\
Write an approved change to disk, exactly as it was approved: all of its files or none. Call it once check_clearance \
says "approved". On "applied" the files are written; read them again before you go on. On anything else nothing was \
written:
- patch_conflict: the file has changed since; make a new proposal. With force, a person is asked whether to write an \
approved whole file over it, and the call waits for the answer: "rejected" and "timeout" mean no, "pending" means to \
call again with only that request_id.
- not_approved, already_consumed, request_not_found, path_violation: the message says what to do."""

AUTO_CHECK = """\
Ask whether the workspace's policy lets you do something without a person: run a command, use a tool, read or write a \
file. When "auto_approved" is true, go ahead. Otherwise ask with check_clearance (for files) or transmit. \
check_clearance asks the policy by itself, so there is no need to call this before it."""

BROADCAST = """\
Tell the operator one line without waiting: progress, a result, a warning. It asks for no answer; to ask, \
use transmit. Every operator is told; "posted" says whether the line stands in the chat too (with its ts, to go on in \
the same thread), and "queued" that it will."""

REBOOT = """\
Call this first when you start, or after a crash or restart: it finds what you left behind in this workspace. On \
"recovered" go on from there: wait for each of pending_requests with its request_id (check_clearance for "approval", \
transmit for "prompt", standby for "standby"). On "clean" there is nothing to take up. \
Do what stands in tasks: a person left it for you, and it is told once."""

SWITCH_FREQ = """\
Change who is notified of your requests: remote (chat), local (terminal and web), hybrid (both). Use it when the \
operator asks you to. It never changes who may answer."""

PING = """\
Say that you are alive, and optionally what you are doing: a status line, and your task list. Call it now and then in \
long work without other calls, so that you are not taken for stalled; words of the operator may come with the answer \
("instructions": follow them). On status "paused" an operator holds you up: do nothing until another call is \
answered."""


async def check_diff(call: Call, given: inputs.CheckDiff) -> dict[str, Any]:
    answered = await apply(call, given.request_id, force=given.force)
    id = answered.answer.request_id or given.request_id
    if answered.answer.status == "pending":
        return await call.give_up(id, answered.answer)
    return call.finish(answered, own=id)


async def apply(call: Call, request_id: str, *, force: bool) -> Answered[ApplyAnswer]:
    """Write an approved change. If a person is asked first, wait for the decision. The answer is pending if the poll
    interval ends first."""
    answered = await call.ask(Apply(call.name, request_id, force))
    while answered.answer.status == "pending":
        asked = answered.answer.request_id
        assert asked is not None, "what is pending has an id"
        decided = await call.wait(AwaitClearance(call.name, asked, call.ticket), asked)
        if decided is None:
            return answered
        verdict = decided.answer
        if verdict.status != "approved":
            return evolve(decided, answer=ApplyAnswer((), verdict.status, asked, verdict.reason, NOT_OVERWRITTEN))
        answered = await call.ask(Apply(call.name, asked))
    return answered


async def auto_check(call: Call, given: inputs.AutoCheck) -> dict[str, Any]:
    context = given.context or inputs.CheckContext()
    return call.finish(
        await call.ask(
            CheckPolicy(
                call.name,
                given.tool_name,
                context.file_path,
                context.risk_level,
                context.operation.value,
                context.args,
            )
        )
    )


async def broadcast(call: Call, given: inputs.Broadcast) -> dict[str, Any]:
    return call.finish(await call.ask(Broadcast(call.name, given.message, given.level.value, given.thread_ts)))


async def reboot(call: Call, given: inputs.Reboot) -> dict[str, Any]:
    """Return the session's state. The agent connection has chosen the session before this runs."""
    return call.finish(await call.ask(Recall(call.name, adopted=call.adopted)))


async def switch_freq(call: Call, given: inputs.SwitchFreq) -> dict[str, Any]:
    return call.finish(await call.ask(SwitchMode(call.name, given.mode, "agent", "mcp", from_agent=True)))


async def ping(call: Call, given: inputs.Ping) -> dict[str, Any]:
    items = given.progress_snapshot
    snapshot = None if items is None else tuple(ProgressItem(item.label, item.status) for item in items)
    return call.finish(await call.ask(Beat(call.name, given.status_message, snapshot)))
