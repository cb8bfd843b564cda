"""The pending response to one agent request over HTTP, and whether it has been written.

Over HTTP no shim can confirm that an answer was passed on. Two signs replace it: the answer's bytes have left while its
reader was connected, and the agent has made its next call, which it does after reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import trio
from attrs import define, field

from intercom.agents.call import Call
from intercom.agents.door import Door


@define(eq=False)
class Exchange:
    """One pending response. `call` is the request's tool call, None for other requests. `streams` finds the exchange of
    a stream's answer by the id of the request."""

    door: Door
    streams: dict[str, Exchange] | None = None
    call: Call | None = field(default=None, init=False)
    #: The id of the event that stores the answer, if events are numbered; None before the answer.
    event: str | None = field(default=None, init=False)
    _stream: str | None = field(default=None, init=False)
    _answered: bool = field(default=False, init=False)
    _written: bool = field(default=False, init=False)
    _left: bool = field(default=False, init=False)
    _unheeded: bool = field(default=False, init=False)
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
            call.hurry()

    def answered(self) -> None:
        """Note that the call has its result. Its deliveries are lost if nobody is there to read it."""
        self._answered = True
        if (self._left or self._unheeded) and not self._written:
            self._lose()

    def written(self) -> None:
        """Note that the answer's last byte has left to a connected reader."""
        if not self._written:
            self._written = True
            self._forget()
            self._changed()
            if self.call is not None and not self._unheeded:
                self.door.deliveries.written(self.call.name, self._id)

    @property
    def is_written(self) -> bool:
        return self._written

    def cancelled(self) -> None:
        """Note that the client has cancelled the request. It ignores an answer that still arrives."""
        self._unheeded = True
        if self._answered and not self._written and self.call is not None:
            self.door.deliveries.lost(self.call.name)

    def leave(self) -> None:
        """Note that nobody will read the answer: its deliveries become pending again, and a waiting call ends."""
        if self._written or self._left:
            return
        self._left = True
        if self._answered:
            self._lose()
        elif self.call is not None:
            self.call.hurry()

    def hurry(self) -> None:
        """End a waiting call because the server stops."""
        if self.call is not None:
            self.call.hurry()

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
            self.door.deliveries.lost(self.call.name)

    def _forget(self) -> None:
        if self.streams is not None and self._stream is not None and self.streams.get(self._stream) is self:
            del self.streams[self._stream]


def came_by(request: Any) -> tuple[Door, Exchange | None]:
    """Return the connection of a request, and its exchange if the transport has exchanges. `request` is the request
    context that the transport gave the SDK."""
    assert request is not None, "every transport says whose a request is"
    if isinstance(request, Door):
        return request, None
    exchange: Exchange = request if isinstance(request, Exchange) else request.scope["state"]["exchange"]
    return exchange.door, exchange
