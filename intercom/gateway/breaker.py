"""The circuit breaker of one downstream, as a table and a pure function: tests need no process and no clock.

`step(state, event, now, settings)` returns the next state and the effects that lead to it. Calls are sent only while
the circuit is closed. The test of a half-open circuit is a new connection with its handshake, never a tool call. There
is at most one at a time.

| from                          | event                         | to                            |
|-------------------------------|-------------------------------|-------------------------------|
| Ready                         | several failures in a row     | Degraded                      |
| Degraded                      | a successful call             | Ready                         |
| Degraded                      | the time without success ends | Degraded, half-open           |
| Degraded                      | more failures in a row        | Offline, open                 |
| Ready, Degraded               | the connection is lost        | Degraded, half-open           |
| Ready, Degraded               | it is lost again and again    | Offline, open                 |
| Offline, open                 | the back-off ends             | Offline, half-open            |
| half-open                     | the handshake succeeds        | Ready                         |
| half-open                     | the handshake fails           | Offline, open                 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from attrs import evolve, field, frozen

from actors import Backoff
from intercom.gateway.budgets import duration
from intercom.model.setting_checks import SECONDS, between

#: Begins the reason of a failure that only a person can end, by signing in.
NEEDS_SIGN_IN: Final = "needs sign-in"
#: What a model is told to wait while a handshake is under way (seconds).
HANDSHAKE_WAIT_SECONDS: Final = 5.0
#: A timer may end this much too early (seconds).
_TOLERANCE: Final = 1e-3


class Health(StrEnum):
    """What people see of a downstream."""

    READY = "ready"
    DEGRADED = "degraded"
    OFFLINE = "offline"


class Circuit(StrEnum):
    """Whether calls are sent: only while the circuit is closed."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Phase(Enum):
    """A row of the table: the health and the circuit together."""

    READY = (Health.READY, Circuit.CLOSED)
    DEGRADED = (Health.DEGRADED, Circuit.CLOSED)
    RETRYING = (Health.DEGRADED, Circuit.HALF_OPEN)
    OPEN = (Health.OFFLINE, Circuit.OPEN)
    PROBING = (Health.OFFLINE, Circuit.HALF_OPEN)


class Failure(StrEnum):
    """How a call failed."""

    TRANSPORT = "transport"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    TOOL_ERROR = "tool_error"


_WHAT_HAPPENED: Final[Mapping[Failure, str]] = {
    Failure.TRANSPORT: "could not be sent or was not answered",
    Failure.TIMEOUT: "timed out",
    Failure.PROTOCOL: "got an answer that breaks the protocol",
    Failure.TOOL_ERROR: "got an error from the tool",
}


@frozen
class BreakerSettings:
    """When a downstream counts as Degraded and as Offline, and how its connection is renewed.

    After `degraded_after` failures in a row it is Degraded, after `open_after` it is Offline. A Degraded downstream is
    connected again after `degraded_seconds` without a success. `backoff` gives the delays between connections; it
    starts again after a successful call, and if a connection is lost after `reset_after` seconds. A tool's own errors
    (`isError`) show that the downstream works, unless `count_tool_errors`.
    """

    degraded_after: int = field(default=3, validator=between(1, 10_000))
    open_after: int = field(default=5, validator=between(1, 10_000))
    degraded_seconds: float = field(default=30.0, validator=SECONDS)
    count_tool_errors: bool = False
    backoff: Backoff = field(factory=lambda: Backoff(initial=1.0, max=60.0, jitter=0.2, reset_after=60.0))

    def __attrs_post_init__(self) -> None:
        if self.open_after < self.degraded_after:
            raise ValueError(f"open_after must be at least degraded_after, which is {self.degraded_after}")


#: The settings of a downstream whose file says nothing about its breaker.
DEFAULT_SETTINGS: Final = BreakerSettings()


@frozen
class Breaker:
    """The state. `reason` says for people why it is so; the health is the same `since` that time.

    `failures` counts failures in a row. `attempts` counts connections that failed or were lost without a success
    between. `connection` is the number of the connection, current or under way. `probe_at` is the time at which a new
    connection is due, if one is.
    """

    phase: Phase
    reason: str
    since: float
    failures: int = 0
    attempts: int = 0
    connection: int = 0
    probe_at: float | None = None

    @property
    def health(self) -> Health:
        return self.phase.value[0]

    @property
    def circuit(self) -> Circuit:
        return self.phase.value[1]

    @property
    def takes_calls(self) -> bool:
        """Whether calls may be sent."""
        return self.circuit is Circuit.CLOSED


@frozen
class CallSucceeded:
    """A call on this connection was answered."""

    connection: int


@frozen
class CallFailed:
    """A call, or a ping of the protocol, on this connection failed. A call that the agent cancelled is no event."""

    connection: int
    failure: Failure


@frozen
class ConnectionLost:
    """The connection ended: the process exited, or a stream was closed. `reason` continues "the connection ...".

    Report it once, and no `CallFailed` for the calls that it takes along. `reason` must not hold what a person or a
    downstream wrote.
    """

    connection: int
    reason: str = "was lost"


@frozen
class HandshakeSucceeded:
    """The connection was made, and both sides agree on the protocol."""

    connection: int


@frozen
class HandshakeFailed:
    """The connection could not be made, or the handshake failed or took too long. `reason` is as for a lost one."""

    connection: int
    reason: str = "could not be made"


@frozen
class ProbeDue:
    """The time that `ProbeAfter` named is over."""


Event: TypeAlias = CallSucceeded | CallFailed | ConnectionLost | HandshakeSucceeded | HandshakeFailed | ProbeDue


@frozen
class Connect:
    """End the old connection and its process, if there is one; make the connection of this number; report the result
    of its handshake."""

    connection: int


@frozen
class ProbeAfter:
    """Report `ProbeDue` after so many seconds. This replaces an earlier `ProbeAfter`."""

    seconds: float


@frozen
class HealthChanged:
    """People and metrics are to be told."""

    before: Health
    after: Health


Effect: TypeAlias = Connect | ProbeAfter | HealthChanged
Step: TypeAlias = tuple[Breaker, tuple[Effect, ...]]


def start(now: float) -> Step:
    """Return the first state of a downstream, which is Offline until its first handshake, and the effect that begins
    it."""
    return Breaker(Phase.PROBING, "it is being started", now, connection=1), (Connect(1),)


def step(
    state: Breaker, event: Event, now: float, settings: BreakerSettings = DEFAULT_SETTINGS, random: float = 0.5
) -> Step:
    """Return the state after `event` at `now`, and the effects in their order.

    `now` is seconds on any clock that does not go back. `random`, from 0 to 1, varies the back-off. Outdated events
    change nothing, for example what an earlier connection reports.
    """
    if not isinstance(event, ProbeDue) and event.connection != state.connection:
        return state, ()
    rule = _TABLE.get((state.phase, type(event)))
    if rule is None:
        return state, ()
    return rule(state, event, _Inputs(now, settings, random))


@frozen
class _Inputs:
    now: float
    settings: BreakerSettings
    random: float


def _succeeded(state: Breaker, _event: Event, inputs: _Inputs) -> Step:
    if state.phase is Phase.READY and not state.failures and not state.attempts:
        return state, ()
    return _move(state, Phase.READY, "its last call was answered", inputs, failures=0, attempts=0, probe_at=None)


def _failed(state: Breaker, event: Event, inputs: _Inputs) -> Step:
    assert isinstance(event, CallFailed)
    settings = inputs.settings
    if event.failure is Failure.TOOL_ERROR and not settings.count_tool_errors:
        return _succeeded(state, event, inputs)
    failures = state.failures + 1
    what = _WHAT_HAPPENED[event.failure]
    reason = f"the last call {what}" if failures == 1 else f"{failures} calls in a row failed, the last one {what}"
    state = evolve(state, failures=failures)
    if failures >= settings.open_after:
        return _open(state, reason, inputs)
    if failures < settings.degraded_after or state.phase is Phase.DEGRADED:
        return evolve(state, reason=reason), ()
    wait = settings.degraded_seconds
    state, effects = _move(state, Phase.DEGRADED, reason, inputs, probe_at=inputs.now + wait)
    return state, (*effects, ProbeAfter(wait))


def _lost(state: Breaker, event: Event, inputs: _Inputs) -> Step:
    """Connect at once the first time, and after a delay if connections keep being lost."""
    assert isinstance(event, ConnectionLost)
    reason = f"the connection {event.reason}"
    proven = state.phase is Phase.READY and inputs.now - state.since >= inputs.settings.backoff.reset_after
    state = evolve(state, attempts=0 if proven else state.attempts)
    return _open(state, reason, inputs) if state.attempts else _connect(state, Phase.RETRYING, reason, inputs)


def _connected(state: Breaker, _event: Event, inputs: _Inputs) -> Step:
    return _move(state, Phase.READY, "its handshake succeeded", inputs, failures=0)


def _not_connected(state: Breaker, event: Event, inputs: _Inputs) -> Step:
    assert isinstance(event, HandshakeFailed | ConnectionLost)
    return _open(state, f"the connection {event.reason}", inputs)


def _due(state: Breaker, _event: Event, inputs: _Inputs) -> Step:
    wait = (state.probe_at or 0.0) - inputs.now
    if wait > _TOLERANCE:  # an earlier timer, or a clock that was set back
        return state, (ProbeAfter(wait),)
    after = Phase.RETRYING if state.phase is Phase.DEGRADED else Phase.PROBING
    return _connect(state, after, state.reason, inputs)


#: What each event does in each phase. An event without a rule changes nothing.
_TABLE: Final[Mapping[tuple[Phase, type], Callable[[Breaker, Event, _Inputs], Step]]] = {
    (Phase.READY, CallSucceeded): _succeeded,
    (Phase.READY, CallFailed): _failed,
    (Phase.READY, ConnectionLost): _lost,
    (Phase.DEGRADED, CallSucceeded): _succeeded,
    (Phase.DEGRADED, CallFailed): _failed,
    (Phase.DEGRADED, ConnectionLost): _lost,
    (Phase.DEGRADED, ProbeDue): _due,
    (Phase.OPEN, ProbeDue): _due,
    (Phase.RETRYING, HandshakeSucceeded): _connected,
    (Phase.RETRYING, HandshakeFailed): _not_connected,
    (Phase.RETRYING, ConnectionLost): _not_connected,
    (Phase.PROBING, HandshakeSucceeded): _connected,
    (Phase.PROBING, HandshakeFailed): _not_connected,
    (Phase.PROBING, ConnectionLost): _not_connected,
}


def _connect(state: Breaker, after: Phase, reason: str, inputs: _Inputs) -> Step:
    """Begin a new connection. It counts as an attempt until a call succeeds."""
    number = state.connection + 1
    state, effects = _move(state, after, reason, inputs, attempts=state.attempts + 1, connection=number, probe_at=None)
    return state, (*effects, Connect(number))


def _open(state: Breaker, reason: str, inputs: _Inputs) -> Step:
    backoff = inputs.settings.backoff
    varied = 1 + backoff.jitter * (2 * inputs.random - 1)
    wait = backoff.delay(state.attempts) * varied
    state, effects = _move(state, Phase.OPEN, reason, inputs, probe_at=inputs.now + wait)
    return state, (*effects, ProbeAfter(wait))


def _move(state: Breaker, phase: Phase, reason: str, inputs: _Inputs, **changes: object) -> Step:
    before, after = state.health, phase.value[0]
    since = state.since if before is after else inputs.now
    state = evolve(state, phase=phase, reason=reason, since=since, **changes)  # type: ignore[arg-type]
    return state, (() if before is after else (HealthChanged(before, after),))


@frozen
class Refusal:
    """Why a call is not sent: the sentence for the model, and the seconds after which it may try again."""

    message: str
    retry_after: float


def refusal(name: str, state: Breaker, now: float) -> Refusal | None:
    """Return why a call of downstream `name` is not sent, or None if it may be sent."""
    if state.takes_calls:
        return None
    if state.circuit is Circuit.HALF_OPEN:
        wait, what = HANDSHAKE_WAIT_SECONDS, "Intercom is connecting to it now"
    else:
        wait = max((state.probe_at or now) - now, 0.0) + HANDSHAKE_WAIT_SECONDS
        what = "Intercom will connect to it again by itself"
    lasts = now - state.since
    health = f"has been {state.health} for {duration(lasts)}" if lasts >= 1 else f"is {state.health}"
    if NEEDS_SIGN_IN in state.reason:
        # No waiting helps. The reason has the command.
        return Refusal(
            f"{name} {health} ({state.reason}), and nothing was sent; only the person can end that: tell them, and work"
            f" on something else; Intercom connects to {name} as soon as they have signed in",
            wait,
        )
    return Refusal(
        f"{name} {health} ({state.reason}), and nothing was sent; {what}: work on something else, and repeat this call"
        f" in {duration(wait)}; if that fails three times, tell the person that {name} does not work",
        wait,
    )
