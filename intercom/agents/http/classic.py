"""/sse and /message: the transport of older clients, by the SDK's, with a door behind each stream.

What a client says of itself stands in the URL of /sse and holds as long as the stream. The `session_id` that the SDK
puts into the URL of /message is its own: it names the stream, and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import anyio
import mcp_types as types
from attrs import define, field
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from starlette.types import Message, Receive, Scope, Send

from intercom.agents import reading
from intercom.agents.exchange import Exchange
from intercom.agents.http import identity
from intercom.agents.http.body import read
from intercom.agents.http.refusal import Refusal, answer, too_many, unclear, wrong_method
from intercom.agents.http.visits import SESSIONS_EACH, SESSIONS_NAMELESS, Guests, Visit, Visits
from intercom.agents.message_streams import MessageReader, MessageWriter


@define(eq=False)
class Classic:
    """The ASGI applications for /sse and /message."""

    server: Server[Any]
    guests: Guests
    visits: Visits
    transport: SseServerTransport = field(init=False)
    _open: list[Visit] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        limit = self.guests.config.http_max_request_bytes
        self.transport = SseServerTransport("/message", max_request_body_size=limit)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /sse: a connection, for as long as its stream is read."""
        if scope["method"] != "GET":
            raise wrong_method("/sse", "GET")
        try:
            said = identity.read(scope["query_string"], scope["headers"])
        except identity.Unclear as fault:
            raise unclear(str(fault)) from None
        visit = self.visits.visit(said, scope["client"][0] if scope["client"] else "")
        self._limit(visit)
        self._open.append(visit)
        visit.come()
        try:
            async with self.transport.connect_sse(scope, receive, send) as (reads, writes):
                await self._converse(visit, reads, writes)
        finally:
            self._open.remove(visit)
            visit.go()

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /message: one message for a stream that is open."""
        if scope["method"] != "POST":
            raise wrong_method("/message", "POST")
        body = await read(scope, receive, self.guests.config.http_max_request_bytes)
        if body.data is None:
            return
        try:
            reading.read(body.data)
        except reading.NotAMessage as unread:
            told = unread.answer or reading.refusal(None, types.INVALID_REQUEST, "not a JSON-RPC 2.0 message")
            data = told.model_dump_json(by_alias=True, exclude_unset=True).encode()
            await answer(send, HTTPStatus.BAD_REQUEST, b"application/json", data)
            return
        await self.transport.handle_post_message(scope, body, _as_refusals(send))

    async def _converse(self, visit: Visit, reads: Any, writes: Any) -> None:
        waiting: dict[types.RequestId, Exchange] = {}

        async def read() -> SessionMessage | None:
            try:
                item = await reads.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                return None
            assert isinstance(item, SessionMessage), "what can not be read is answered before it comes here"
            came: Exchange | None = None
            if isinstance(item.message, types.JSONRPCRequest):
                came = waiting[item.message.id] = self.visits.exchange(visit.door)
            return SessionMessage(item.message, ServerMessageMetadata(request_context=came or visit.door))

        async def write(sent: SessionMessage) -> None:
            await writes.send(sent)
            if isinstance(sent.message, types.JSONRPCResponse | types.JSONRPCError) and sent.message.id is not None:
                came = waiting.pop(sent.message.id, None)
                if came is not None:
                    came.written()
                    self.visits.done(came)

        try:
            options = self.server.create_initialization_options()
            await self.server.run(MessageReader(read), MessageWriter(write), options)
        finally:
            for came in waiting.values():
                came.leave()
                self.visits.done(came)
            await writes.aclose()
            await reads.aclose()

    def _limit(self, visit: Visit) -> None:
        named = visit.identity.is_named
        same: Iterable[Visit] = (
            other
            for other in self._open
            if (other.identity == visit.identity if named else not other.identity.is_named)
            and (named or other.remote == visit.remote)
        )
        most = SESSIONS_EACH if named else SESSIONS_NAMELESS
        if sum(1 for _ in same) >= most:
            raise too_many(f"this client has {most} streams open: close some of them")


def _as_refusals(send: Send) -> Send:
    """`send` for an application whose errors are plain text: they become refusals as all others are."""
    failed: HTTPStatus | None = None

    async def sent(message: Message) -> None:
        nonlocal failed
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            failed = HTTPStatus(message["status"])
        elif failed is None:
            await send(message)
        elif message["type"] == "http.response.body":
            code = "not_found" if failed is HTTPStatus.NOT_FOUND else "invalid_arguments"
            text = message.get("body", b"").decode("utf-8", "replace")
            said = f"{text[:1].lower()}{text[1:]}: open a stream with GET /sse, and post to the URL that it names"
            await Refusal(failed, code, said).send(send)

    return sent
