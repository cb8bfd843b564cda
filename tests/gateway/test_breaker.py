"""The breaker stops calls to a downstream that does not work, connects to it again, and says what it does."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors import Backoff
from intercom.gateway import breaker
from intercom.gateway.breaker import (
    Breaker,
    BreakerSettings,
    CallFailed,
    CallSucceeded,
    Circuit,
    Connect,
    ConnectionLost,
    Effect,
    Event,
    Failure,
    HandshakeFailed,
    HandshakeSucceeded,
    Health,
    HealthChanged,
    Phase,
    ProbeAfter,
    ProbeDue,
    refusal,
    start,
    step,
)

READY, DEGRADED, RETRYING, OPEN, PROBING = (
    Phase.READY,
    Phase.DEGRADED,
    Phase.RETRYING,
    Phase.OPEN,
    Phase.PROBING,
)
#: Without jitter, so times are exact.
EXACT = BreakerSettings(backoff=Backoff(initial=1.0, max=60.0, jitter=0.0, reset_after=60.0))
TIMEOUT, TRANSPORT = CallFailed(1, Failure.TIMEOUT), CallFailed(1, Failure.TRANSPORT)


def after(*events: Event, state: Breaker | None = None, at: float = 0.0) -> tuple[Breaker, tuple[Effect, ...]]:
    """The state after these events on a new downstream whose handshake succeeded, and the effects of the last."""
    effects: tuple[Effect, ...] = ()
    state = state or step(start(0.0)[0], HandshakeSucceeded(1), 0.0, EXACT)[0]
    for event in events:
        state, effects = step(state, event, at, EXACT)
    return state, effects


def in_phase(phase: Phase) -> Breaker:
    """A state in this phase, as the machine makes it. Its connection is number 1, its probe is due at 30."""
    due = 30.0 if phase in (DEGRADED, OPEN) else None
    failures = {DEGRADED: 3, RETRYING: 3, OPEN: 5, PROBING: 5}.get(phase, 0)
    return Breaker(phase, "", 0.0, failures, connection=1, probe_at=due)


def test_a_downstream_is_offline_until_its_first_handshake() -> None:
    state, effects = start(7.0)
    assert (state.health, state.circuit, state.since) == (Health.OFFLINE, Circuit.HALF_OPEN, 7.0)
    assert effects == (Connect(1),)
    state, effects = step(state, HandshakeSucceeded(1), 8.0, EXACT)
    assert (state.phase, state.since, effects) == (READY, 8.0, (HealthChanged(Health.OFFLINE, Health.READY),))


@pytest.mark.parametrize(
    ("phase", "event", "then"),
    [
        (READY, CallSucceeded(1), READY),
        (READY, TIMEOUT, READY),
        (READY, ConnectionLost(1), RETRYING),
        (READY, HandshakeSucceeded(1), READY),
        (READY, HandshakeFailed(1), READY),
        (READY, ProbeDue(), READY),
        (DEGRADED, CallSucceeded(1), READY),
        (DEGRADED, TIMEOUT, DEGRADED),
        (DEGRADED, CallFailed(1, Failure.TOOL_ERROR), READY),
        (DEGRADED, ConnectionLost(1), RETRYING),
        (DEGRADED, HandshakeSucceeded(1), DEGRADED),
        (DEGRADED, HandshakeFailed(1), DEGRADED),
        (DEGRADED, ProbeDue(), RETRYING),
        (RETRYING, CallSucceeded(1), RETRYING),
        (RETRYING, TIMEOUT, RETRYING),
        (RETRYING, ConnectionLost(1), OPEN),
        (RETRYING, HandshakeSucceeded(1), READY),
        (RETRYING, HandshakeFailed(1), OPEN),
        (RETRYING, ProbeDue(), RETRYING),
        (OPEN, CallSucceeded(1), OPEN),
        (OPEN, TIMEOUT, OPEN),
        (OPEN, ConnectionLost(1), OPEN),
        (OPEN, HandshakeSucceeded(1), OPEN),
        (OPEN, HandshakeFailed(1), OPEN),
        (OPEN, ProbeDue(), PROBING),
        (PROBING, CallSucceeded(1), PROBING),
        (PROBING, TIMEOUT, PROBING),
        (PROBING, ConnectionLost(1), OPEN),
        (PROBING, HandshakeSucceeded(1), READY),
        (PROBING, HandshakeFailed(1), OPEN),
        (PROBING, ProbeDue(), PROBING),
    ],
)
def test_each_event_leads_where_the_table_says(phase: Phase, event: Event, then: Phase) -> None:
    before = in_phase(phase)
    state, effects = step(before, event, 30.0, EXACT)
    assert state.phase is then
    changed = HealthChanged(before.health, state.health)
    assert (changed in effects) == (before.health is not state.health)
    assert any(isinstance(each, Connect) for each in effects) == (then in (RETRYING, PROBING) and phase is not then)
    assert state.since == (30.0 if before.health is not state.health else 0.0)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize(
    "event",
    [
        CallSucceeded(2),
        CallFailed(2, Failure.TIMEOUT),
        ConnectionLost(2),
        HandshakeSucceeded(2),
        HandshakeFailed(2),
    ],
)
def test_what_another_connection_reports_changes_nothing(phase: Phase, event: Event) -> None:
    assert step(in_phase(phase), event, 30.0, EXACT) == (in_phase(phase), ())


def test_failures_in_a_row_make_it_degraded_and_then_open_the_circuit() -> None:
    assert after(TIMEOUT, TIMEOUT)[0].health is Health.READY
    state, effects = after(TIMEOUT, TIMEOUT, TRANSPORT)
    assert (state.phase, state.takes_calls) == (DEGRADED, True)
    assert effects == (HealthChanged(Health.READY, Health.DEGRADED), ProbeAfter(30.0))
    state, effects = after(TIMEOUT, TIMEOUT, TRANSPORT, TIMEOUT, TIMEOUT)
    assert (state.phase, state.takes_calls) == (OPEN, False)
    assert effects == (HealthChanged(Health.DEGRADED, Health.OFFLINE), ProbeAfter(1.0))
    assert state.reason == "5 calls in a row failed, the last one timed out"


def test_one_success_forgives_all_failures() -> None:
    state, _ = after(*[TIMEOUT] * 4, CallSucceeded(1), TIMEOUT, TIMEOUT)
    assert (state.phase, state.failures) == (READY, 2)


def test_a_tools_own_error_counts_only_if_the_settings_say_so() -> None:
    error = CallFailed(1, Failure.TOOL_ERROR)
    assert after(*[error] * 100)[0].phase is READY
    assert after(TIMEOUT, TIMEOUT, error, TIMEOUT)[0].failures == 1
    strict = attrs.evolve(EXACT, count_tool_errors=True)
    state = after()[0]
    for _ in range(5):
        state, _ = step(state, error, 1.0, strict)
    assert state.phase is OPEN


def test_a_lost_connection_is_made_again_at_once_and_then_ever_later() -> None:
    state, effects = after(ConnectionLost(1, "ended: its process exited with 1"))
    assert state.reason == "the connection ended: its process exited with 1"
    assert effects == (HealthChanged(Health.READY, Health.DEGRADED), Connect(2))
    waits = []
    for number in range(2, 9):
        state, _ = step(state, HandshakeSucceeded(number), 10.0, EXACT)
        state, effects = step(state, ConnectionLost(number), 10.0, EXACT)
        [wait] = [each.seconds for each in effects if isinstance(each, ProbeAfter)]
        waits.append(wait)
        state, effects = step(state, ProbeDue(), 10.0 + wait, EXACT)
        assert effects == (Connect(number + 1),)
    assert waits == [2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("proof", ["call", "time"])
def test_the_backoff_starts_again_once_the_connection_has_proven_itself(proof: str) -> None:
    state, _ = after(ConnectionLost(1), HandshakeSucceeded(2))
    if proof == "call":
        state, _ = step(state, CallSucceeded(2), 1.0, EXACT)
    _, effects = step(state, ConnectionLost(2), 1.0 if proof == "call" else 60.0, EXACT)
    assert Connect(3) in effects


@pytest.mark.parametrize(("random", "seconds"), [(0.0, 0.8), (0.5, 1.0), (1.0, 1.2)])
def test_the_jitter_is_given_from_outside(random: float, seconds: float) -> None:
    settings = BreakerSettings(1, 1)
    state = step(start(0.0)[0], HandshakeSucceeded(1), 0.0, settings)[0]
    state, effects = step(state, TIMEOUT, 5.0, settings, random)
    assert effects[-1] == ProbeAfter(pytest.approx(seconds))
    assert state.probe_at == pytest.approx(5.0 + seconds)


def test_an_old_timer_does_not_connect_too_early() -> None:
    state, _ = after(*[TIMEOUT] * 3, CallSucceeded(1))
    state, _ = after(*[TIMEOUT] * 3, state=state, at=20.0)
    same, effects = step(state, ProbeDue(), 30.0, EXACT)
    assert (same, effects) == (state, (ProbeAfter(20.0),))
    assert step(state, ProbeDue(), 50.0, EXACT)[0].phase is RETRYING


@pytest.mark.parametrize(
    ("state", "now", "message", "retry_after"),
    [
        (
            attrs.evolve(in_phase(OPEN), reason="5 calls in a row failed, the last one timed out"),
            23.0,
            "github has been offline for 23 s (5 calls in a row failed, the last one timed out), and nothing was sent; "
            "Intercom will connect to it again by itself: work on something else, and repeat this call in 12 s; if "
            "that fails three times, tell the person that github does not work",
            12.0,
        ),
        (
            attrs.evolve(in_phase(RETRYING), reason="the connection was lost"),
            0.2,
            "github is degraded (the connection was lost), and nothing was sent; Intercom is connecting to it now: "
            "work on something else, and repeat this call in 5 s; if that fails three times, tell the person that "
            "github does not work",
            5.0,
        ),
    ],
)
def test_the_model_is_told_what_to_do_and_when_to_come_back(
    state: Breaker, now: float, message: str, retry_after: float
) -> None:
    answer = refusal("github", state, now)
    assert answer is not None
    assert (answer.message, answer.retry_after) == (message, retry_after)


def test_calls_are_sent_while_the_circuit_is_closed() -> None:
    assert [refusal("github", in_phase(phase), 0.0) is None for phase in Phase] == [
        phase.value[1] is Circuit.CLOSED for phase in Phase
    ]


def test_the_limits_must_be_in_order() -> None:
    with pytest.raises(ValueError, match="open_after must be at least degraded_after, which is 3"):
        BreakerSettings(3, 2)


class ADownstream(RuleBasedStateMachine):
    """Any events in any order, also outdated ones, with the timers and the connections that the effects ask for."""

    @initialize(
        degraded=st.integers(1, 4), more=st.integers(0, 3), strict=st.booleans(), jitter=st.sampled_from([0.0, 0.5])
    )
    def begin(self, degraded: int, more: int, strict: bool, jitter: float) -> None:
        backoff = Backoff(initial=1.0, max=20.0, jitter=jitter, reset_after=60.0)
        self.settings = BreakerSettings(degraded, degraded + more, 10.0, strict, backoff)
        self.now = 0.0
        self.state, effects = start(self.now)
        #: The connection whose handshake is under way, and the time at which the timer ends.
        self.connecting: int | None = None
        self.due: float | None = None
        self.in_a_row = 0
        self.health = [Health.OFFLINE]
        self.perform(effects)

    def perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Connect(number):
                    assert self.connecting is None, "one handshake at a time"
                    self.connecting, self.in_a_row = number, 0
                case ProbeAfter(seconds):
                    assert 0 < seconds <= max(20.0 * 1.5, self.settings.degraded_seconds)
                    self.due = self.now + seconds
                case HealthChanged(before, after):
                    assert before is self.health[-1] is not after
                    self.health.append(after)

    def send(self, event: Event, random: float = 0.5) -> None:
        before = self.state
        self.state, effects = step(before, event, self.now, self.settings, random)
        assert (self.state, effects) == step(before, event, self.now, self.settings, random)
        opened = self.state.phase is OPEN and before.phase in (READY, DEGRADED)
        if opened and isinstance(event, CallFailed):
            assert self.in_a_row >= self.settings.open_after
        self.perform(effects)

    @rule(failure=st.sampled_from(Failure), random=st.floats(0, 1), old=st.booleans())
    def call_fails(self, failure: Failure, random: float, old: bool) -> None:
        current = self.state.takes_calls and not old
        counts = failure is not Failure.TOOL_ERROR or self.settings.count_tool_errors
        if current:
            self.in_a_row = self.in_a_row + 1 if counts else 0
        before = self.state
        self.send(CallFailed(self.state.connection - old, failure), random)
        if not current:
            assert self.state == before

    @rule(old=st.booleans())
    def call_succeeds(self, old: bool) -> None:
        self.in_a_row = 0 if self.state.takes_calls and not old else self.in_a_row
        closed = self.state.takes_calls and not old
        self.send(CallSucceeded(self.state.connection - old))
        if closed:
            assert (self.state.phase, self.state.failures, self.state.attempts) == (READY, 0, 0)

    @rule(random=st.floats(0, 1), old=st.booleans())
    def connection_is_lost(self, random: float, old: bool) -> None:
        if not old and self.connecting is not None:
            self.connecting = None
        self.send(ConnectionLost(self.state.connection - old), random)

    @precondition(lambda self: self.connecting is not None)
    @rule(works=st.booleans(), random=st.floats(0, 1))
    def handshake_ends(self, works: bool, random: float) -> None:
        number, self.connecting = self.connecting, None
        assert number is not None
        self.send(HandshakeSucceeded(number) if works else HandshakeFailed(number), random)
        assert self.state.phase is (READY if works else OPEN)

    @rule(seconds=st.floats(0, 100))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        while self.due is not None and self.due <= self.now:
            self.due = None
            self.send(ProbeDue())

    @rule()
    def a_timer_of_before_ends(self) -> None:
        self.send(ProbeDue())

    @invariant()
    def the_state_is_consistent(self) -> None:
        state = self.state
        assert state.health is self.health[-1]
        assert (self.connecting is not None) == (state.circuit is Circuit.HALF_OPEN)
        assert (state.probe_at is not None) == (state.phase in (DEGRADED, OPEN))
        assert state.since <= self.now
        assert state.failures < self.settings.open_after or not state.takes_calls
        assert (refusal("x", state, self.now) is None) == state.takes_calls

    @invariant()
    def it_never_stays_offline_by_itself(self) -> None:
        """Something is always under way: a handshake, or a timer that ends no later than the probe is due."""
        if self.state.phase in (DEGRADED, OPEN):
            assert self.due is not None
            assert self.state.probe_at is not None
            assert self.due <= self.state.probe_at + 1e-6

    @invariant()
    def the_health_changes_as_the_spec_says(self) -> None:
        # From Ready straight to Offline only if connections keep being lost, or if the limits are equal.
        allowed = {("offline", "ready"), ("ready", "degraded"), ("degraded", "ready"), ("degraded", "offline")}
        for before, then in pairwise(self.health):
            assert (before, then) in allowed | {("ready", "offline")}


TestADownstream = ADownstream.TestCase


@given(st.sampled_from(Phase), st.floats(0, 1e6), st.integers(0, 10_000), st.floats(0, 1))
def test_the_backoff_stays_within_its_limits(phase: Phase, now: float, attempts: int, random: float) -> None:
    state = attrs.evolve(in_phase(phase), attempts=attempts)
    for event in (ConnectionLost(1), HandshakeFailed(1)):
        for effect in step(state, event, now, breaker.DEFAULT_SETTINGS, random)[1]:
            if isinstance(effect, ProbeAfter):
                assert 0.8 <= effect.seconds <= 72
