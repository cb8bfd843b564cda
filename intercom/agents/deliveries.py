"""What the results of one connection carry to its agents, until it is known to have arrived, or to be lost.

A result that carries a verdict or words leaves; a shim gives its receipt back once that was written to the client, and
over a connection without a shim the agent's next call says that it was read. Only then it is on record as delivered.
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
from intercom.sessions.messages import Deliver, Delivery, Undeliver, Written
from intercom.sessions.reception_messages import Wanted

log = logging.getLogger("intercom.agents")

#: How long a record of what reached the client may take; it is asked again after a restart, so nothing is lost by it.
_RECORD_SECONDS = 60.0
#: How long an agent's next call waits for that; then it goes on, and the one after it sees to the record.
_CONFIRM_SECONDS = 5.0


@define
class Deliveries:
    """By the names of calls: those sent with the session of each, those whose arrival is being recorded, those that
    were abandoned once sent, and those written over a connection without a shim, with the request each answers."""

    system: System
    _sent: dict[str, tuple[str, Delivery]] = field(factory=dict, init=False)
    _arrived: dict[str, Delivery] = field(factory=dict, init=False)
    # No set: an empty dict is a third of an empty one, and there may be thousands of connections.
    _unheeded: dict[str, None] = field(factory=dict, init=False)
    _written: dict[str, object] = field(factory=dict, init=False)

    @property
    def has_unread(self) -> bool:
        """Whether something was written over a connection without a shim, and the agent has made no call since."""
        return bool(self._written)

    def sent(self, call: Call) -> None:
        """The call's result is on its way: note what it carries."""
        if call.delivery is not None:
            self._sent[call.name] = (call.session_id, call.delivery)

    def abandon(self, name: str, session_id: str | None = None) -> None:
        """This call's result does not reach the client: what rode on it rides again."""
        sent = self._sent.pop(name, None)
        if sent is not None:
            self._unheeded[name] = None
        owner = sent[0] if sent is not None else session_id
        if owner is not None:
            self.system.named(f"session/{owner}").tell(Undeliver((name,)))

    def written(self, name: str, request_id: object = None) -> None:
        """This call's result has been written to a connection without a shim, as the answer to this request; the
        agent's next call says that it was read."""
        if name in self._sent:
            self._written[name] = request_id
            session_id, delivery = self._sent[name]
            if delivery.instructions:
                # At once: the server may fall, and the agent work on it for long.
                self.system.named(f"session/{session_id}").tell(Written(delivery.instructions))

    def unheeded(self, request_id: object) -> None:
        """The client has cancelled a request whose answer may have been written to it: nobody heeds that."""
        # The SDK does not tell the ids 1 and "1" apart either.
        for name in [name for name, id in self._written.items() if str(id) == str(request_id)]:
            del self._written[name]
            self.lost(name)

    def lost(self, name: str) -> None:
        """This call's result was written to nobody: what it carries rides again."""
        sent = self._sent.pop(name, None)
        if sent is not None:
            self.system.named(f"session/{sent[0]}").tell(Undeliver((name,)))

    def begun_anew(self) -> None:
        """The agent's client has started again: what was written to the one before may not have been read."""
        for name in self._written:
            self.lost(name)
        self._written.clear()

    async def read_all(self) -> None:
        """The agent has read what was written to it; on record when this returns, where that is possible now."""
        written, self._written = self._written, {}
        await self._confirm(written)

    def receipt(self, name: str) -> str | None:
        """What the shim gives back once this call's result was written to the client; None when that matters to nobody.

        It says all that has to be put on record, so that a server that knows nothing of the call any more can do it.
        """
        sent = self._sent.get(name)
        if sent is None:
            return None
        session_id, delivery = sent
        return receipt(session_id, delivery)

    async def delivered(self, receipts: Iterable[str]) -> tuple[str, ...]:
        """The results of these receipts were written to the client; on record when this returns the names of their
        calls, except for calls that were abandoned before."""
        by_session: dict[str, list[Delivery]] = {}
        for receipt in receipts:
            session_id, delivery = read_receipt(receipt)
            if delivery.call in self._unheeded:
                # Written, but to a client that had cancelled the call by then.
                del self._unheeded[delivery.call]
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
            await ask(self.system.named("reception"), Wanted(session_id), timeout=_RECORD_SECONDS, retry=True)
        except NotFound:
            # Purged, or made up: there is nothing to put on record.
            return
        session = self.system.named(f"session/{session_id}")
        await ask(session, Deliver(tuple(deliveries)), timeout=_RECORD_SECONDS, retry=True)

    def on_its_way(self) -> frozenset[str]:
        """What results carry to the agent at this moment, by its ids."""
        if not self._sent and not self._arrived:
            return frozenset()
        deliveries = (*self._arrived.values(), *(delivery for _, delivery in self._sent.values()))
        return frozenset(id for each in deliveries for id in (*each.requests, *each.instructions))

    async def reached(self, name: str) -> None:
        """This call's result has reached its client for certain. That is put on record; where it can not be now, the
        client has its answer all the same."""
        await self._confirm({name: None})

    async def _confirm(self, written: dict[str, object]) -> None:
        """Put on record that these calls' results were read: whole, although the caller goes, or at the next call."""
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
        """The connection is gone: what was not confirmed rides again."""
        by_session: dict[str, list[str]] = {}
        for name, (session_id, _) in self._sent.items():
            by_session.setdefault(session_id, []).append(name)
        for session_id, names in by_session.items():
            self.system.named(f"session/{session_id}").tell(Undeliver(tuple(names)))
        self._sent.clear()
        self._written.clear()


def receipt(session_id: str, delivery: Delivery) -> str:
    """What a client's side gives back once it has been told all this."""
    return json.dumps([session_id, delivery.call, delivery.requests, delivery.instructions])


def read_receipt(text: str) -> tuple[str, Delivery]:
    """What a receipt tells; of no session and no call, where it is none."""
    try:
        session_id, call, requests, instructions = json.loads(text)
        return str(session_id), Delivery(str(call), tuple(map(str, requests)), tuple(map(str, instructions)))
    except (ValueError, TypeError):
        return "", Delivery("")
