"""The rules of supervisors, without a task or a clock: by table, and by a machine against a model."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors import Backoff, Restart, Strategy
from actors._restart_rules import (
    Child,
    Due,
    Event,
    Exited,
    GiveUp,
    Phase,
    Start,
    Started,
    StartFailed,
    State,
    Stop,
    Wait,
    decide,
)

UP, DOWN, WAITING, GONE = Phase.UP, Phase.DOWN, Phase.WAITING, Phase.GONE
FALL = Exited("b", crashed=True)


def three(strategy: Strategy, *phases: Phase, **rules: object) -> State:
    """Children a, b, c in the given phases (up, unless said)."""
    children = tuple(
        Child(name, phase=phase, up_at=0.0 if phase is UP else None)
        for name, phase in zip("abc", phases or (UP, UP, UP), strict=True)
    )
    return State(children, strategy, **rules)  # type: ignore[arg-type]


ONE, ALL, REST = Strategy.ONE_FOR_ONE, Strategy.ONE_FOR_ALL, Strategy.REST_FOR_ONE
a, b, c = Start("a"), Start("b"), Start("c")
BACKOFF = Backoff(initial=2, factor=2, max=60, jitter=0, reset_after=10)


@pytest.mark.parametrize(
    ("state", "event", "actions", "phases"),
    [
        (three(ONE), FALL, (b,), (UP, DOWN, UP)),
        (three(REST), FALL, (Stop("c"), b, c), (UP, DOWN, DOWN)),
        (three(ALL), FALL, (Stop("c"), Stop("a"), a, b, c), (DOWN, DOWN, DOWN)),
        (three(ONE, backoff=BACKOFF), FALL, (Wait("b", 2),), (UP, WAITING, UP)),
        (three(ALL, backoff=BACKOFF), FALL, (Stop("c"), Stop("a"), Wait("b", 2)), (DOWN, WAITING, DOWN)),
        (three(REST, UP, UP, WAITING, backoff=BACKOFF), FALL, (Wait("b", 2),), (UP, WAITING, DOWN)),
        (three(ALL, DOWN, WAITING, DOWN), Due("b"), (a, b, c), (DOWN, DOWN, DOWN)),
        (three(REST, UP, WAITING, DOWN), Due("b"), (b, c), (UP, DOWN, DOWN)),
        (three(REST, UP, WAITING, GONE), Due("b"), (b,), (UP, DOWN, GONE)),
        (three(ONE, UP, UP, UP), Due("b"), (), (UP, UP, UP)),
        (three(ALL, GONE, UP, GONE), FALL, (b,), (GONE, DOWN, GONE)),
        (three(ONE, UP, DOWN, UP), Started("b"), (), (UP, UP, UP)),
        (three(ALL, UP, DOWN, DOWN), StartFailed("b"), (Stop("a"), a, b, c), (DOWN, DOWN, DOWN)),
        (three(ONE, UP, GONE, UP), FALL, (), (UP, GONE, UP)),
        (three(ONE), Exited("unknown", crashed=True), (), (UP, UP, UP)),
        (three(ONE, max_restarts=0), FALL, (GiveUp("b"),), (UP, UP, UP)),
    ],
)
def test_the_rules_by_table(state: State, event: Event, actions: object, phases: object) -> None:
    after, done = decide(state, event, now=1.0)
    assert done == actions
    assert tuple(child.phase for child in after.children) == phases


@pytest.mark.parametrize(
    ("restart", "crashed", "again"),
    [
        (Restart.PERMANENT, True, True),
        (Restart.PERMANENT, False, True),
        (Restart.TRANSIENT, True, True),
        (Restart.TRANSIENT, False, False),
        (Restart.TEMPORARY, True, False),
        (Restart.TEMPORARY, False, False),
    ],
)
def test_who_is_started_again(restart: Restart, crashed: bool, again: bool) -> None:
    state = State((Child("x", restart, UP, up_at=0.0),))
    after, actions = decide(state, Exited("x", crashed), now=1.0)
    assert (actions == (Start("x"),)) is again
    assert after.children[0].phase is (DOWN if again else GONE)
    assert bool(after.restarted_at) is again


def test_restarts_are_forgotten_after_the_window() -> None:
    state = State((Child("x", phase=UP),), max_restarts=2, within=5.0)
    for now, gives_up in [(0.0, False), (4.0, False), (5.0, False), (6.0, True)]:
        after, actions = decide(state, Exited("x", crashed=True), now)
        assert (actions == (GiveUp("x"),)) is gives_up
        state = attrs.evolve(after, children=(Child("x", phase=UP),))


@pytest.mark.parametrize("attempt", [0, 1, 5, 10_000])
def test_a_delay_never_exceeds_its_maximum(attempt: int) -> None:
    assert Backoff(initial=0.5, factor=3, max=20).delay(attempt) == min(20, 0.5 * 3 ** min(attempt, 64))


@pytest.mark.parametrize("wrong", [{"initial": -1}, {"factor": 0.5}, {"max": -1}, {"jitter": 2}, {"reset_after": -1}])
def test_a_senseless_backoff_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Backoff(**wrong)


NAMES = "abcd"


class Machine(RuleBasedStateMachine):
    """Lets children fall at random and performs the actions as a supervisor would, against a plain model."""

    @initialize(
        strategy=st.sampled_from(Strategy),
        restarts=st.tuples(*[st.sampled_from(Restart)] * 4),
        backoff=st.sampled_from([None, BACKOFF]),
        limit=st.integers(0, 4),
    )
    def begin(self, strategy: Strategy, restarts: tuple[Restart, ...], backoff: Backoff | None, limit: int) -> None:
        self.now = 0.0
        children = tuple(Child(name, restart) for name, restart in zip(NAMES, restarts, strict=True))
        self.state = State(children, strategy, limit, 10.0, backoff)
        self.kind = dict(zip(NAMES, restarts, strict=True))
        self.running: list[str] = []  # in the order of their start
        self.waiting: set[str] = set()
        self.gone: set[str] = set()
        self.falls: list[float] = []
        self.over = False
        self.refuse_next = False
        for name in NAMES:
            self.state, actions = decide(self.state, Started(name), self.now)
            assert actions == ()
            self.running.append(name)

    def hit(self, name: str) -> list[str]:
        """Who falls with a child, by the book."""
        at = NAMES.index(name)
        reach = {ONE: NAMES[at], ALL: NAMES, REST: NAMES[at:]}[self.state.strategy]
        return list(reach)

    def feed(self, event: Event) -> None:
        self.state, actions = decide(self.state, event, self.now)
        plan = list(actions)
        while plan:
            action = plan.pop(0)
            match action:
                case Stop(id=name):
                    assert name in self.running
                    assert name in self.hit(event.id)
                    assert all(NAMES.index(other.id) < NAMES.index(name) for other in plan if isinstance(other, Stop))
                    self.running.remove(name)
                    if self.kind[name] is Restart.TEMPORARY:
                        self.gone.add(name)
                case Start(id=name):
                    assert name not in self.running
                    assert name not in self.gone
                    self.waiting.discard(name)
                    if self.refuse_next:
                        self.refuse_next = False
                        self.falls.append(self.now)
                        event = StartFailed(name)
                        self.state, more = decide(self.state, event, self.now)
                        plan = list(more)
                    else:
                        self.running.append(name)
                        self.state, more = decide(self.state, Started(name), self.now)
                        assert more == ()
                case Wait(id=name, seconds=seconds):
                    assert self.state.backoff is not None
                    assert 0 < seconds <= self.state.backoff.max
                    self.waiting -= set(self.hit(name))
                    self.waiting.add(name)
                case GiveUp():
                    recent = [at for at in self.falls if at > self.now - self.state.within]
                    assert len(recent) > self.state.max_restarts
                    assert plan == []
                    self.over = True

    @precondition(lambda self: not self.over and self.running)
    @rule(data=st.data(), crashed=st.booleans(), refuse=st.booleans())
    def falls_down(self, data: st.DataObject, crashed: bool, refuse: bool) -> None:
        name = data.draw(st.sampled_from(self.running))
        self.running.remove(name)
        kind = self.kind[name]
        if kind is Restart.TEMPORARY or (kind is Restart.TRANSIENT and not crashed):
            self.gone.add(name)
        else:
            self.falls.append(self.now)
        self.refuse_next = refuse
        self.feed(Exited(name, crashed))

    @precondition(lambda self: not self.over)
    @rule(name=st.sampled_from(NAMES), refuse=st.booleans())
    def wait_is_over(self, name: str, refuse: bool) -> None:
        self.refuse_next = refuse
        before = list(self.running)
        meant = name in self.waiting
        self.feed(Due(name))
        if not meant:
            assert self.running == before

    @rule(seconds=st.sampled_from([0.0, 0.5, 4.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def model_and_rules_agree(self) -> None:
        if not hasattr(self, "state") or self.over:
            return
        phases = {child.id: child.phase for child in self.state.children}
        assert {name for name in NAMES if phases[name] is UP} == set(self.running)
        assert {name for name in NAMES if phases[name] is GONE} == self.gone
        assert {name for name in NAMES if phases[name] is WAITING} == self.waiting
        recent = [at for at in self.falls if at > self.now - self.state.within]
        assert len(recent) <= self.state.max_restarts or not recent
        if not self.waiting:
            assert all(phase is not DOWN for phase in phases.values())  # nobody is forgotten


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None, derandomize=True)
TestMachine = Machine.TestCase
