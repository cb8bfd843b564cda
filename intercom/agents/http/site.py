"""The ASGI application of the port: it applies the access rules, and then routes by path."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import trio
from attrs import define, field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from intercom.agents.http.connection import Connection
from intercom.agents.http.guard import Rules
from intercom.agents.http.refusal import Refusal, answer, unknown_path, wrong_method
from intercom.model.measure import HttpFailed, Measured
from intercom.model.page import Page

log = logging.getLogger("intercom.http")

#: The shortest time between two log lines about requests refused for the same reason, in seconds.
LOGGED_SECONDS = 60.0
#: Finds the processes of a connection, before its first request is served.
Look = Callable[[Connection], Awaitable[None]]

_FAILED = Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "mcp", "the server failed on this request; the fault is in its log")


@define(eq=False)
class Site:
    """The ASGI application of the whole port. `agents` are the applications of the agents' paths, and `pages` all other
    pages. `connections` maps a client's address to its connection. `measured` gets every error response."""

    rules: Rules
    agents: Mapping[str, ASGIApp]
    pages: Mapping[str, Page]
    connections: Mapping[tuple[str, int], Connection]
    look: Look
    measured: Measured
    _logged: dict[str, tuple[float, int]] = field(factory=dict, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # A WebSocket, which is not supported.
            await send({"type": "websocket.close"})
            return
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
                self.measured(HttpFailed(message["status"]))
            await send(message)

        try:
            await self._serve(scope, receive, sent)
        except* Refusal as refused:
            if not begun:
                await _first(refused).send(sent)
        except* Exception:
            log.exception("a request to %s failed", scope["path"][:200])
            if not begun:
                await _FAILED.send(sent)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        page = self.pages.get(path)
        refused = self.rules.refuse(scope["headers"], open=page is not None and page.open)
        if refused is not None:
            self._log_refused(path, refused.code)
            raise refused
        connection = self.connections.get(tuple(scope["client"] or ()))
        if connection is None:
            # The connection closed before its request got here.
            return
        if page is None or not page.open:
            connection.let_in()
        else:
            # Open pages do not prove a token, so the connection stays limited.
            connection.answered = True
        if page is not None:
            await _show(page, scope, send)
            return
        application = self.agents.get(path)
        if application is None:
            raise unknown_path(path, (*self.agents, *self.pages))
        if connection.processes is None:
            await self.look(connection)
        scope["state"]["connection"] = connection
        await application(scope, receive, send)

    def _log_refused(self, path: str, code: str) -> None:
        """Log a refused request, with a rate limit: otherwise any client could push older lines out of the limited
        log."""
        now = trio.current_time()
        at, more = self._logged.get(code, (-math.inf, 0))
        if now - at < LOGGED_SECONDS:
            self._logged[code] = (at, more + 1)
            return
        self._logged[code] = (now, 0)
        shown = path[:200].encode("unicode_escape").decode()
        log.warning("a request to %s was refused: %s%s", shown, code, f"; {more} more before it" if more else "")


async def _show(page: Page, scope: Scope, send: Send) -> None:
    if scope["method"] not in ("GET", "HEAD"):
        raise wrong_method(page.path, "GET", "HEAD")
    said = await page.answer()
    await answer(send, said.status, said.media_type.encode(), said.body)


def _first(group: BaseExceptionGroup[Any]) -> Refusal:
    one: BaseException = group
    while isinstance(one, BaseExceptionGroup):
        one = one.exceptions[0]
    assert isinstance(one, Refusal)
    return one


def by_path(pages: Iterable[Page]) -> dict[str, Page]:
    return {page.path: page for page in pages}
