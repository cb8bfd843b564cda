"""What a session's streams have carried, for a client that comes back for what it missed (`Last-Event-ID`).

The SDK keeps one event store for all sessions and names streams by the ids of requests, which every session counts from
the same beginning. So each session has a log of its own here, and the store the SDK sees is a signpost to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar

import mcp_types as types
from attrs import define, field, frozen
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

#: How much one session's log may hold, and all of them together; the oldest goes first.
MOST_EVENTS = 256
MOST_BYTES = 2**20
ALL_BYTES = 64 * 2**20


@frozen
class Event:
    """`data` is the message's JSON, a fraction of what the message itself takes; None for what only marks a place."""

    number: int
    stream: str
    data: bytes | None

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return 64 if self.data is None else 256 + len(self.data)


@define
class Room:
    """The room that all logs share; `logs` are those that hold something, the one that was added to last at the end."""

    most: int = ALL_BYTES
    taken: int = 0
    logs: dict[int, EventLog] = field(factory=dict, init=False)

    def added(self, log: EventLog) -> None:
        """Something was added to this log. Where that is too much, the log that has had no news for longest loses its
        oldest events; of this one the newest stays."""
        self.logs.pop(id(log), None)
        self.logs[id(log)] = log
        while self.taken > self.most:
            quietest = next(iter(self.logs.values()))
            if quietest is log and len(log) == 1:
                return
            quietest.drop_oldest()

    def emptied(self, log: EventLog) -> None:
        """This log holds nothing any more."""
        self.logs.pop(id(log), None)


@define(eq=False)
class EventLog:
    """The events of one session, oldest first. `on_answer` is told the number under which an answer was put down, and
    the stream it belongs to."""

    room: Room
    on_answer: Callable[[str, str], object]
    _events: deque[Event] = field(factory=deque, init=False)
    _count: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)

    def add(self, stream: str, message: types.JSONRPCMessage | None) -> str:
        """Put an event down; its id. Once the session is over nothing is kept of it."""
        self._count += 1
        if not self._closed:
            event = Event(self._count, stream, _written(message))
            self._events.append(event)
            self._take(event.size)
            while len(self) > 1 and self._is_full():
                self.drop_oldest()
            self.room.added(self)
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self.on_answer(str(self._count), stream)
        return str(self._count)

    def after(self, event_id: str) -> tuple[str, tuple[Event, ...]] | None:
        """The stream of an event, and what came on it later. None for one that is not known (any more)."""
        known = next((event for event in self._events if str(event.number) == event_id), None)
        if known is None:
            return None
        later = (event for event in self._events if event.number > known.number and event.stream == known.stream)
        return known.stream, tuple(later)

    def __len__(self) -> int:
        return len(self._events)

    def drop_oldest(self) -> None:
        """Forget the oldest event, of which there must be one."""
        self._take(-self._events.popleft().size)
        if not self._events:
            self.room.emptied(self)

    def clear(self) -> None:
        """Forget all, for good: the session is over."""
        self._closed = True
        self._take(-self._size)
        self._events.clear()
        self.room.emptied(self)

    def _is_full(self) -> bool:
        return len(self._events) > MOST_EVENTS or self._size > MOST_BYTES

    def _take(self, size: int) -> None:
        self._size += size
        self.room.taken += size


#: The log of the session whose request is being served. A session's tasks keep that of the request that opened it.
current: ContextVar[EventLog | None] = ContextVar("intercom_http_events", default=None)


class Signpost(EventStore):
    """The event store that the SDK sees."""

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        log = current.get()
        assert log is not None, "only sessions store events, and each has its log"
        return log.add(stream_id, message)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        log = current.get()
        found = None if log is None else log.after(last_event_id)
        if found is None:
            return None
        stream, later = found
        for event in later:
            # What only marked a place says nothing.
            if event.data is not None:
                message = types.jsonrpc_message_adapter.validate_json(event.data, by_name=False)
                await send_callback(EventMessage(message, str(event.number)))
        return stream


def _written(message: types.JSONRPCMessage | None) -> bytes | None:
    """As the SDK writes it. What can not be written marks its place: the SDK can not send it either, and says so."""
    if message is None:
        return None
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        return None
