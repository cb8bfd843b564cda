"""Places of a local socket: who gives way, and who never does."""

from __future__ import annotations

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from intercom.local.server_socket import Admission, Place, PlaceLimits

LIMITS = PlaceLimits(unauthenticated=3, shared=2, reserved=2, watching=1, reserved_watching=1)


class Crowd:
    """Connections by their number, and which of them were closed for others."""

    def __init__(self, limits: PlaceLimits = LIMITS) -> None:
        self.admission = Admission(limits)
        self.closed: list[int] = []
        self.places: list[Place] = []

    def comes(self, operator: bool = False) -> int:
        number = len(self.places)
        self.places.append(self.admission.arrive(lambda: self.closed.append(number), lambda: operator))
        return number

    def enters(self, operator: bool = False) -> bool:
        place = self.places[self.comes(operator)]
        entered = self.admission.authenticate(place)
        if not entered:
            self.admission.leave(place)
        return entered

    def rests(self, number: int) -> None:
        self.admission.end(self.places[number])


def test_the_oldest_without_the_token_gives_way_to_who_comes() -> None:
    crowd = Crowd()
    for _ in range(5):
        crowd.comes()
    assert crowd.closed == [0, 1]


def test_an_operator_without_the_token_gives_way_last() -> None:
    crowd = Crowd()
    crowd.comes(operator=True)
    for _ in range(5):
        crowd.comes()
    assert crowd.closed == [1, 2, 3]


def test_who_has_the_token_does_not_give_way_to_who_has_not() -> None:
    crowd = Crowd()
    assert crowd.enters()
    crowd.rests(0)
    for _ in range(50):
        crowd.comes()
    assert 0 not in crowd.closed
    assert len(crowd.admission) <= LIMITS.total


def test_the_longest_idle_gives_way_to_who_has_the_token() -> None:
    crowd = Crowd()
    assert crowd.enters()
    assert crowd.enters()
    crowd.rests(1)
    crowd.rests(0)
    assert crowd.enters()
    assert crowd.closed == [1]


def test_agents_cannot_take_the_places_kept_for_operators() -> None:
    crowd = Crowd()
    assert [crowd.enters() for _ in range(10)] == [True, True] + [False] * 8
    assert [crowd.enters(operator=True) for _ in range(3)] == [True, True, False]
    assert crowd.closed == []


def test_an_agent_does_not_push_out_an_idle_operator() -> None:
    crowd = Crowd()
    for number in range(2):
        assert crowd.enters(operator=True)
        crowd.rests(number)
    assert not crowd.enters()
    assert crowd.closed == []


def test_watches_are_counted_apart_and_one_is_kept_for_an_operator() -> None:
    crowd = Crowd()
    took = []
    for operator in (False, False, True, True):
        place = crowd.places[crowd.comes(operator)]
        assert crowd.admission.authenticate(place)
        took.append(crowd.admission.watch(place))
        if not took[-1]:
            crowd.admission.leave(place)
    assert took == [True, False, True, False]


def test_who_has_left_is_forgotten() -> None:
    crowd = Crowd()
    for _ in range(100):
        assert crowd.enters()
        crowd.admission.leave(crowd.places[-1])
        crowd.admission.leave(crowd.places[-1])
    assert len(crowd.admission) == 0


@define(eq=False)
class _Connection:
    operator: bool
    closed: bool = False
    entered: bool = False
    watches: bool = False
    place: Place | None = field(default=None)


class AnyCrowd(RuleBasedStateMachine):
    """Whatever comes and goes, the bounds hold and nobody with a request under way is closed."""

    @initialize()
    def begin(self) -> None:
        self.admission = Admission(LIMITS)
        self.here: list[_Connection] = []

    @rule(operator=st.booleans())
    def comes(self, operator: bool) -> None:
        connection = _Connection(operator)

        def close() -> None:
            assert connection.place is not None
            connection.closed = True

        connection.place = self.admission.arrive(close, lambda: operator)
        self.here.append(connection)

    def _one(self, data: st.DataObject, *, entered: bool) -> _Connection | None:
        found = [each for each in self.here if not each.closed and each.entered is entered and not each.watches]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data())
    def shows_the_token(self, data: st.DataObject) -> None:
        one = self._one(data, entered=False)
        if one is None or one.place is None:
            return
        idle = [each for each in self.here if each.entered and not each.closed]
        one.entered = self.admission.authenticate(one.place)
        if not one.entered:
            self.admission.leave(one.place)
            one.closed = True
            # An operator is refused only when every place is an operator's or has a request under way.
            assert len(idle) >= LIMITS.shared

    @rule(data=st.data(), idle=st.booleans())
    def asks(self, data: st.DataObject, idle: bool) -> None:
        one = self._one(data, entered=True)
        if one is not None and one.place is not None:
            self.admission.begin(one.place)
            if idle:
                self.admission.end(one.place)

    @rule(data=st.data())
    def watches(self, data: st.DataObject) -> None:
        one = self._one(data, entered=True)
        if one is not None and one.place is not None:
            one.watches = self.admission.watch(one.place)

    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        found = [each for each in self.here if not each.closed]
        if found:
            one = data.draw(st.sampled_from(found))
            assert one.place is not None
            self.admission.leave(one.place)
            one.closed = True

    @invariant()
    def is_bounded(self) -> None:
        open_ = [each for each in self.here if not each.closed]
        assert len(self.admission) == len(open_) <= LIMITS.total
        others = [each for each in open_ if each.entered and not each.watches and not each.operator]
        assert len(others) <= LIMITS.shared
        assert len([each for each in open_ if each.watches and not each.operator]) <= LIMITS.watching


TestAnyCrowd = AnyCrowd.TestCase
