"""/mcp: streamable HTTP for both kinds of protocol versions, with an agent connection for each request.

It uses the SDK's session manager. Version 2026-07-28 has no sessions: each POST stands alone. Older versions open a
session with `initialize`; the identity in that request holds for the whole session.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import Any

import trio
from attrs import define, field
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from intercom.agents.exchange import Exchange
from intercom.agents.http import events, identity, parsing, posted
from intercom.agents.http.body import Body, read
from intercom.agents.http.connection import Connection
from intercom.agents.http.identity import Identity
from intercom.agents.http.refusal import Refusal, unclear, wrong_method
from intercom.agents.http.visits import AWAY_SECONDS, Guests, Visit, Visits

#: How long the answer of an interrupted stream stays available for its client, in seconds.
RESUME_SECONDS = 5.0
#: The delay before a reconnect that clients are told, in milliseconds; it must be below RESUME_SECONDS.
RETRY_MILLISECONDS = 500
#: The most HTTP sessions in all.
MOST_SESSIONS = 10_000
#: How long a resumed stream may stay without an available answer, in seconds. Then it is closed, because the SDK may
#: have skipped the answer; the client gets it when it reconnects.
_STUCK_SECONDS = 1.0

#: Methods with the same answer for every client.
_PLAIN = frozenset(
    ("server/discover", "ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list")
)
_TOLD = (b"mcp-protocol-version", b"mcp-method", b"mcp-session-id", b"last-event-id", b"content-type")


@define(eq=False)
class Streamable:
    """The ASGI application for /mcp. The manager's `run` must be active while it serves."""

    server: Server[Any]
    guests: Guests
    manager: StreamableHTTPSessionManager = field(init=False)
    application: ASGIApp = field(init=False)
    visits: Visits = field(init=False)

    def __attrs_post_init__(self) -> None:
        parsing.keep_no_strings()
        self.manager = StreamableHTTPSessionManager(
            self.server,
            event_store=events.Signpost(),
            retry_interval=RETRY_MILLISECONDS,
            session_idle_timeout=AWAY_SECONDS,
            max_sessions=MOST_SESSIONS,
        )
        # Without the SDK's size limit, which copies each request: requests are read whole before they come here.
        self.application = self.manager.asgi_app.app
        self.visits = Visits(self.guests, self._end_session)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "POST", "DELETE"):
            raise wrong_method("/mcp", "POST", "GET", "DELETE")
        try:
            said = identity.read(scope["query_string"], scope["headers"])
        except identity.Unclear as fault:
            raise unclear(str(fault)) from None
        body = await read(scope, receive, self.guests.config.http_max_request_bytes)
        if body.gone:
            return
        version, method, id, last, kind = _told(scope, _TOLD)
        if scope["method"] == "POST" and not (kind or "").lower().startswith("application/json"):
            raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "mcp", "send JSON-RPC as Content-Type: application/json")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self._alone(said, method, scope, body, send)
        elif id is None:
            await self._open(said, scope, body, send)
        else:
            await self._within(id, said, last, scope, body, send)

    # --- protocol versions without sessions --------------------------------------------------------------------------

    async def _alone(self, said: Identity, method: str | None, scope: Scope, body: Body, send: Send) -> None:
        if method in _PLAIN:
            if method == "server/discover" and (known := self.visits.named.get(said)) is not None:
                known.door.deliveries.begun_anew()
            await self.application(scope, body, send)
        elif said.is_named:
            visit = self.visits.of(said)
            visit.begun(_processes(scope))
            try:
                await self._exchange(self.visits.exchange(visit.door), scope, body, send)
            finally:
                visit.ended()
        else:
            await self._nameless(said, scope, body, send)

    async def _exchange(self, exchange: Exchange, scope: Scope, body: Body, send: Send) -> None:
        scope["state"]["exchange"] = exchange
        connection: Connection = scope["state"]["connection"]

        async def sent(message: Message) -> None:
            is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
            reached = connection.reaching(exchange.written) if is_last and not body.gone else nullcontext()
            with reached:
                await send(message)

        try:
            await self.application(scope, body, sent)
        finally:
            exchange.leave()
            self.visits.done(exchange)

    async def _nameless(self, said: Identity, scope: Scope, body: Body, send: Send) -> None:
        with self.visits.nameless(said, _remote(scope)) as door:
            exchange = self.visits.exchange(door)
            await self._exchange(exchange, scope, body, send)
            if exchange.is_written:
                # No next call could confirm it.
                await door.deliveries.read_all()

    # --- protocol versions with sessions -----------------------------------------------------------------------------

    async def _open(self, said: Identity, scope: Scope, body: Body, send: Send) -> None:
        """Serve a request outside a session: only `initialize` is accepted, and opens one."""
        posted.require_initialize(scope["method"], body.data)
        visit = await self.visits.begin(said, _remote(scope))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST:
                id = dict(message["headers"]).get(b"mcp-session-id")
                if id is not None:
                    self.visits.opened(visit, id.decode("latin-1"))
            await send(message)

        events.current.set(visit.log)
        visit.begun(_processes(scope))
        try:
            await self.application(scope, body, sent)
        finally:
            visit.ended()
            if visit.id is None:
                self.visits.forget(visit)

    async def _within(self, id: str, said: Identity, last: str | None, scope: Scope, body: Body, send: Send) -> None:
        visit = self.visits.sessions.get(id)
        if visit is None:
            raise Refusal(
                HTTPStatus.NOT_FOUND,
                "not_found",
                "no session has this Mcp-Session-Id (any more): initialize anew; an agent with a key of its own in the"
                " URL finds all it left",
            )
        if said != visit.identity:
            raise unclear(
                "the URL (or the X-Intercom headers) says something else than when this session was opened: initialize"
                " anew to say something else"
            )
        events.current.set(visit.log)
        if scope["method"] == "POST":
            cancelled = posted.cancelled(body.data)
            if cancelled is not None:
                _unheeded(visit, cancelled)
            await self._post(visit, scope, body, send)
            if cancelled is not None:
                # The call may have begun and been answered before the SDK processed this.
                _unheeded(visit, cancelled)
        elif scope["method"] == "GET":
            await self._listen(visit, last, scope, body, send)
        else:
            await self._delete(visit, scope, body, send)

    async def _post(self, visit: Visit, scope: Scope, body: Body, send: Send) -> None:
        visit.begun(_processes(scope))
        exchange = self.visits.exchange(visit.door, visit)
        scope["state"]["exchange"] = exchange
        try:
            await self.application(scope, body, self._watched(visit, exchange, scope, body, send))
            await self._kept(exchange)
        finally:
            exchange.leave()
            self.visits.done(exchange)
            visit.ended()

    async def _kept(self, exchange: Exchange) -> None:
        """Wait for the client of an interrupted stream to reconnect."""
        while exchange.call is not None and not exchange.is_written and not exchange.is_left:
            if not await exchange.returns_within(RESUME_SECONDS):
                return
            await exchange.reader_gone()

    async def _listen(self, visit: Visit, last: str | None, scope: Scope, body: Body, send: Send) -> None:
        found = visit.log.after(last) if last is not None and visit.log is not None else None
        exchange = None if found is None else visit.streams.get(found[0])
        visit.begun(_processes(scope))
        try:
            watched = self._watched(visit, exchange, scope, body, send)
            if exchange is None:
                await self.application(scope, body, watched)
            else:
                await self._resume(exchange, scope, body, watched)
        finally:
            visit.ended(listened=exchange is None)

    async def _resume(self, exchange: Exchange, scope: Scope, body: Body, send: Send) -> None:
        with exchange.read_again():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_stuck, exchange, nursery.cancel_scope)
                await self.application(scope, body, send)
                nursery.cancel_scope.cancel()

    async def _delete(self, visit: Visit, scope: Scope, body: Body, send: Send) -> None:
        # A client that ends its session has read all answers.
        await visit.door.deliveries.read_all()
        await self.application(scope, body, send)
        self.visits.forget(visit, for_good=True)

    def _watched(self, visit: Visit, exchange: Exchange | None, scope: Scope, body: Body, send: Send) -> Send:
        connection: Connection = scope["state"]["connection"]

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
                # The SDK has ended the session by itself.
                self.visits.forget(visit)
            reached: AbstractContextManager[None] = nullcontext()
            if exchange is not None and not body.gone and _carries(message, exchange.event):
                reached = connection.reaching(exchange.written)
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


def _unheeded(visit: Visit, request_id: str | int) -> None:
    exchange = visit.streams.get(str(request_id))
    if exchange is not None:
        exchange.cancelled()
    else:
        visit.door.deliveries.unheeded(request_id)


def _remote(scope: Scope) -> str:
    return scope["client"][0] if scope["client"] else ""


def _processes(scope: Scope) -> frozenset[int] | None:
    """Return the processes of the client; None if they are unknown."""
    connection: Connection = scope["state"]["connection"]
    return connection.processes


def _told(scope: Scope, wanted: tuple[bytes, ...]) -> list[str | None]:
    """Return the values of these headers. Raises Refusal for a repeated one: a later reader might use the other
    value."""
    found: list[str | None] = [None] * len(wanted)
    for name, value in scope["headers"]:
        if name in wanted:
            at = wanted.index(name)
            if found[at] is not None:
                raise unclear(f"the header {name.decode()} is given twice: give it once")
            found[at] = value.decode("latin-1")
    return found


def _carries(message: Message, event: str | None) -> bool:
    """Whether this part of a stream is that event; each event is sent by itself."""
    return event is not None and bool(message.get("body", b"").startswith(b"id: " + event.encode() + b"\r\n"))


async def _until_stuck(exchange: Exchange, reader: trio.CancelScope) -> None:
    await exchange.numbered()
    await trio.sleep(_STUCK_SECONDS)
    if not exchange.is_written:
        reader.cancel()
