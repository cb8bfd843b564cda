"""Doing what must not be done twice: on record under the act's id first, and then done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from intercom.operators.slack.commands.call import Call, Surroundings
from intercom.store import command_runs
from intercom.store.command_runs import Begun

#: What is said of a command that was begun by a server that is gone.
INTERRUPTED = "interrupted by a restart of the server; run it again"
UNKNOWN = "a restart of the server came between; whether it was done is not known: look, and if it was not, do it again"
UNDER_WAY = "this is under way already"


class Repeated(Exception):
    """The same act was begun before; `answer` is what the person is told now, None for nothing."""

    def __init__(self, answer: str | None) -> None:
        super().__init__(answer or "answered before")
        self.answer = answer


async def begin(call: Call, note: dict[str, Any], session_id: str | None) -> None:
    """Put the call on record. Raises Repeated when it is there, NotRecorded when it can not be put there."""
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
    """Raise Repeated when a call is on record: before anything is looked up that the first time may have changed."""
    _refuse_repeated(await house.transact(partial(command_runs.known, act_id=act_id)))


def _refuse_repeated(begun: Begun | None) -> None:
    if begun is not None:
        raise Repeated(UNDER_WAY if begun.answer is None else begun.answer.get("told"))


async def finish(call: Call, told: str | None) -> None:
    """Keep what the person was told of a call that is done."""
    await call.house.transact(
        partial(command_runs.finish, act_id=call.command.act_id, answer={"told": told}, at=call.house.now())
    )


async def once(call: Call, act: Callable[[], Awaitable[str]], session_id: str | None) -> str:
    """What `act` answers, which is done once for this act of a person; a repeat is answered as the first time.

    A refusal of `act` is an answer too. Raises Repeated and NotRecorded as `begin` does, and what `act` raised.
    """
    await begin(call, {"line": call.line}, session_id)
    try:
        told = await act()
    except Exception as refusal:
        await finish(call, str(refusal))
        raise
    await finish(call, told)
    return told
