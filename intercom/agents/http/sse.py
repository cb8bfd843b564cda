"""/sse and /message: the transport of older clients, by the SDK's, with an agent connection behind each stream.

The URL of /sse identifies the client for the whole stream. The `session_id` in the URL of /message is the SDK's: it
identifies the stream and has no relation to Intercom's sessions.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import anyio
import mcp_types as types
from attrs import asdict, define, field
from mcp.server import Server
from mcp.server.sse import SseServerTransport
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from starlette.types import Message, Receive, Scope, Send

from intercom.agents import message_stream
from intercom.agents.agent_connection import PendingResponse
from intercom.agents.http import access_rules
from intercom.agents.http.access_rules import rpc_form
from intercom.agents.http.http_sessions import (
    REQUESTS_EACH,
    ConnectionFactory,
    HttpSession,
    HttpSessions,
    Owner,
    most_of,
    owner_of,
)
from intercom.agents.message_stream import run
from intercom.web_server.http_request import (
    Headers,
    Refusal,
    answer,
    read_body,
    remote_of,
    too_many,
    unclear,
    wrong_method,
)
from intercom.web_server.server import Connection

_ENDPOINT = b"event: endpoint"
_MESSAGE = b"event: message"
_NAME = re.compile(rb"[?&]session_id=([0-9a-f]+)")
_DATA = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)


@define(eq=False)
class SseStream:
    """One stream. `name` is the SDK's name for it in the URL of /message, once the SDK has announced it; then it is
    listed in `by_name`."""

    session: HttpSession
    sessions: HttpSessions
    connection: Connection
    by_name: dict[str, SseStream] = field(factory=dict)
    name: str | None = None
    _waiting: dict[types.RequestId, PendingResponse] = field(factory=dict, init=False)

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
        assert isinstance(item, SessionMessage), "what cannot be read is answered before it comes here"
        if isinstance(item.message, types.JSONRPCRequest):
            return SessionMessage(item.message, self.came(item.message.id))
        if (id := message_stream.cancelled(item.message)) is not None:
            self._cancelled(id)
        return SessionMessage(item.message, ServerMessageMetadata(request_context=self.session.agent))

    def came(self, id: types.RequestId) -> ServerMessageMetadata:
        """Note a request. Returns its metadata for the SDK."""
        self._drop(id)
        came = self._waiting[id] = self.sessions.pending(self.session.agent)

        async def unanswered() -> None:
            # A cancelled request gets no answer on this transport.
            if self._waiting.get(id) is came:
                self._drop(id)

        return ServerMessageMetadata(request_context=came, on_request_unanswered=unanswered)

    def _cancelled(self, id: str | int) -> None:
        came = self._waiting.get(id)
        if came is not None:
            came.cancelled()
        else:
            self.session.agent.sent_results.cancelled(id)

    def _drop(self, id: types.RequestId) -> None:
        """Drop a request and its answer."""
        came = self._waiting.pop(id, None)
        if came is not None:
            came.leave()
            self.sessions.done(came)

    def close(self) -> None:
        """Drop all requests whose answers were not written: the stream is closed."""
        for id in tuple(self._waiting):
            self._drop(id)
        if self.name is not None:
            self.by_name.pop(self.name, None)

    def watched(self, send: Send) -> Send:
        """Wrap `send` for the SDK's transport, to note which answers were written."""

        async def sent(message: Message) -> None:
            data: bytes = message.get("body", b"")
            if self.name is None and data.startswith(_ENDPOINT) and (named := _NAME.search(data)) is not None:
                self.name = named[1].decode()
                self.by_name[self.name] = self
            id = _answered(data) if self._waiting and data.startswith(_MESSAGE) else None
            if id is None or id not in self._waiting:
                await send(message)
                return
            with self.connection.reaching(partial(self._written, id)):
                await send(message)

        return sent

    def _written(self, id: types.RequestId) -> None:
        came = self._waiting.pop(id, None)
        if came is not None:
            came.written()
            self.sessions.done(came)


def _answered(event: bytes) -> types.RequestId | None:
    """Return the id of the request that this event answers; None if it is not an answer."""
    said = json.loads(b"".join(_DATA.findall(event)))
    id: types.RequestId | None = None if "method" in said else said.get("id")
    return id


@define(eq=False)
class SseTransport:
    """The ASGI applications for /sse and /message."""

    server: Server[Any]
    factory: ConnectionFactory
    sessions: HttpSessions
    transport: SseServerTransport = field(init=False)
    _by_name: dict[str, SseStream] = field(factory=dict, init=False)
    _owned: Counter[Owner] = field(factory=Counter, init=False)

    def __attrs_post_init__(self) -> None:
        limit = self.factory.config.http_max_request_bytes
        self.transport = SseServerTransport("/message", max_request_body_size=limit)

    async def stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET /sse: serve a connection until its stream ends."""
        if scope["method"] != "GET":
            raise wrong_method("/sse", "GET")
        identity = access_rules.read_identity(scope["query_string"], scope["headers"])
        remote = remote_of(scope)
        owner, most = owner_of(identity, remote), most_of(identity)
        if self._owned[owner] >= most:
            raise too_many(f"this client has {most} streams open: close some of them")
        session = self.sessions.new(identity, remote)
        stream = SseStream(session, self.sessions, scope["state"]["connection"], self._by_name)
        self._owned[owner] += 1
        session.come(stream.connection.processes)
        try:
            async with self.transport.connect_sse(scope, receive, stream.watched(send)) as (reads, writes):
                await self._converse(stream, reads, writes)
        finally:
            self._owned[owner] -= 1
            if not self._owned[owner]:
                del self._owned[owner]
            stream.close()
            session.go()

    async def message(self, scope: Scope, receive: Receive, send: Send) -> None:
        """POST /message: take one message for an open stream."""
        if scope["method"] != "POST":
            raise wrong_method("/message", "POST")
        body = await read_body(scope, receive, self.factory.config.http_max_request_bytes)
        if body.data is None:
            return
        try:
            message = message_stream.read(body.data)
        except message_stream.NotAMessage as unread:
            data = access_rules.fault_of(unread).model_dump_json(by_alias=True, exclude_unset=True).encode()
            await answer(send, HTTPStatus.BAD_REQUEST, b"application/json", data)
            return
        stream = self._stream(scope["query_string"])
        if stream is not None:
            _require_alike(stream.session.identity, scope["headers"])
            if isinstance(message, types.JSONRPCRequest) and stream.requests >= REQUESTS_EACH:
                raise too_many(f"this stream has {REQUESTS_EACH} requests under way: wait for some of them")
        await self.transport.handle_post_message(scope, body, _as_refusals(send))

    def _stream(self, query: bytes) -> SseStream | None:
        """Return the stream of a message, or None, for which the SDK sends the error."""
        return self._by_name.get(dict(parse_qsl(query.decode("latin-1"))).get("session_id", ""))

    async def _converse(self, stream: SseStream, reads: Any, writes: Any) -> None:
        try:
            await run(self.server, partial(stream.read, reads), writes.send)
        finally:
            stream.close()
            await writes.aclose()
            await reads.aclose()


def _require_alike(opened: access_rules.Identity, headers: Headers) -> None:
    """Raise Refusal if a message's headers contradict those that opened its stream."""
    said = access_rules.read_identity(b"", headers)
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
            await Refusal(failed, code, said).send(send, rpc_form)

    return sent
