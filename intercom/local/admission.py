"""Admission to a local socket: how many connections are kept, and which one is closed when the limit is reached.

Pure bookkeeping without I/O or waiting. Connections without the token cannot keep out those with it. An agent, which
has the token too, cannot keep out the person at the terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from attrs import define, field, frozen


@frozen
class PlaceLimits:
    """The limits for simultaneous connections.

    `unauthenticated` connections have not sent the token yet. `shared` ones have; `watching` ones have too, and then
    only receive. `reserved` and `reserved_watching` are further places for operators only.
    """

    unauthenticated: int = 32
    shared: int = 48
    reserved: int = 16
    watching: int = 32
    reserved_watching: int = 8

    @property
    def total(self) -> int:
        return self.unauthenticated + self.shared + self.reserved + self.watching + self.reserved_watching


class _State(Enum):
    UNAUTHENTICATED = "unauthenticated"
    IDLE = "idle"
    BUSY = "busy"
    WATCHING = "watching"


@define(eq=False)
class Place:
    """The place of one connection. `close` ends the connection soon, without waiting. `operator` says whether its peer
    process is recognised as an operator's. It is called only when there are too many connections."""

    close: Callable[[], object]
    operator: Callable[[], bool]
    _state: _State = field(default=_State.UNAUTHENTICATED, init=False)
    _is_operator: bool | None = field(default=None, init=False)

    @property
    def is_operator(self) -> bool:
        if self._is_operator is None:
            self._is_operator = self.operator()
        return self._is_operator


class Admission:
    """The admitted connections. A connection calls `arrive` and `authenticate`. Then it calls `begin` and `end` around
    each request, or `watch`. At its end it calls `leave`."""

    def __init__(self, limits: PlaceLimits) -> None:
        self.limits = limits
        # Ordered by entry into the state: the first one is the oldest, or the longest idle.
        self._places: dict[_State, dict[int, Place]] = {state: {} for state in _State}

    def __len__(self) -> int:
        return sum(len(places) for places in self._places.values())

    def arrive(self, close: Callable[[], object], operator: Callable[[], bool] = lambda: False) -> Place:
        """Return a place for a new connection; this never fails. If necessary, the oldest one without the token is
        closed, an operator's last."""
        waiting = self._places[_State.UNAUTHENTICATED]
        if len(waiting) >= self.limits.unauthenticated:
            places = list(waiting.values())
            self._evict(next((place for place in places if not place.is_operator), places[0]))
        place = Place(close, operator)
        waiting[id(place)] = place
        return place

    def authenticate(self, place: Place) -> bool:
        """Whether there is room for a connection that has sent the token. It then counts as busy.

        If there is no room, the connection that was idle longest is closed. One of an operator is closed only for
        another operator's.
        """
        if place._state is not _State.UNAUTHENTICATED:
            return True
        idle = self._places[_State.IDLE]
        taken = len(idle) + len(self._places[_State.BUSY])
        if taken >= self.limits.shared and not (
            taken < self.limits.shared + self.limits.reserved and place.is_operator
        ):
            given = next((other for other in idle.values() if not other.is_operator), None)
            if given is None and place.is_operator:
                given = next(iter(idle.values()), None)
            if given is None:
                return False
            self._evict(given)
        self._move(place, _State.BUSY)
        return True

    def begin(self, place: Place) -> None:
        """Mark a request as running. The connection is not closed before the answer."""
        self._move(place, _State.BUSY)

    def end(self, place: Place) -> None:
        """Mark the request as answered."""
        self._move(place, _State.IDLE)

    def watch(self, place: Place) -> bool:
        """Whether one more connection may watch. Watches have their own places, and are never closed for others."""
        watching = len(self._places[_State.WATCHING])
        most = self.limits.watching
        if watching >= most and not (watching < most + self.limits.reserved_watching and place.is_operator):
            return False
        self._move(place, _State.WATCHING)
        return True

    def leave(self, place: Place) -> None:
        """Remove a connection that has ended. A second call, or a call after eviction, has no effect."""
        self._places[place._state].pop(id(place), None)

    def _move(self, place: Place, state: _State) -> None:
        self.leave(place)
        place._state = state
        self._places[state][id(place)] = place

    def _evict(self, place: Place) -> None:
        self.leave(place)
        place.close()
