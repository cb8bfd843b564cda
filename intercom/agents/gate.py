"""The hook server: it answers a client's hooks (docs/reference/shim-wire.md).

A hook is a short process of the client that asks one question. It is answered in the session of the agent whose client
started it, with the same requests and cards as the agent's own calls. Without a known agent it gets its own session.
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
#: A hook asks once and confirms once. A connection with more requests than this is not a hook.
_MOST_QUESTIONS = 4

NextLine = Callable[[], Awaitable[bytes | None]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@frozen
class PermissionParams:
    """The parameters of `intercom/permission`."""

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
    """The parameters of `intercom/stopping`."""

    call: str
    client: str
    slot: str = ""
    conversation: str = ""
    cwd: str | None = None
    roots: tuple[str, ...] = ()
    session: str | None = None


@frozen
class ToldParams:
    """The parameters of `intercom/told`."""

    receipt: str


async def attend(hook: Hook, next_line: NextLine, send: Send) -> None:
    """Answer a hook's requests until it disconnects. Unanswered requests stay open. Deliveries that the hook did not
    confirm become pending again."""
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
    """One hook's connection. `unsure` maps calls whose answers may not have reached the hook to their sessions.
    `guests` are the agents that it was admitted as, or is about to be, if it has its own sessions."""

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

        # Noted before asking: the session may answer after the hook has gone.
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
            # Instructions are for one agent, so its session is never guessed.
            session_id = await known(self.hook, where, guess=False)
            if session_id is None:
                return {"words": None}
            self.unsure[given.call] = session_id
            session = self.hook.system.named(f"session/{session_id}")
            answered = await ask(session, TakeWords(given.call), timeout=_SECONDS, retry=True)
        except (InvalidState, Paused):
            # Ended or paused: the agent may stop.
            return {"words": None}
        if not answered.late_verdicts and not answered.instructions:
            self.unsure.pop(given.call, None)
            return {"words": None}
        requests = tuple(late.request_id for late in answered.late_verdicts)
        told = Delivery(given.call, requests, tuple(word.id for word in answered.instructions))
        return {"words": words(answered), "receipt": receipt(session_id, told)}

    async def _told(self, given: ToldParams) -> dict[str, Any]:
        """Record the delivery of a receipt that the hook has printed. An earlier server run may have issued the
        receipt."""
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
    """Ask for a permission, and wait for a person if needed. `shown` gets the id of the request that a person was
    asked. `held_up` is called if the agent is paused, because nobody is asked during a pause. After `patience` seconds
    of waiting the answer is "pending". If this is cancelled, the request stays open."""
    session = system.named(f"session/{session_id}")
    until = trio.current_time() + patience
    while True:
        try:
            opened = await ask(session, asked, timeout=_SECONDS, retry=True)
        except Paused:
            # Nothing was asked yet. The hook is told of the pause, in case its time runs out first.
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
        # A person has approved. Asking again uses the approval, unless another use of the same operation was faster.


def _read(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
