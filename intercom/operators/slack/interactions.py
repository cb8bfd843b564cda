"""Interactions: an envelope is handled once, its action is carried out, and then it is acknowledged."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import trio
from attrs import define, field, frozen
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from intercom.operators.slack import decisions, envelopes, modals, threads
from intercom.operators.slack.decisions import ActionDeps, Authorization
from intercom.operators.slack.envelopes import ButtonAction, Command, FormSubmission, Ignored, Interaction, ThreadReply
from intercom.operators.slack.web_api import Json

log = logging.getLogger(__name__)

#: How many acts and envelopes are remembered; a redelivery comes within minutes.
REMEMBERED = 1024

#: The payload of an acknowledgement; None if there is none.
Answer = Json | None


@define
class Once:
    """Runs each work once, by its id, as far as memory goes. What must not repeat after a restart is also recorded."""

    remembered: int = REMEMBERED
    _answers: dict[str, Answer] = field(factory=dict, init=False)
    _under_way: dict[str, trio.Event] = field(factory=dict, init=False)

    async def run(self, id: str, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of `work`; concurrent and later repetitions get the same answer. If `work` raises, the next
        repetition runs it again."""
        while (first := self._under_way.get(id)) is not None:
            await first.wait()
        if id in self._answers:
            return self._answers[id]
        done = self._under_way[id] = trio.Event()
        try:
            answer = await work()
            if len(self._answers) >= self.remembered:
                del self._answers[next(iter(self._answers))]
            self._answers[id] = answer
            return answer
        finally:
            del self._under_way[id]
            done.set()


class Commands(Protocol):
    """Carries out slash commands. `run` returns the payload of the acknowledgement once the command is recorded. It is
    called for authorized people only, and at least once for each command."""

    async def run(self, command: Command) -> Answer: ...


@frozen
class Interactions:
    """Carries out the actions in envelopes. `authorization` decides who may act. `commands` carries out slash commands,
    and `deps` serves all other actions."""

    deps: ActionDeps
    authorization: Authorization
    commands: Commands
    _once: Once = field(factory=Once, init=False, repr=False)

    async def handle(self, kind: str, payload: Mapping[str, Any]) -> Answer:
        """Carry out an envelope of type `kind`; return the payload of its acknowledgement, if any.

        Returns once the action is recorded, or is irrelevant. The same action in another envelope gets the same answer.
        Raises NotRecorded (or the error of a command) if it could not be recorded. Then it must not be acknowledged, so
        that Slack delivers it again.
        """
        act = envelopes.read(kind, payload)
        if isinstance(act, Ignored):
            log.debug("ignored: %s", act.why)
            return None
        return await self._once.run(act.act_id, lambda: self._carry_out(act))

    async def _carry_out(self, act: Interaction) -> Answer:
        match act:
            case ThreadReply():
                # Whether the reply concerns us is known only after a look-up of its thread.
                await threads.said(self.deps, self.authorization, act)
            case ButtonAction() if await self.authorization.passes(act):
                await self._carry_out_button(act)
            case FormSubmission() if await self.authorization.passes(act):
                return await modals.submitted(self.deps, act)
            case Command() if await self.authorization.passes(act):
                return await self.commands.run(act)
        return None

    async def _carry_out_button(self, pressed: ButtonAction) -> None:
        button = pressed.button
        if button.form is not None:
            await modals.ask(self.deps, pressed, button.form)
            return
        turned = await decisions.give(
            self.deps, pressed.act_id, pressed.person, pressed.card_id, button.decision, kind=button.kind
        )
        if turned is not None:
            self.deps.tell_person(pressed.channel, pressed.person.id, turned.why, pressed.within)


#: Takes an envelope's kind (`interactive`, `events_api`, `slash_commands`) and payload; returns the payload of the
#: acknowledgement, if any. It returns once the action is recorded. If it raises, Slack sends the envelope again.
Handler = Callable[[str, Json], Awaitable[Answer]]

#: Sends an acknowledgement by the socket of its envelope, or by another one; never raises a SlackError.
Acknowledge = Callable[[Json], Awaitable[None]]


class Handling:
    """Runs `handle` for each envelope, in tasks of the nursery given to `take`, and then acknowledges it.

    `at_once` envelopes are handled at the same time, and `waiting` more may queue. Further ones are dropped, and Slack
    sends them again. A handler has `seconds` to finish. The answers to the last `remembered` envelopes are kept for
    redeliveries.
    """

    def __init__(
        self,
        handle: Handler,
        *,
        at_once: int = 64,
        waiting: int = 1000,
        remembered: int = REMEMBERED,
        seconds: float = 30.0,
    ) -> None:
        self._handle = handle
        self._once = Once(remembered)
        self._turns = trio.Semaphore(at_once)
        self._most = at_once + waiting
        self._seconds = seconds
        self._in_hand = 0
        self._settled = trio.lowlevel.ParkingLot()

    @property
    def in_hand(self) -> int:
        """How many envelopes are being handled or queued."""
        return self._in_hand

    async def until_idle(self) -> None:
        """Wait until no envelope is being handled or queued."""
        while self._in_hand:
            await self._settled.park()

    def take(self, envelope: Json, acknowledge: Acknowledge, nursery: trio.Nursery) -> None:
        """Start to handle an envelope; returns immediately. A message that is no envelope is logged and ignored."""
        envelope_id = envelope.get("envelope_id")
        if not isinstance(envelope_id, str) or not envelope_id:
            log.warning("slack sent a message of an unknown kind, which is passed over")
            return
        request = _read(envelope)
        if request is None:
            # Without an acknowledgement it would come again.
            log.warning("slack sent an envelope without a payload, which is passed over")
            nursery.start_soon(acknowledge, SocketModeResponse(envelope_id).to_dict())
        elif self._in_hand >= self._most:
            log.warning("%d envelopes from slack are in hand; one more is left for slack to send again", self._most)
        else:
            self._in_hand += 1
            nursery.start_soon(self._run, request, acknowledge)

    async def _run(self, request: SocketModeRequest, acknowledge: Acknowledge) -> None:
        try:
            async with self._turns:
                with trio.fail_after(self._seconds):
                    answer = await self._once.run(
                        request.envelope_id, lambda: self._handle(request.type, request.payload)
                    )
        except Exception as failed:
            # The error's text and the values in its traceback may contain a person's text.
            log.error("slack's envelope (%s) was not taken and will come again: %s", request.type, _where(failed))
        else:
            payload = answer if request.accepts_response_payload else None
            await acknowledge(SocketModeResponse(request.envelope_id, payload).to_dict())
        finally:
            self._in_hand -= 1
            if not self._in_hand:
                self._settled.unpark_all()


def _read(envelope: Json) -> SocketModeRequest | None:
    try:
        return SocketModeRequest.from_dict(envelope)
    except (TypeError, ValueError):
        # For a payload of a wrong type the model raises TypeError: its parameter `type` shadows the builtin.
        return None


def _where(failed: Exception) -> str:
    frames = traceback.extract_tb(failed.__traceback__)
    last = frames[-1]
    return f"{type(failed).__name__} in {last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}"
