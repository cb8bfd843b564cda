"""/sse and /message, the transport of older clients: the SDK's, with an agent connection for each stream.

The URL of /sse identifies the client for the whole stream. The `session_id` in the URL of /message is the SDK's: it
identifies the stream and has no relation to Intercom's sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import mcp_types as types
from attrs import asdict, define, field
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from starlette.types import Message, Receive, Scope, Send

from intercom.agents import reading
from intercom.agents.http import identity
from intercom.agents.http.body import read
from intercom.agents.http.classic_stream import ClassicStream
from intercom.agents.http.refusal import Refusal, answer, too_many, unclear, wrong_method
from intercom.agents.http.visits import REQUESTS_EACH, SESSIONS_EACH, SESSIONS_NAMELESS, Guests, Visit, Visits
from intercom.agents.message_streams import MessageReader, MessageWriter


@define(eq=False)
class Classic:
    """The ASGI applications for /sse and /message."""

    server: Server[Any]
    guests: Guests
    visits: Visits
    transport: SseServerTransport = field(init=False)
    _open: list[ClassicStream] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        limit = self.guests.config.http_max_request_bytes
        self.transport = SseServerTransport("/message", max_request_body_size=limit)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /sse: serve a connection until its stream ends."""
        if scope["method"] != "GET":
            raise wrong_method("/sse", "GET")
        try:
            said = identity.read(scope["query_string"], scope["headers"])
        except identity.Unclear as fault:
            raise unclear(str(fault)) from None
        visit = self.visits.visit(said, scope["client"][0] if scope["client"] else "")
        self._limit(visit)
        stream = ClassicStream(visit, self.visits, scope["state"]["connection"])
        self._open.append(stream)
        visit.come(stream.connection.processes)
        try:
            async with self.transport.connect_sse(scope, receive, stream.watched(send)) as (reads, writes):
                await self._converse(stream, reads, writes)
        finally:
            self._open.remove(stream)
            visit.go()

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /message: take one message for an open stream."""
        if scope["method"] != "POST":
            raise wrong_method("/message", "POST")
        body = await read(scope, receive, self.guests.config.http_max_request_bytes)
        if body.data is None:
            return
        try:
            message = reading.read(body.data)
        except reading.NotAMessage as unread:
            told = unread.answer or reading.refusal(None, types.INVALID_REQUEST, "not a JSON-RPC 2.0 message")
            data = told.model_dump_json(by_alias=True, exclude_unset=True).encode()
            await answer(send, HTTPStatus.BAD_REQUEST, b"application/json", data)
            return
        stream = self._stream(scope["query_string"])
        if stream is not None:
            _require_alike(stream.visit.identity, scope["headers"])
            if isinstance(message, types.JSONRPCRequest) and stream.requests >= REQUESTS_EACH:
                raise too_many(f"this stream has {REQUESTS_EACH} requests under way: wait for some of them")
        await self.transport.handle_post_message(scope, body, _as_refusals(send))

    def _stream(self, query: bytes) -> ClassicStream | None:
        """Return the stream of a message, or None, for which the SDK sends the error."""
        name = dict(parse_qsl(query.decode("latin-1"))).get("session_id")
        return next((stream for stream in self._open if name is not None and stream.name == name), None)

    async def _converse(self, stream: ClassicStream, reads: Any, writes: Any) -> None:
        try:
            options = self.server.create_initialization_options()
            await self.server.run(MessageReader(partial(stream.read, reads)), MessageWriter(writes.send), options)
        finally:
            stream.close()
            await writes.aclose()
            await reads.aclose()

    def _limit(self, visit: Visit) -> None:
        named = visit.identity.is_named
        same: Iterable[Visit] = (
            other
            for other in (stream.visit for stream in self._open)
            if (other.identity == visit.identity if named else not other.identity.is_named)
            and (named or other.remote == visit.remote)
        )
        most = SESSIONS_EACH if named else SESSIONS_NAMELESS
        if sum(1 for _ in same) >= most:
            raise too_many(f"this client has {most} streams open: close some of them")


def _require_alike(opened: identity.Identity, headers: identity.Headers) -> None:
    """Raise Refusal if a message's headers contradict those that opened its stream."""
    try:
        said = identity.read(b"", headers)
    except identity.Unclear as fault:
        raise unclear(str(fault)) from None
    if any(value is not None and value != getattr(opened, name) for name, value in asdict(said).items()):
        raise unclear("the X-Intercom headers say something else than when this stream was opened: open another")


def _as_refusals(send: Send) -> Send:
    """Wrap `send` for an application with plain text errors, which become refusals like all others."""
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
