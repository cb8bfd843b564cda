"""The site: what is served at the port. Everybody passes the guard first; then each path has its application."""

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

#: Of the requests that are refused for one reason, one is logged in so many seconds.
LOGGED_SECONDS = 60.0
#: Finds out, before an agent's first request is served, whose processes a connection belongs to.
Look = Callable[[Connection], Awaitable[None]]

_FAILED = Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "mcp", "the server failed on this request; the fault is in its log")


@define(eq=False)
class Site:
    """The ASGI application of the whole port. `agents` are those of the paths that agents use, `pages` what else there
    is, `connections` maps a client's address to its connection. `measured` is told of every error answered."""

    rules: Rules
    agents: Mapping[str, ASGIApp]
    pages: Mapping[str, Page]
    connections: Mapping[tuple[str, int], Connection]
    look: Look
    measured: Measured
    _logged: dict[str, tuple[float, int]] = field(factory=dict, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            # A WebSocket, which nothing here speaks.
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
            # Closed while its request was on the way here.
            return
        if page is None or not page.open:
            connection.let_in()
        else:
            # Anybody may ask for it, so it earns no place.
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
        """Log a request that was refused, and not each: whoever reaches the port would fill the log, which is kept up
        to a size, and what stood in it would be gone."""
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
