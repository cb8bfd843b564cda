"""One stream of /sse: its requests, and which of their answers were written."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from attrs import define, field
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from starlette.types import Message, Send

from intercom.agents import reading
from intercom.agents.exchange import Exchange
from intercom.agents.http.connection import Connection
from intercom.agents.http.visits import Visit, Visits

_ENDPOINT = b"event: endpoint"
_MESSAGE = b"event: message"
_NAME = re.compile(rb"[?&]session_id=([0-9a-f]+)")
_DATA = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)


@define(eq=False)
class ClassicStream:
    """One stream. `name` is the SDK's name for it in the URL of /message, once the SDK has announced it."""

    visit: Visit
    visits: Visits
    connection: Connection
    name: str | None = None
    _waiting: dict[types.RequestId, Exchange] = field(factory=dict, init=False)

    @property
    def requests(self) -> int:
        """The number of requests in progress."""
        return len(self._waiting)

    async def read(self, reads: Any) -> SessionMessage | None:
        """Return the next message for the SDK's server; None at the end."""
        try:
            item = await reads.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            return None
        assert isinstance(item, SessionMessage), "what can not be read is answered before it comes here"
        if isinstance(item.message, types.JSONRPCRequest):
            return SessionMessage(item.message, self.came(item.message.id))
        if (id := reading.cancelled(item.message)) is not None:
            self._unheeded(id)
        return SessionMessage(item.message, ServerMessageMetadata(request_context=self.visit.door))

    def came(self, id: types.RequestId) -> ServerMessageMetadata:
        """Note a request. Returns its metadata for the SDK."""
        self._over(id)
        came = self._waiting[id] = self.visits.exchange(self.visit.door)

        async def unanswered() -> None:
            # A cancelled request gets no answer on this transport.
            if self._waiting.get(id) is came:
                self._over(id)

        return ServerMessageMetadata(request_context=came, on_request_unanswered=unanswered)

    def _unheeded(self, id: str | int) -> None:
        came = self._waiting.get(id)
        if came is not None:
            came.cancelled()
        else:
            self.visit.door.deliveries.unheeded(id)

    def _over(self, id: types.RequestId) -> None:
        """Drop a request and its answer."""
        came = self._waiting.pop(id, None)
        if came is not None:
            came.leave()
            self.visits.done(came)

    def close(self) -> None:
        """Drop all requests whose answers were not written: the stream is closed."""
        for id in tuple(self._waiting):
            self._over(id)

    def watched(self, send: Send) -> Send:
        """Wrap `send` for the SDK's transport, to note which answers were written."""

        async def sent(message: Message) -> None:
            data: bytes = message.get("body", b"")
            if self.name is None and data.startswith(_ENDPOINT) and (named := _NAME.search(data)) is not None:
                self.name = named[1].decode()
            id = _answered(data) if self._waiting and data.startswith(_MESSAGE) else None
            if id is None or id not in self._waiting:
                await send(message)
                return
            with self.connection.reaching(partial(self._left, id)):
                await send(message)

        return sent

    def _left(self, id: types.RequestId) -> None:
        came = self._waiting.pop(id, None)
        if came is not None:
            came.written()
            self.visits.done(came)


def _answered(event: bytes) -> types.RequestId | None:
    """Return the id of the request that this event answers; None if it is not an answer."""
    said = json.loads(b"".join(_DATA.findall(event)))
    id: types.RequestId | None = None if "method" in said else said.get("id")
    return id
