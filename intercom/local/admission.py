"""The places of a local socket: how many connections are kept, and which gives way when they are full.

Pure bookkeeping: nothing is read, sent or closed here, and no call waits. Whoever opens connections without the token
cannot keep out those who have it, and an agent, which has it too, cannot keep out the person at the terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from attrs import define, field, frozen


@frozen
class PlaceLimits:
    """How many connections are kept at once.

    `unauthenticated` have not shown the token yet. `shared` have, `watching` have and only listen from then on;
    `reserved` and `reserved_watching` more of each are kept for operators alone.
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
    """One connection's place. `close` ends the connection soon, without waiting; `operator` says whether the process at
    its other end is recognised as an operator's, and is asked only when there are too many."""

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
    """Who has a place. A connection goes through `arrive`, `authenticate`, then `begin` and `end` around each request,
    or `watch`, and finally `leave`."""

    def __init__(self, limits: PlaceLimits) -> None:
        self.limits = limits
        # In the order in which they came into their state: the first of one is the oldest, or longest idle.
        self._places: dict[_State, dict[int, Place]] = {state: {} for state in _State}

    def __len__(self) -> int:
        return sum(len(places) for places in self._places.values())

    def arrive(self, close: Callable[[], object], operator: Callable[[], bool] = lambda: False) -> Place:
        """A place for a new connection. There always is one: the oldest that has shown no token gives way, an
        operator's last."""
        waiting = self._places[_State.UNAUTHENTICATED]
        if len(waiting) >= self.limits.unauthenticated:
            places = list(waiting.values())
            self._evict(next((place for place in places if not place.is_operator), places[0]))
        place = Place(close, operator)
        waiting[id(place)] = place
        return place

    def authenticate(self, place: Place) -> bool:
        """Whether there is room for a connection that has shown the token; it counts as busy then.

        When there is none, a connection without a request under way gives way, the one that was idle longest; an
        operator's only for another operator's.
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
        """A request is under way: the connection does not give way until it is answered."""
        self._move(place, _State.BUSY)

    def end(self, place: Place) -> None:
        """The request is answered."""
        self._move(place, _State.IDLE)

    def watch(self, place: Place) -> bool:
        """Whether one more connection may watch. Watches have places of their own, and do not give way."""
        watching = len(self._places[_State.WATCHING])
        most = self.limits.watching
        if watching >= most and not (watching < most + self.limits.reserved_watching and place.is_operator):
            return False
        self._move(place, _State.WATCHING)
        return True

    def leave(self, place: Place) -> None:
        """The connection has ended; saying so twice, or of one that gave way, does no harm."""
        self._places[place._state].pop(id(place), None)

    def _move(self, place: Place, state: _State) -> None:
        self.leave(place)
        place._state = state
        self._places[state][id(place)] = place

    def _evict(self, place: Place) -> None:
        self.leave(place)
        place.close()
