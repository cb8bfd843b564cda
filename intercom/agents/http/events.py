"""The events of a session's streams, for a client that reconnects with `Last-Event-ID`.

The SDK has one event store for all sessions. It identifies streams by request ids, which every session counts from the
same start. So each session has its own log here, and `Signpost`, the SDK's store, finds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar

import mcp_types as types
from attrs import define, field, frozen
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore

#: The limits of one session's log, in events and bytes, and of all logs, in bytes. The oldest events go first.
MOST_EVENTS = 256
MOST_BYTES = 2**20
ALL_BYTES = 64 * 2**20


@frozen
class Event:
    """One event. `data` is the message's JSON, much smaller than the message object; None if the event only marks a
    place."""

    number: int
    stream: str
    data: bytes | None

    @property
    def size(self) -> int:
        """The approximate size in memory, in bytes."""
        return 64 if self.data is None else 256 + len(self.data)


@define
class Room:
    """The memory that all logs share. `logs` holds the non-empty logs, the most recently changed last."""

    most: int = ALL_BYTES
    taken: int = 0
    logs: dict[int, EventLog] = field(factory=dict, init=False)

    def added(self, log: EventLog) -> None:
        """Count a change of this log, and enforce the limit. The least recently changed logs lose their oldest events
        first. The newest event of this log always stays."""
        self.logs.pop(id(log), None)
        self.logs[id(log)] = log
        while self.taken > self.most:
            quietest = next(iter(self.logs.values()))
            if quietest is log and len(log) == 1:
                return
            quietest.drop_oldest()

    def emptied(self, log: EventLog) -> None:
        """Drop a log that is empty."""
        self.logs.pop(id(log), None)


@define(eq=False)
class EventLog:
    """The events of one session, oldest first. `on_answer` gets each answer's event id and its stream."""

    room: Room
    on_answer: Callable[[str, str], object]
    _events: deque[Event] = field(factory=deque, init=False)
    _count: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _closed: bool = field(default=False, init=False)

    def add(self, stream: str, message: types.JSONRPCMessage | None) -> str:
        """Add an event and return its id. After `clear` nothing is stored."""
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
        """Return the stream of an event and its later events; None for an unknown or dropped event."""
        known = next((event for event in self._events if str(event.number) == event_id), None)
        if known is None:
            return None
        later = (event for event in self._events if event.number > known.number and event.stream == known.stream)
        return known.stream, tuple(later)

    def __len__(self) -> int:
        return len(self._events)

    def drop_oldest(self) -> None:
        """Drop the oldest event. The log must not be empty."""
        self._take(-self._events.popleft().size)
        if not self._events:
            self.room.emptied(self)

    def clear(self) -> None:
        """Drop all events and store no more: the session is over."""
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
    """The SDK's event store, which uses the log of the current session."""

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
            # Events without data only mark a place.
            if event.data is not None:
                message = types.jsonrpc_message_adapter.validate_json(event.data, by_name=False)
                await send_callback(EventMessage(message, str(event.number)))
        return stream


def _written(message: types.JSONRPCMessage | None) -> bytes | None:
    """Return a message as the SDK writes it; None if that fails. The SDK cannot send it either, and reports that."""
    if message is None:
        return None
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()
    except ValueError:
        return None
