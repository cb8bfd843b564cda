"""The pending deliveries of one agent connection: what its results carry until they arrive or are lost.

A result may carry a decision or instructions. A shim returns the result's receipt once it was written to the client.
Without a shim, the agent's next call confirms that it was read. Only then is the delivery recorded.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable

import trio
from attrs import define, field

from actors import Busy, Down, NotRunning, System, ask
from intercom.agents.call import Call
from intercom.model.errors import IntercomError, NotFound
from intercom.sessions.messages import Deliver, Delivery, Undeliver, Wanted, Written

log = logging.getLogger("intercom.agents")

#: Time limit for recording deliveries, in seconds. It is tried again after a restart, so nothing is lost.
_RECORD_SECONDS = 60.0
#: How long an agent's next call waits for that record, in seconds. Past it, the call after it tries again.
_CONFIRM_SECONDS = 5.0


@define
class Deliveries:
    """The deliveries of one agent connection, by the names of calls. `_sent` holds those on their way, with the session
    of each. `_arrived` holds those whose arrival is being recorded. `_cancelled` names those abandoned after they were
    sent. `_written` holds those written without a shim, with the id of the request that each answers."""

    system: System
    _sent: dict[str, tuple[str, Delivery]] = field(factory=dict, init=False)
    _arrived: dict[str, Delivery] = field(factory=dict, init=False)
    # A dict, not a set: empty, it takes a third of the memory, and there may be thousands of connections.
    _cancelled: dict[str, None] = field(factory=dict, init=False)
    _written: dict[str, object] = field(factory=dict, init=False)

    @property
    def has_unread(self) -> bool:
        """Whether a result was written to a connection without a shim, and the agent has made no call since."""
        return bool(self._written)

    def sent(self, call: Call) -> None:
        """Note what the call's result carries; the result is on its way."""
        if call.delivery is not None:
            self._sent[call.name] = (call.session_id, call.delivery)

    def abandon(self, name: str, session_id: str | None = None) -> None:
        """Make pending again what this call's result carried: the result does not reach the client."""
        sent = self._sent.pop(name, None)
        if sent is not None:
            self._cancelled[name] = None
        owner = sent[0] if sent is not None else session_id
        if owner is not None:
            self.system.named(f"session/{owner}").tell(Undeliver((name,)))

    def written(self, name: str, request_id: object = None) -> None:
        """Note that this call's result was written to a connection without a shim, as the answer to this request. The
        agent's next call confirms that it was read."""
        if name in self._sent:
            self._written[name] = request_id
            session_id, delivery = self._sent[name]
            if delivery.instructions:
                # Told at once: the server may crash while the agent works on it for long.
                self.system.named(f"session/{session_id}").tell(Written(delivery.instructions))

    def cancelled(self, request_id: object) -> None:
        """Make pending again what answered this request: its client cancelled it, and ignores the answer."""
        # The SDK does not distinguish the ids 1 and "1" either.
        for name in [name for name, id in self._written.items() if str(id) == str(request_id)]:
            del self._written[name]
            self.lost(name)

    def lost(self, name: str) -> None:
        """Make pending again what this call's result carried: nobody received it."""
        sent = self._sent.pop(name, None)
        if sent is not None:
            self.system.named(f"session/{sent[0]}").tell(Undeliver((name,)))

    def client_restarted(self) -> None:
        """Make pending again all that is unread: the agent's client has restarted."""
        for name in self._written:
            self.lost(name)
        self._written.clear()

    async def read_all(self) -> None:
        """Record all written results as read by the agent. If that fails now, a later call tries again."""
        written, self._written = self._written, {}
        await self._confirm(written)

    def receipt(self, name: str) -> str | None:
        """Return the receipt for the shim to give back once this call's result was written; None if nothing needs a
        record. It holds everything to record, so a server that does not know the call can record it."""
        sent = self._sent.get(name)
        if sent is None:
            return None
        session_id, delivery = sent
        return receipt(session_id, delivery)

    async def delivered(self, receipts: Iterable[str]) -> tuple[str, ...]:
        """Record the results of these receipts as delivered, and return the names of their calls. Calls that were
        abandoned before are left out."""
        by_session: dict[str, list[Delivery]] = {}
        for receipt in receipts:
            session_id, delivery = read_receipt(receipt)
            if delivery.call in self._cancelled:
                # Written, but to a client that had already cancelled the call.
                del self._cancelled[delivery.call]
                continue
            self._sent.pop(delivery.call, None)
            self._arrived[delivery.call] = delivery
            by_session.setdefault(session_id, []).append(delivery)
        try:
            for session_id, deliveries in by_session.items():
                await self._record(session_id, deliveries)
        finally:
            arrived = tuple(each.call for deliveries in by_session.values() for each in deliveries)
            for name in arrived:
                self._arrived.pop(name, None)
        return arrived

    async def _record(self, session_id: str, deliveries: list[Delivery]) -> None:
        try:
            await ask(self.system.named("registry"), Wanted(session_id), timeout=_RECORD_SECONDS, retry=True)
        except NotFound:
            # Purged, or a forged receipt: there is nothing to record.
            return
        session = self.system.named(f"session/{session_id}")
        await ask(session, Deliver(tuple(deliveries)), timeout=_RECORD_SECONDS, retry=True)

    def on_its_way(self) -> frozenset[str]:
        """Return the ids of the requests and instructions that results carry to the agent now."""
        if not self._sent and not self._arrived:
            return frozenset()
        deliveries = (*self._arrived.values(), *(delivery for _, delivery in self._sent.values()))
        return frozenset(id for each in deliveries for id in (*each.requests, *each.instructions))

    async def reached(self, name: str) -> None:
        """Record that this call's result has reached its client. A failure is logged, and the next call tries again."""
        await self._confirm({name: None})

    async def _confirm(self, written: dict[str, object]) -> None:
        """Record that these calls' results were read. Shielded from the caller's cancellation. If recording fails, the
        next call tries again."""
        sent = {name: self._sent[name] for name in written if name in self._sent}
        if not sent:
            return
        is_recorded = False
        try:
            with trio.move_on_after(_CONFIRM_SECONDS, shield=True):
                await self.delivered(receipt(*each) for each in sent.values())
                is_recorded = True
        except (Busy, Down, IntercomError, NotRunning, trio.TooSlowError) as failed:
            log.warning("a delivery could not be recorded: %r", failed)
        if not is_recorded:
            self._sent |= sent
            self._written |= {name: written[name] for name in sent}

    def lose_all(self) -> None:
        """Make pending again all that was not confirmed: the connection is closed."""
        by_session: dict[str, list[str]] = {}
        for name, (session_id, _) in self._sent.items():
            by_session.setdefault(session_id, []).append(name)
        for session_id, names in by_session.items():
            self.system.named(f"session/{session_id}").tell(Undeliver(tuple(names)))
        self._sent.clear()
        self._written.clear()


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
