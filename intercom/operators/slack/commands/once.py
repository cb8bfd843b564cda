"""Acts that must not run twice: each is recorded under its id before it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from intercom.operators.slack.commands.call import Call, Surroundings
from intercom.store import command_runs
from intercom.store.command_runs import Begun

#: The answers about a command that an earlier server run began.
INTERRUPTED = "interrupted by a restart of the server; run it again"
UNKNOWN = "a restart of the server came between; whether it was done is not known: look, and if it was not, do it again"
UNDER_WAY = "this is under way already"


class Repeated(Exception):
    """The same act was begun before. `answer` is the message for the person now; None for none."""

    def __init__(self, answer: str | None) -> None:
        super().__init__(answer or "answered before")
        self.answer = answer


async def begin(call: Call, note: dict[str, Any], session_id: str | None) -> None:
    """Record the call. Raises Repeated if it is recorded already, NotRecorded if it cannot be recorded."""
    work = partial(
        command_runs.begin,
        act_id=call.command.act_id,
        note=note,
        at=call.house.now(),
        who=str(call.command.person),
        session_id=session_id,
    )
    begun = await call.house.transact(work)
    call.recorded()
    _refuse_repeated(begun)


async def check(house: Surroundings, act_id: str) -> None:
    """Raise Repeated if the call is recorded. It runs before any look-up, because the first run may have changed the
    result of the look-up."""
    _refuse_repeated(await house.transact(partial(command_runs.known, act_id=act_id)))


def _refuse_repeated(begun: Begun | None) -> None:
    if begun is not None:
        raise Repeated(UNDER_WAY if begun.answer is None else begun.answer.get("told"))


async def finish(call: Call, told: str | None) -> None:
    """Record what the person was told of a finished call."""
    await call.house.transact(
        partial(command_runs.finish, act_id=call.command.act_id, answer={"told": told}, at=call.house.now())
    )


async def once(call: Call, act: Callable[[], Awaitable[str]], session_id: str | None) -> str:
    """Run `act` once for this act of a person and return its answer; a repetition gets the first answer. An error of
    `act` is an answer, too. Raises Repeated and NotRecorded as `begin` does, and the error of `act`."""
    await begin(call, {"line": call.line}, session_id)
    try:
        told = await act()
    except Exception as refusal:
        await finish(call, str(refusal))
        raise
    await finish(call, told)
    return told
