"""Handling of envelopes: each is handled once, even if it is delivered again, and then acknowledged."""

from __future__ import annotations

import logging
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import trio
from attrs import define, field
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

log = logging.getLogger(__name__)

#: Takes an envelope's kind (`interactive`, `events_api`, `slash_commands`) and payload; returns the payload of the
#: acknowledgement, if any. It returns once the action is recorded. If it raises, Slack sends the envelope again.
Handler = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]]

#: Sends an acknowledgement by the socket of its envelope, or by another one; never raises a SlackError.
Acknowledge = Callable[[dict[str, Any]], Awaitable[None]]


@define
class _Handled:
    """One envelope: its pending acknowledgements, and its answer once that is known."""

    waiting: list[tuple[bool, Acknowledge]] = field(factory=list)
    done: bool = False
    payload: dict[str, Any] | None = None


class Handling:
    """Runs `handle` for each envelope, in tasks of the nursery given to `take`.

    `at_once` handlers run at the same time, and `waiting` more envelopes may queue. Further ones are dropped, and Slack
    sends them again. A handler has `seconds` to finish. The answers to the last `remembered` envelopes are kept for
    redeliveries.
    """

    def __init__(
        self,
        handle: Handler,
        *,
        at_once: int = 64,
        waiting: int = 1000,
        remembered: int = 1000,
        seconds: float = 30.0,
    ) -> None:
        self._handle = handle
        self._turns = trio.Semaphore(at_once)
        self._most = at_once + waiting
        self._remembered = remembered
        self._seconds = seconds
        self._open: dict[str, _Handled] = {}
        self._done: OrderedDict[str, _Handled] = OrderedDict()
        self._settled = trio.lowlevel.ParkingLot()

    @property
    def in_hand(self) -> int:
        """How many envelopes are being handled or queued."""
        return len(self._open)

    async def until_idle(self) -> None:
        """Wait until no envelope is being handled or queued."""
        while self._open:
            await self._settled.park()

    def take(self, envelope: dict[str, Any], acknowledge: Acknowledge, nursery: trio.Nursery) -> None:
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
            return
        wants = (request.accepts_response_payload, acknowledge)
        if (done := self._done.get(envelope_id)) is not None:
            nursery.start_soon(_answer, envelope_id, done, wants)
        elif (handled := self._open.get(envelope_id)) is not None:
            handled.waiting.append(wants)
        elif len(self._open) >= self._most:
            log.warning("%d envelopes from slack are in hand; one more is left for slack to send again", self._most)
        else:
            self._open[envelope_id] = _Handled([wants])
            nursery.start_soon(self._run, request)

    async def _run(self, request: SocketModeRequest) -> None:
        handled = self._open[request.envelope_id]
        try:
            async with self._turns:
                await self._attempt(request, handled)
            if handled.done:
                self._remember(request.envelope_id, handled)
                # Dropped, because the callbacks reference their sockets.
                waiting, handled.waiting = handled.waiting, []
                async with trio.open_nursery() as nursery:
                    for wants in waiting:
                        nursery.start_soon(_answer, request.envelope_id, handled, wants)
        finally:
            self._open.pop(request.envelope_id, None)
            if not self._open:
                self._settled.unpark_all()

    async def _attempt(self, request: SocketModeRequest, handled: _Handled) -> None:
        try:
            with trio.move_on_after(self._seconds):
                handled.payload = await self._handle(request.type, request.payload)
                handled.done = True
        except Exception as failed:
            # The error's text and the values in its traceback may contain a person's text.
            log.error("slack's envelope (%s) was not taken and will come again: %s", request.type, _where(failed))
            return
        if not handled.done:
            log.error("slack's envelope (%s) was not handled within %g s", request.type, self._seconds)

    def _remember(self, envelope_id: str, handled: _Handled) -> None:
        self._done[envelope_id] = handled
        while len(self._done) > self._remembered:
            self._done.popitem(last=False)


def _read(envelope: dict[str, Any]) -> SocketModeRequest | None:
    try:
        return SocketModeRequest.from_dict(envelope)
    except (TypeError, ValueError):
        # For a payload of a wrong type the model raises TypeError: its parameter `type` shadows the builtin.
        return None


async def _answer(envelope_id: str, handled: _Handled, wants: tuple[bool, Acknowledge]) -> None:
    takes_payload, acknowledge = wants
    payload = handled.payload if takes_payload else None
    await acknowledge(SocketModeResponse(envelope_id, payload).to_dict())


def _where(failed: Exception) -> str:
    frames = traceback.extract_tb(failed.__traceback__)
    last = frames[-1]
    return f"{type(failed).__name__} in {last.name}, line {last.lineno} of {last.filename.rpartition('/')[2]}"
