"""/mcp: streamable HTTP for both kinds of protocol versions, with an agent connection for each request.

It uses the SDK's session manager. Version 2026-07-28 has no sessions: each POST stands alone. Older versions open a
session with `initialize`; the identity in that request holds for the whole session.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import Any

import trio
from attrs import define, field, frozen
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from intercom.agents.agent_connection import PendingResponse
from intercom.agents.http import access_rules
from intercom.agents.http.access_rules import Identity
from intercom.agents.http.http_sessions import (
    AWAY_SECONDS,
    RESUME_SECONDS,
    ConnectionFactory,
    HttpSession,
    HttpSessions,
    SessionEvents,
    current_log,
)
from intercom.web_server.http_request import Body, Refusal, read_body, remote_of, unclear, wrong_method
from intercom.web_server.server import Connection

#: The delay before a reconnect that clients are told, in milliseconds; it must be below RESUME_SECONDS.
RETRY_MILLISECONDS = 500
#: The most HTTP sessions in all.
MOST_SESSIONS = 10_000
#: How long a resumed stream may stay without an available answer, in seconds. Then it is closed, because the SDK may
#: have skipped the answer; the client gets it when it reconnects.
_STUCK_SECONDS = 1.0

#: Methods that are no part of an agent's work: to list, and to hear of changed lists.
_STATELESS_METHODS = frozenset(
    (
        "server/discover",
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "subscriptions/listen",
    )
)


@define(eq=False)
class Streamable:
    """The ASGI application for /mcp. The manager's `run` must be active while it serves."""

    server: Server[Any]
    factory: ConnectionFactory
    manager: StreamableHTTPSessionManager = field(init=False)
    application: ASGIApp = field(init=False)
    sessions: HttpSessions = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.manager = StreamableHTTPSessionManager(
            self.server,
            event_store=SessionEvents(),
            retry_interval=RETRY_MILLISECONDS,
            session_idle_timeout=AWAY_SECONDS,
            max_sessions=MOST_SESSIONS,
        )
        # Without the SDK's size limit, which copies each request: requests are read whole before they come here.
        self.application = self.manager.asgi_app.app
        self.sessions = HttpSessions(self.factory, self._end_session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "POST", "DELETE"):
            raise wrong_method("/mcp", "POST", "GET", "DELETE")
        identity = access_rules.read_identity(scope["query_string"], scope["headers"])
        body = await read_body(scope, receive, self.factory.config.http_max_request_bytes)
        if body.gone:
            return
        headers = _read_headers(scope)
        if scope["method"] == "POST" and not (headers.content_type or "").lower().startswith("application/json"):
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "mcp", "send JSON-RPC as Content-Type: application/json")
        if headers.version is not None and headers.version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._serve_alone(identity, headers.method, scope, body, send)
        elif headers.session_id is None:
            await self._open(identity, scope, body, send)
        else:
            await self._serve_within(self._session(headers.session_id, identity), headers, scope, body, send)

    # --- protocol versions without sessions --------------------------------------------------------------------------

    async def _serve_alone(self, identity: Identity, method: str | None, scope: Scope, body: Body, send: Send) -> None:
        if method in _STATELESS_METHODS:
            if method == "server/discover" and (known := self.sessions.named.get(identity)) is not None:
                known.agent.sent_results.client_restarted()
            # What a list has may differ by agent, but to list is no sign of life: nothing is counted.
            scope["state"]["exchange"] = PendingResponse(self.sessions.stranger(identity))
            await self.application(scope, body, send)
        elif identity.is_named:
            session = self.sessions.of(identity)
            session.begun(_connection(scope).processes)
            try:
                await self._respond(self.sessions.pending(session.agent), scope, body, send)
            finally:
                session.ended()
        else:
            await self._serve_anonymous(identity, scope, body, send)

    async def _respond(self, response: PendingResponse, scope: Scope, body: Body, send: Send) -> None:
        scope["state"]["exchange"] = response
        connection = _connection(scope)

        async def sent(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            with connection.reaching(response.written) if is_last and not body.gone else nullcontext():
                await send(message)

        try:
            await self.application(scope, body, sent)
        finally:
            response.leave()
            self.sessions.done(response)

    async def _serve_anonymous(self, identity: Identity, scope: Scope, body: Body, send: Send) -> None:
        with self.sessions.anonymous(identity, remote_of(scope)) as agent:
            response = self.sessions.pending(agent)
            await self._respond(response, scope, body, send)
            if response.is_written:
                # No next call could confirm it.
                await agent.sent_results.read_all()

    # --- protocol versions with sessions -----------------------------------------------------------------------------

    async def _open(self, identity: Identity, scope: Scope, body: Body, send: Send) -> None:
        """Serve a request outside a session: only `initialize` is accepted, and opens one."""
        access_rules.require_initialize(scope["method"], body.data)
        session = await self.sessions.begin(identity, remote_of(scope))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST:
                id = dict(message["headers"]).get(b"mcp-session-id")
                if id is not None:
                    self.sessions.opened(session, id.decode("latin-1"))
            await send(message)

        current_log.set(session.log)
        session.begun(_connection(scope).processes)
        try:
            await self.application(scope, body, sent)
        finally:
            session.ended()
            if session.id is None:
                self.sessions.forget(session)

    def _session(self, id: str, identity: Identity) -> HttpSession:
        """Return the session with this id. Raises Refusal if there is none, or another identity opened it."""
        session = self.sessions.sessions.get(id)
        if session is None:
            raise Refusal(
                HTTPStatus.NOT_FOUND,
                "not_found",
                "no session has this Mcp-Session-Id (any more): initialize again; an agent with its own key in the"
                " URL finds its requests again",
            )
        if identity != session.identity:
            raise unclear(
                "the URL (or the X-Intercom headers) says something else than when this session was opened: initialize"
                " again to say something else"
            )
        return session

    async def _serve_within(
        self, session: HttpSession, headers: _Headers, scope: Scope, body: Body, send: Send
    ) -> None:
        current_log.set(session.log)
        if scope["method"] == "POST":
            cancelled = access_rules.cancelled(body.data)
            if cancelled is not None:
                _note_cancelled(session, cancelled)
            await self._post(session, scope, body, send)
            if cancelled is not None:
                # The call may have begun and been answered before the SDK processed this.
                _note_cancelled(session, cancelled)
        elif scope["method"] == "GET":
            await self._listen(session, headers.last_event_id, scope, body, send)
        else:
            # A client that ends its session has read all answers.
            await session.agent.sent_results.read_all()
            await self.application(scope, body, send)
            self.sessions.forget(session, for_good=True)

    async def _post(self, session: HttpSession, scope: Scope, body: Body, send: Send) -> None:
        session.begun(_connection(scope).processes)
        response = self.sessions.pending(session.agent, session)
        scope["state"]["exchange"] = response
        try:
            await self.application(scope, body, self._watched(session, response, scope, body, send))
            await self._wait_for_reader(response)
        finally:
            response.leave()
            self.sessions.done(response)
            session.ended()

    async def _wait_for_reader(self, response: PendingResponse) -> None:
        """Wait for the client of an interrupted stream to reconnect. One that has cancelled its request does not, and
        its next request may come over the same connection."""
        while response.call is not None and not (response.is_written or response.is_left or response.is_cancelled):
            if not await response.returns_within(RESUME_SECONDS):
                return
            await response.reader_gone()

    async def _listen(self, session: HttpSession, last: str | None, scope: Scope, body: Body, send: Send) -> None:
        found = session.log.after(last) if last is not None and session.log is not None else None
        response = None if found is None else session.streams.get(found[0])
        session.begun(_connection(scope).processes)
        try:
            watched = self._watched(session, response, scope, body, send)
            if response is None:
                await self.application(scope, body, watched)
            else:
                await self._resume(response, scope, body, watched)
        finally:
            session.ended(listened=response is None)

    async def _resume(self, response: PendingResponse, scope: Scope, body: Body, send: Send) -> None:
        with response.read_again():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_when_stuck, response, nursery.cancel_scope)
                await self.application(scope, body, send)
                nursery.cancel_scope.cancel()

    def _watched(
        self, session: HttpSession, response: PendingResponse | None, scope: Scope, body: Body, send: Send
    ) -> Send:
        """Wrap `send`, to note when the answer was written, and when the SDK has ended the session."""
        connection = _connection(scope)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
                self.sessions.forget(session)
            reached: AbstractContextManager[None] = nullcontext()
            if response is not None and not body.gone and _carries(message, response.event):
                reached = connection.reaching(response.written)
            with reached:
                await send(message)

        return sent

    async def _end_session(self, id: str) -> None:
        """End a session of the SDK as its client would."""
        scope: Scope = {
            "type": "http",
            "method": "DELETE",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(b"mcp-session-id", id.encode("latin-1"))],
            "state": {},
        }

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_message: Message) -> None:
            await trio.lowlevel.checkpoint()

        await self.application(scope, receive, send)


def _note_cancelled(session: HttpSession, request_id: str | int) -> None:
    response = session.streams.get(str(request_id))
    if response is not None:
        response.cancelled()
    else:
        session.agent.sent_results.cancelled(request_id)


def _connection(scope: Scope) -> Connection:
    connection: Connection = scope["state"]["connection"]
    return connection


@frozen
class _Headers:
    """The headers that say what a request is; None if absent."""

    version: str | None = None
    method: str | None = None
    session_id: str | None = None
    last_event_id: str | None = None
    content_type: str | None = None


_FIELDS = {
    b"mcp-protocol-version": "version",
    b"mcp-method": "method",
    b"mcp-session-id": "session_id",
    b"last-event-id": "last_event_id",
    b"content-type": "content_type",
}


def _read_headers(scope: Scope) -> _Headers:
    """Read these headers. Raises Refusal for a repeated one: a later reader might use the other value."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        if (known := _FIELDS.get(name)) is not None:
            if known in found:
                raise unclear(f"the header {name.decode()} is given twice: give it once")
            found[known] = value.decode("latin-1")
    return _Headers(**found)


def _carries(message: Message, event: str | None) -> bool:
    """Whether this part of a stream is that event; each event is sent by itself."""
    return event is not None and bool(message.get("body", b"").startswith(b"id: " + event.encode() + b"\r\n"))


async def _cancel_when_stuck(response: PendingResponse, reader: trio.CancelScope) -> None:
    await response.numbered()
    await trio.sleep(_STUCK_SECONDS)
    if not response.is_written:
        reader.cancel()
