"""When silence is a stall: the rules, as a pure step from one state to the next.

Times are seconds on any monotonic clock. A stall is raised after `threshold` seconds without activity, nudged every
`interval` seconds up to `retries` times, then escalated once. While the agent waits for a person, or is not connected,
the detector rests. Its timer starts again when it wakes.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import evolve, frozen


class Phase(StrEnum):
    WATCHING = "watching"
    STALLED = "stalled"
    ESCALATED = "escalated"


@frozen
class Rules:
    threshold: float
    interval: float
    retries: int


@frozen
class StallState:
    """`due` is the time of the next step, None while resting or escalated. `road`: whether messages reach the agent."""

    since: float
    due: float | None
    phase: Phase = Phase.WATCHING
    nudges: int = 0
    resting: bool = True
    road: bool = True


@frozen
class Heard:
    """The agent did something."""


@frozen
class Prodded:
    """A person sent the agent a message: silence counts from now, and the automatic nudges begin again."""


@frozen
class Set:
    """The agent's status: whether silence is no stall now, and whether messages can reach the agent."""

    resting: bool
    road: bool


@frozen
class Ticked:
    pass


Event = Heard | Prodded | Set | Ticked


@frozen
class RaiseStall:
    idle_seconds: int


@frozen
class Nudge:
    count: int


@frozen
class Escalate:
    count: int
    delivered: bool


@frozen
class Recover:
    pass


Effect = RaiseStall | Nudge | Escalate | Recover


def begin(now: float) -> StallState:
    """Return the state of a detector that rests until it is told the agent's status."""
    return StallState(since=now, due=None)


def step(state: StallState, event: Event, now: float, rules: Rules) -> tuple[StallState, tuple[Effect, ...]]:
    """Return the next state and what to do. A tick that is early, or that comes while resting, changes nothing."""
    match event:
        case Heard():
            effects: tuple[Effect, ...] = () if state.phase is Phase.WATCHING else (Recover(),)
            due = None if state.resting else now + rules.threshold
            return evolve(state, since=now, due=due, phase=Phase.WATCHING, nudges=0), effects
        case Prodded():
            if not state.road and state.phase is Phase.ESCALATED:
                # The message is queued: nothing reaches the agent before it is back.
                return state, ()
            due = None if state.resting else now + rules.threshold
            phase = Phase.WATCHING if state.phase is Phase.WATCHING else Phase.STALLED
            return evolve(state, since=now, due=due, phase=phase, nudges=0), ()
        case Set(resting=True, road=road):
            return evolve(state, resting=True, road=road, due=None), ()
        case Set(road=road):
            if not state.resting:
                return evolve(state, road=road), ()
            fresh = StallState(since=now, due=now + rules.threshold, resting=False, road=road)
            return fresh, ()
        case Ticked():
            if state.resting or state.due is None or now < state.due:
                return state, ()
            return _overdue(state, now, rules)


def _overdue(state: StallState, now: float, rules: Rules) -> tuple[StallState, tuple[Effect, ...]]:
    if state.phase is Phase.WATCHING:
        raised = RaiseStall(int(now - state.since))
        if not state.road:
            # No message would reach the agent: a person must know at once.
            return evolve(state, phase=Phase.ESCALATED, due=None), (raised, Escalate(0, delivered=False))
        return evolve(state, phase=Phase.STALLED, due=now + rules.interval), (raised,)
    if state.road and state.nudges < rules.retries:
        nudges = state.nudges + 1
        return evolve(state, nudges=nudges, due=now + rules.interval), (Nudge(nudges),)
    return evolve(state, phase=Phase.ESCALATED, due=None), (Escalate(state.nudges, delivered=state.road),)
