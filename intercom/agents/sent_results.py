"""The results sent to one agent that carry decisions or instructions, and how far each has come.

A result is pending again if nobody received it, and recorded as delivered once there is a sign that it was read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from enum import Enum

import trio
from attrs import define, evolve, field, frozen

from actors import Busy, Down, NotRunning, System, ask
from intercom.agents.tool_call import ToolCall
from intercom.model.errors import IntercomError, NotFound
from intercom.sessions.messages import Deliver, Delivery, Undeliver, Wanted, Written

log = logging.getLogger("intercom.agents")

#: Time limit for recording deliveries, in seconds. They are recorded again after a restart, so nothing is lost.
_SECONDS = 60.0
#: How long an agent's next call waits for the record of deliveries, in seconds. Past it, the call after it tries again.
_CONFIRM_SECONDS = 5.0


class Stage(Enum):
    """Where the result of a call is."""

    NONE = "there is none yet, or it carries nothing"
    SENT = "it is on its way"
    WRITTEN = "it was written to a connection without a shim, and the agent has made no call since"
    ARRIVED = "its arrival is being recorded"
    CANCELLED = "its client cancelled the call before there was a result, so that will not be read"
    ABANDONED = "its call was cancelled after it was sent, so its receipt does not count"


#: These wait for one more sign, which comes within moments or never. Only so many are kept, the latest.
_OVER = (Stage.CANCELLED, Stage.ABANDONED)
_MOST_OVER = 100


@frozen
class Result:
    """The result of one call, and what it carries to the agent of this session. `rpc_id` is the request that it
    answers, while a cancellation of that request matters."""

    stage: Stage = Stage.NONE
    session_id: str = ""
    delivery: Delivery = field(default=Delivery(""))
    rpc_id: object = None

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it carries something, and no sign of its arrival has come."""
        return self.stage in (Stage.SENT, Stage.WRITTEN)


@define
class SentResults:
    """The pending deliveries of one agent connection: one record for each result says where it is, by name of call."""

    system: System
    _results: dict[str, Result] = field(factory=dict, init=False)

    def asked(self, rpc_id: str | int, name: str) -> None:
        """Note a call with this name over a byte stream."""
        for earlier in self._answers(rpc_id):
            self._results[earlier] = evolve(self._results[earlier], rpc_id=None)
        known = self._result(name)
        self._results[name] = evolve(Result() if known.stage in _OVER else known, rpc_id=rpc_id)

    def answered(self, rpc_id: str | int | None) -> tuple[str, str | None] | None:
        """Note that the answer to a request is about to be sent over a byte stream. Returns the name of its call, with
        the receipt for the shim to give back once it was written; the receipt is None if nothing needs a record. It
        holds everything to record, so a server that does not know the call can record it."""
        for name in self._answers(rpc_id):
            result = self._results[name]
            if not result.is_unconfirmed:
                del self._results[name]
            return name, receipt(result.session_id, result.delivery) if result.is_unconfirmed else None
        return None

    def sent(self, call: ToolCall) -> None:
        """Note what the call's result carries; the result is on its way. That of a cancelled call carries nothing: the
        SDK may learn of the cancellation only once the call has its result."""
        if self._result(call.name).stage is Stage.CANCELLED:
            self.abandon(call.name, call.session_id)
        elif call.delivery is not None:
            rpc_id = self._result(call.name).rpc_id
            self._results[call.name] = Result(Stage.SENT, call.session_id, call.delivery, rpc_id)

    def written(self, name: str, rpc_id: object = None) -> None:
        """Note that this call's result was written to a connection without a shim, as the answer to this request. The
        agent's next call confirms that it was read."""
        result = self._result(name)
        if result.is_unconfirmed:
            self._results[name] = evolve(result, stage=Stage.WRITTEN, rpc_id=rpc_id)
            if result.delivery.instructions:
                # Told at once: the server may crash while the agent works on it for long.
                self.system.named(f"session/{result.session_id}").tell(Written(result.delivery.instructions))

    def cancelled(self, rpc_id: object) -> None:
        """Make pending again what answers this request: its client cancelled it, and ignores the answer, also one that
        crosses with the cancellation."""
        for name in self._answers(rpc_id):
            if self._result(name).stage is Stage.NONE:
                self._note_over(name, Stage.CANCELLED)
            else:
                self.abandon(name)

    def abandon(self, name: str, session_id: str | None = None) -> None:
        """Make pending again what this call's result carried: the result does not reach the client."""
        result = self._result(name)
        self.lost(name)
        if result.stage is Stage.SENT:
            self._note_over(name, Stage.ABANDONED)
        elif session_id is not None:
            self._undeliver(session_id, name)

    def client_restarted(self) -> None:
        """Make pending again all that is unread: the agent's client has restarted."""
        self.lost(*self._unread())

    def lose_all(self) -> None:
        """Make pending again all that was not confirmed: the connection is closed."""
        self.lost(*(name for name, result in self._results.items() if result.is_unconfirmed))

    def lost(self, *names: str) -> None:
        """Make pending again what these calls' results carried: nobody received them."""
        by_session: dict[str, list[str]] = {}
        for name in names:
            result = self._results.pop(name, Result())
            if result.is_unconfirmed:
                by_session.setdefault(result.session_id, []).append(name)
        for session_id, lost in by_session.items():
            self._undeliver(session_id, *lost)

    def _undeliver(self, session_id: str, *names: str) -> None:
        self.system.named(f"session/{session_id}").tell(Undeliver(names))

    async def delivered(self, receipts: Iterable[str]) -> None:
        """Record the results of these receipts as delivered. Calls that were abandoned before are left out."""
        await self._record(read_receipt(text) for text in receipts)

    async def _record(self, arrived: Iterable[tuple[str, Delivery]]) -> None:
        by_session: dict[str, list[Delivery]] = {}
        for session_id, delivery in arrived:
            # An abandoned one was written, but to a client that had already cancelled the call.
            if self._results.pop(delivery.call, Result()).stage is not Stage.ABANDONED:
                self._results[delivery.call] = Result(Stage.ARRIVED, session_id, delivery)
                by_session.setdefault(session_id, []).append(delivery)
        try:
            for session_id, deliveries in by_session.items():
                await record_deliveries(self.system, session_id, deliveries)
        finally:
            for each in (each for deliveries in by_session.values() for each in deliveries):
                self._results.pop(each.call, None)

    async def read_all(self) -> None:
        """Record all written results as read by the agent. If that fails now, a later call tries again."""
        await self.reached(*self._unread())

    async def reached(self, *names: str) -> None:
        """Record that these calls' results have reached their client. A failure is logged, and the next call tries
        again. Shielded from the caller's cancellation."""
        read = {name: self._result(name) for name in names if self._result(name).is_unconfirmed}
        if not read:
            return
        try:
            with trio.fail_after(_CONFIRM_SECONDS, shield=True):
                await self._record((result.session_id, result.delivery) for result in read.values())
        except (Busy, Down, IntercomError, NotRunning, trio.TooSlowError) as failed:
            log.warning("a delivery could not be recorded: %r", failed)
            self._results |= {name: evolve(result, stage=Stage.WRITTEN) for name, result in read.items()}

    def on_its_way(self) -> frozenset[str]:
        """Return the ids of the requests and instructions that results carry to the agent now."""
        carried = (result.delivery for result in self._results.values())
        return frozenset(id for each in carried for id in (*each.requests, *each.instructions))

    def _note_over(self, name: str, stage: Stage) -> None:
        self._results[name] = Result(stage)
        over = [each for each, result in self._results.items() if result.stage in _OVER]
        for each in over[:-_MOST_OVER]:
            del self._results[each]

    def _result(self, name: str) -> Result:
        return self._results.get(name) or Result()

    def _unread(self) -> tuple[str, ...]:
        return tuple(name for name, result in self._results.items() if result.stage is Stage.WRITTEN)

    def _answers(self, rpc_id: object) -> tuple[str, ...]:
        """Return the calls whose results answer this request."""
        # The SDK does not distinguish the ids 1 and "1" either.
        ids = ((name, result.rpc_id) for name, result in self._results.items())
        return tuple(name for name, id in ids if None not in (id, rpc_id) and str(id) == str(rpc_id))


def receipt(session_id: str, delivery: Delivery) -> str:
    """Return the receipt that the client's side gives back after this delivery."""
    return json.dumps([session_id, delivery.call, delivery.requests, delivery.instructions])


def read_receipt(text: str) -> tuple[str, Delivery]:
    """Read a receipt. Returns an empty session id and call for text that is not a receipt."""
    try:
        session_id, call, requests, instructions = json.loads(text)
        return str(session_id), Delivery(str(call), tuple(map(str, requests)), tuple(map(str, instructions)))
    except (ValueError, TypeError):
        return "", Delivery("")


async def record_deliveries(system: System, session_id: str, deliveries: Iterable[Delivery]) -> None:
    """Record deliveries in their session, if it exists: it may be purged, or a receipt forged."""
    try:
        await ask(system.named("registry"), Wanted(session_id), timeout=_SECONDS, retry=True)
    except NotFound:
        return
    await ask(system.named(f"session/{session_id}"), Deliver(tuple(deliveries)), timeout=_SECONDS, retry=True)
