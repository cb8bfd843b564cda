"""An exchange: one request of an agent over HTTP, and whether its answer has been written to somebody.

A door over HTTP has no shim behind it that could say when an answer was passed on. What is known instead: the answer's
bytes have left while its reader was there; and that the agent made its next call, which it does when it has read.
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
    """`call` is the tool call that the request turned out to be, None for any other. `streams` is where the transport
    looks for the exchange that a stream's answer belongs to, by the request's id."""

    door: Door
    streams: dict[str, Exchange] | None = None
    call: Call | None = field(default=None, init=False)
    #: The event that carries the answer, where events are numbered; None until there is an answer.
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
        """The request is this tool call."""
        self.call = call
        self._id = request_id
        if self.streams is not None:
            self._stream = str(request_id)
            self.streams[self._stream] = self
        if self._left:
            call.hurry()

    def answered(self) -> None:
        """The call has its result, and nobody may be there to read it."""
        self._answered = True
        if (self._left or self._unheeded) and not self._written:
            self._lose()

    def written(self) -> None:
        """The answer's last byte has left, to somebody who was there."""
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
        """Its client has cancelled the request, and heeds no answer that leaves all the same."""
        self._unheeded = True
        if self._answered and not self._written and self.call is not None:
            self.door.deliveries.lost(self.call.name)

    def leave(self) -> None:
        """Nobody will read the answer: what it carries rides again, and a call that waits need not."""
        if self._written or self._left:
            return
        self._left = True
        if self._answered:
            self._lose()
        elif self.call is not None:
            self.call.hurry()

    def hurry(self) -> None:
        """The server is leaving: a call that waits is better told so."""
        if self.call is not None:
            self.call.hurry()

    def number(self, event: str) -> None:
        """The answer has been put down as this event."""
        self.event = event
        self._changed()

    async def numbered(self) -> None:
        """Wait until it has."""
        await self._change(lambda: self.event is not None)

    @property
    def is_left(self) -> bool:
        return self._left

    async def returns_within(self, seconds: float) -> bool:
        """Whether somebody comes for the answer again in this time."""
        with trio.move_on_after(seconds):
            await self._change(lambda: self._readers > 0)
            return True
        return False

    async def reader_gone(self) -> None:
        """Wait until nobody who came again for the answer is there any more, or has it."""
        await self._change(lambda: self._readers == 0 or self._written)

    @contextmanager
    def read_again(self) -> Iterator[None]:
        """For as long as somebody reads what had been left."""
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
    """The door a request came by, and its exchange where the transport has exchanges; `request` is what the transport
    told the SDK of it."""
    assert request is not None, "every transport says whose a request is"
    if isinstance(request, Door):
        return request, None
    exchange: Exchange = request if isinstance(request, Exchange) else request.scope["state"]["exchange"]
    return exchange.door, exchange
