"""The gate: the server's end of a client's hook (docs/reference/shim-wire.md).

A hook is a process of the client that asks one thing and goes. It is answered in the session of the agent whose client
started it, with the same requests and cards as the agent's own calls; where no agent is known, in a session of its own.
"""

from __future__ import annotations

import json
import logging
import math
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from attrs import define, field, frozen

from actors import Busy, Down, NotRunning, System, ask
from intercom.agents import arguments
from intercom.agents.deliveries import read_receipt, receipt
from intercom.agents.hook.errand import ASKED, PAUSED
from intercom.agents.hook_session import Hook, Where, find, known
from intercom.agents.leave import verdict, words
from intercom.model import crash_points
from intercom.model.errors import IntercomError, InvalidArguments, InvalidState, NotFound, Paused
from intercom.model.operation import Operation
from intercom.sessions.answers import PermissionAnswer
from intercom.sessions.messages import (
    Answered,
    AwaitUnpaused,
    Deliver,
    Delivery,
    TakeWords,
    Undeliver,
    Withdraw,
)
from intercom.sessions.permission_messages import AskPermission, AwaitPermission
from intercom.sessions.reception_messages import AgentsGone, Wanted
from intercom.sessions.stall_messages import Activity

log = logging.getLogger("intercom.agents")

_SECONDS = 60.0
#: A hook asks, and says that it was told. Who asks more on one connection is no hook.
_MOST_QUESTIONS = 4

NextLine = Callable[[], Awaitable[bytes | None]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@frozen
class PermissionParams:
    """What `intercom/permission` takes."""

    call: str
    client: str
    slot: str
    operation: Operation
    conversation: str = ""
    turn: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class StoppingParams:
    """What `intercom/stopping` takes."""

    call: str
    client: str
    slot: str = ""
    conversation: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class ToldParams:
    """What `intercom/told` takes."""

    receipt: str


async def attend(hook: Hook, next_line: NextLine, send: Send) -> None:
    """Answer what a hook asks, until it goes. What it asked and did not stay for stays open, and what it was told and
    did not say to have printed is told again."""
    visit = _Visit(hook, send)
    try:
        async with trio.open_nursery() as nursery:
            asked = 0
            while (line := await next_line()) is not None:
                if not line.startswith(b'{"intercom"'):
                    asked += 1
                    if asked > _MOST_QUESTIONS:
                        break
                    nursery.start_soon(visit.answer, line)
            nursery.cancel_scope.cancel()
    finally:
        visit.close()


@define
class _Visit:
    """One hook's connection. `unsure` are the calls whose answers may not have reached the hook, by session; `guests`
    are the agents it was let in as, or is about to be, where it has sessions of its own."""

    hook: Hook
    send: Send
    unsure: dict[str, str] = field(factory=dict, init=False)
    guests: set[str] = field(factory=set, init=False)

    async def answer(self, line: bytes) -> None:
        said = _read(line)
        id = said.get("id")
        try:
            await self.send({"jsonrpc": "2.0", "id": id, "result": await self._result(said)})
        except IntercomError as refused:
            await self._refuse(id, refused.error_code, refused.message)
        except Busy:
            await self._refuse(id, "busy", "too many requests wait in this session; try again in a moment")
        except (Down, NotRunning, trio.TooSlowError):
            await self._refuse(id, "unavailable", "a part of the server is restarting; try again")
        except trio.BrokenResourceError:
            raise
        except Exception:
            log.exception("a hook could not be answered")
            await self._refuse(id, "mcp", "the server failed on this question; the fault is in its log")

    async def _result(self, said: dict[str, Any]) -> dict[str, Any]:
        params = said.get("params")
        params = params if isinstance(params, dict) else {}
        match said.get("method"):
            case "intercom/permission":
                return await self._permission(arguments.read(PermissionParams, params))
            case "intercom/stopping":
                return await self._stopping(arguments.read(StoppingParams, params))
            case "intercom/told":
                return await self._told(arguments.read(ToldParams, params))
        known = "intercom/permission, intercom/stopping or intercom/told"
        raise InvalidArguments(f"a hook asks {known}; is it of another version?")

    async def _permission(self, given: PermissionParams) -> dict[str, Any]:
        where = Where(given.client, given.conversation, given.cwd, given.roots, given.session)
        session_id = await find(self.hook, where, self.guests)
        self.hook.system.named(f"stall/{session_id}").tell(Activity())
        asked = AskPermission(given.call, given.client, given.operation, given.slot, given.turn)

        async def shown(request_id: str) -> None:
            about = {"request_id": request_id, "session_id": session_id}
            await self.send({"jsonrpc": "2.0", "method": ASKED, "params": about})

        async def held_up() -> None:
            await self.send({"jsonrpc": "2.0", "method": PAUSED, "params": {"session_id": session_id}})

        # Before it is asked: the session may come to answer when nobody listens any more.
        self.unsure[given.call] = session_id
        answer = await decided(self.hook.system, session_id, asked, shown, held_up=held_up)
        said = verdict(answer)
        if answer.request_id and answer.status != "allowed":
            said["receipt"] = receipt(session_id, Delivery(given.call, (answer.request_id,)))
        else:
            self.unsure.pop(given.call, None)
        crash_points.reach("answer.leaving")
        return said

    async def _stopping(self, given: StoppingParams) -> dict[str, Any]:
        where = Where(given.client, given.conversation, given.cwd, given.roots, given.session)
        try:
            # Words are for one agent: no other is to have them because it seems to be the one.
            session_id = await known(self.hook, where, guess=False)
            if session_id is None:
                return {"words": None}
            self.unsure[given.call] = session_id
            session = self.hook.system.named(f"session/{session_id}")
            answered = await ask(session, TakeWords(given.call), timeout=_SECONDS, retry=True)
        except (InvalidState, Paused):
            # Ended, or held up: there is nothing to go on with.
            return {"words": None}
        if not answered.late_verdicts and not answered.instructions:
            self.unsure.pop(given.call, None)
            return {"words": None}
        requests = tuple(late.request_id for late in answered.late_verdicts)
        told = Delivery(given.call, requests, tuple(word.id for word in answered.instructions))
        return {"words": words(answered), "receipt": receipt(session_id, told)}

    async def _told(self, given: ToldParams) -> dict[str, Any]:
        """What a receipt tells of was printed: that goes on record, whichever life of the server gave the receipt."""
        session_id, delivery = read_receipt(given.receipt)
        try:
            await ask(self.hook.system.named("reception"), Wanted(session_id), timeout=_SECONDS, retry=True)
        except NotFound:
            return {}
        session = self.hook.system.named(f"session/{session_id}")
        await ask(session, Deliver((delivery,)), timeout=_SECONDS, retry=True)
        self.unsure.pop(delivery.call, None)
        return {}

    async def _refuse(self, id: object, code: str, message: str) -> None:
        error = {"code": -32000, "message": message, "data": {"error_code": code}}
        await self.send({"jsonrpc": "2.0", "id": id, "error": error})

    def close(self) -> None:
        for call, session_id in self.unsure.items():
            self.hook.system.named(f"session/{session_id}").tell(Undeliver((call,)))
        for key in self.guests:
            self.hook.presence.left(key, self.hook.name)
        if self.guests:
            self.hook.system.named("reception").tell(AgentsGone((*self.guests,)))


async def decided(
    system: System,
    session_id: str,
    asked: AskPermission,
    shown: Callable[[str], Awaitable[None]],
    patience: float = math.inf,
    held_up: Callable[[], Awaitable[None]] | None = None,
) -> PermissionAnswer:
    """Ask leave, and wait for a person where that is needed. `shown` hears which request a person was asked, and
    `held_up` that the agent is paused, so that nobody is asked before it goes on; after `patience` seconds of waiting
    the answer is "pending". When this is cancelled the request stays open."""
    session = system.named(f"session/{session_id}")
    until = trio.current_time() + patience
    while True:
        try:
            opened = await ask(session, asked, timeout=_SECONDS, retry=True)
        except Paused:
            # Nothing was asked yet. Should the hook be out of patience first, it is told of the pause.
            if held_up is not None:
                await held_up()
            with trio.move_on_at(until):
                await ask(session, AwaitUnpaused(), retry=True)
                continue
            raise
        if opened.answered is not None:
            return opened.answered.answer
        ticket = uuid.uuid4().hex
        answered: Answered[PermissionAnswer] | None = None
        try:
            await shown(opened.request_id)
            with trio.move_on_at(until):
                wanted = AwaitPermission(asked.call, opened.request_id, ticket)
                answered = await ask(session, wanted, retry=True)
        finally:
            if answered is None:
                session.tell(Withdraw(asked.call, opened.request_id, ticket))
        if answered is None:
            return PermissionAnswer("pending", opened.request_id)
        if answered.answer.status != "approved":
            return answered.answer
        # A person has said yes. To use that is to ask again; another use of the same may have been faster.


def _read(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
