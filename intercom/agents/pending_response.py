"""A pending response: one request of an agent over HTTP, and whether its answer was written to somebody.

Over HTTP no shim can confirm that an answer was passed on. Two signs replace it: the answer's bytes have left while its
reader was connected, and the agent has made its next call, which it does after reading.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import trio
from attrs import define, field
from mcp.server.context import ServerRequestContext

from intercom.agents.call import Call, note
from intercom.agents.connection import AgentConnection, Caller
from intercom.sessions.tools.tool import Tool


@define(eq=False)
class PendingResponse:
    """One pending response. `call` is the request's tool call, None for other requests. `streams` finds the response of
    a stream's answer by the id of the request."""

    connection: AgentConnection
    streams: dict[str, PendingResponse] | None = None
    call: Call | None = field(default=None, init=False)
    #: The id of the event that stores the answer, if events are numbered; None before the answer.
    event: str | None = field(default=None, init=False)
    _stream: str | None = field(default=None, init=False)
    _answered: bool = field(default=False, init=False)
    _written: bool = field(default=False, init=False)
    _left: bool = field(default=False, init=False)
    _cancelled: bool = field(default=False, init=False)
    _id: object = field(default=None, init=False)
    _readers: int = field(default=0, init=False)
    _news: trio.Event | None = field(default=None, init=False)

    def begun(self, call: Call, request_id: object) -> None:
        """Note that the request is this tool call."""
        self.call = call
        self._id = request_id
        if self.streams is not None:
            self._stream = str(request_id)
            self.streams[self._stream] = self
        if self._left:
            call.stop_waiting()

    def answered(self) -> None:
        """Note that the call has its result. Its deliveries are lost if nobody is there to read it."""
        self._answered = True
        if (self._left or self._cancelled) and not self._written:
            self._lose()

    def written(self) -> None:
        """Note that the answer's last byte has left to a connected reader."""
        if not self._written:
            self._written = True
            self._forget()
            self._changed()
            if self.call is not None and not self._cancelled:
                self.connection.deliveries.written(self.call.name, self._id)

    @property
    def is_written(self) -> bool:
        return self._written

    def cancelled(self) -> None:
        """Note that the client has cancelled the request. It ignores an answer that still arrives."""
        self._cancelled = True
        if self._answered and not self._written and self.call is not None:
            self.connection.deliveries.lost(self.call.name)

    def leave(self) -> None:
        """Note that nobody will read the answer: its deliveries become pending again, and a waiting call ends."""
        if self._written or self._left:
            return
        self._left = True
        if self._answered:
            self._lose()
        elif self.call is not None:
            self.call.stop_waiting()

    def stop_waiting(self) -> None:
        """End a waiting call because the server stops."""
        if self.call is not None:
            self.call.stop_waiting()

    def number(self, event: str) -> None:
        """Note the id of the event that stores the answer."""
        self.event = event
        self._changed()

    async def numbered(self) -> None:
        """Wait for that event id."""
        await self._change(lambda: self.event is not None)

    @property
    def is_left(self) -> bool:
        return self._left

    async def returns_within(self, seconds: float) -> bool:
        """Wait for a new reader of the answer, at most this time. Returns whether one came."""
        with trio.move_on_after(seconds):
            await self._change(lambda: self._readers > 0)
            return True
        return False

    async def reader_gone(self) -> None:
        """Wait until no new reader is connected, or the answer is written."""
        await self._change(lambda: self._readers == 0 or self._written)

    @contextmanager
    def read_again(self) -> Iterator[None]:
        """Count a new reader of an abandoned answer during the `with` block."""
        self._readers += 1
        self._changed()
        try:
            yield
        finally:
            self._readers -= 1
            self._changed()

    async def _change(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            if self._news is None:
                self._news = trio.Event()
            await self._news.wait()

    def _changed(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def _lose(self) -> None:
        self._forget()
        if self.call is not None:
            self.connection.deliveries.lost(self.call.name)

    def _forget(self) -> None:
        if self.streams is not None and self._stream is not None and self.streams.get(self._stream) is self:
            del self.streams[self._stream]


def came_by(ctx: ServerRequestContext[Any, Any]) -> tuple[AgentConnection, PendingResponse | None]:
    """Return the connection of a request, and its pending response if the transport has them."""
    request = ctx.request
    assert request is not None, "every transport says whose a request is"
    if isinstance(request, AgentConnection):
        return request, None
    response: PendingResponse = request if isinstance(request, PendingResponse) else request.scope["state"]["exchange"]
    return response.connection, response


@asynccontextmanager
async def answering(ctx: ServerRequestContext[Any, Any], tool: Tool, given: Any, caller: Caller) -> AsyncIterator[Call]:
    """Open the tool call of this request, which the `with` block answers. Then what its result carries is on its way;
    if the block fails or is cancelled, there is no result, and that is pending again."""
    connection, response = came_by(ctx)
    call = await connection.open_call(tool, given, caller)
    note(call.session_id, getattr(given, "request_id", None))
    if response is not None:
        response.begun(call, ctx.request_id)
    try:
        yield call
        # The call may be cancelled just after its answer: the SDK then sends no result.
        await trio.lowlevel.checkpoint_if_cancelled()
        connection.close_call(call)
    except BaseException:
        connection.deliveries.abandon(call.name, call.session_id)
        raise
    finally:
        if response is not None:
            response.answered()
