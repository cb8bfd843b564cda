"""What a supervisor does next: a pure function, so that the rules can be tested without a task or a clock.

`decide(state, event, now)` answers with the next state and the actions that lead there. The shell (a supervisor)
performs the actions one by one and reports how each start went; a failed start replaces what was left of the plan.
"""

from __future__ import annotations

import enum
from bisect import bisect_right

import attrs

from actors.spec import Backoff, Restart, Strategy

__all__ = [
    "Action",
    "Child",
    "Due",
    "Event",
    "Exited",
    "GiveUp",
    "Phase",
    "Start",
    "StartFailed",
    "Started",
    "State",
    "Stop",
    "Wait",
    "decide",
]


class Phase(enum.Enum):
    """Where a child stands."""

    UP = "up"
    DOWN = "down"  # not running, to be started
    WAITING = "waiting"  # not running, its restart is timed
    GONE = "gone"  # ended, and not to be started again


@attrs.frozen
class Child:
    """One child as the rules see it: `failures` in a row, and when it came `up_at` (seconds) if it is up."""

    id: str
    restart: Restart = Restart.PERMANENT
    phase: Phase = Phase.DOWN
    failures: int = 0
    up_at: float | None = None


@attrs.frozen
class State:
    """The children in the order of their start, the rules, and when the restarts of late were (seconds)."""

    children: tuple[Child, ...]
    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    within: float = 5.0
    backoff: Backoff | None = None
    restarted_at: tuple[float, ...] = ()


@attrs.frozen
class Started:
    """The child's `on_start` is through."""

    id: str


@attrs.frozen
class StartFailed:
    """The child fell while it started; that counts as a crash."""

    id: str


@attrs.frozen
class Exited:
    """The child ended by itself, with an exception or without."""

    id: str
    crashed: bool


@attrs.frozen
class Due:
    """The wait before the child's restart is over."""

    id: str


Event = Started | StartFailed | Exited | Due


@attrs.frozen
class Start:
    """Start the child."""

    id: str


@attrs.frozen
class Stop:
    """Stop the child and wait until it is gone."""

    id: str


@attrs.frozen
class Wait:
    """Report `Due` for the child after so many seconds."""

    id: str
    seconds: float


@attrs.frozen
class GiveUp:
    """Stop all children and go down; the child is the one that fell last."""

    id: str


Action = Start | Stop | Wait | GiveUp


def decide(state: State, event: Event, now: float) -> tuple[State, tuple[Action, ...]]:
    """The next state after `event` at `now` (seconds, any monotonic clock), and the actions, in order, that lead to it.

    Events that no longer mean anything (a wait that was overtaken, the end of a child that is gone) change nothing.
    """
    position = next((i for i, child in enumerate(state.children) if child.id == event.id), None)
    if position is None:
        return state, ()
    child = state.children[position]
    match event:
        case Started():
            return _with(state, attrs.evolve(child, phase=Phase.UP, up_at=now)), ()
        case Due():
            return _begin_again(state, position) if child.phase is Phase.WAITING else (state, ())
        case Exited(crashed=crashed):
            if child.phase is not Phase.UP:
                return state, ()
            if child.restart is Restart.TEMPORARY or (child.restart is Restart.TRANSIENT and not crashed):
                return _with(state, attrs.evolve(child, phase=Phase.GONE, up_at=None)), ()
            return _fall(state, position, now)
        case _:  # StartFailed
            return _fall(state, position, now)


def _fall(state: State, position: int, now: float) -> tuple[State, tuple[Action, ...]]:
    """Count a crash; stop who falls with the child, and start them again, at once or after a wait."""
    child = state.children[position]
    recent = (*state.restarted_at[bisect_right(state.restarted_at, now - state.within) :], now)
    if len(recent) > state.max_restarts:
        return attrs.evolve(state, restarted_at=recent), (GiveUp(child.id),)

    backoff = state.backoff
    failures = child.failures
    if backoff is not None and child.up_at is not None and now - child.up_at >= backoff.reset_after:
        failures = 0
    fallen = attrs.evolve(child, phase=Phase.WAITING, failures=failures + 1, up_at=None)
    state = _with(attrs.evolve(state, restarted_at=recent), fallen)

    stops: list[Action] = []
    for other in reversed(_group(state, position)):
        if other.id == child.id:
            continue
        if other.phase is Phase.UP:
            stops.append(Stop(other.id))
            # Nobody waits to see a temporary child again, so its group's restart leaves it out.
            then = Phase.GONE if other.restart is Restart.TEMPORARY else Phase.DOWN
            state = _with(state, attrs.evolve(other, phase=then, up_at=None))
        elif other.phase is Phase.WAITING:
            state = _with(state, attrs.evolve(other, phase=Phase.DOWN))
    if backoff is not None:
        return state, (*stops, Wait(child.id, backoff.delay(failures)))
    state, starts = _begin_again(state, position)
    return state, (*stops, *starts)


def _begin_again(state: State, position: int) -> tuple[State, tuple[Action, ...]]:
    """Start, in order, whoever of the child's group is not running and should be."""
    starts: list[Action] = []
    for child in _group(state, position):
        if child.phase is Phase.WAITING:
            state = _with(state, attrs.evolve(child, phase=Phase.DOWN))
        elif child.phase is not Phase.DOWN:
            continue
        starts.append(Start(child.id))
    return state, tuple(starts)


def _group(state: State, position: int) -> tuple[Child, ...]:
    """Who is restarted with the child at `position`, itself included, in the order of their start."""
    match state.strategy:
        case Strategy.ONE_FOR_ONE:
            return state.children[position : position + 1]
        case Strategy.REST_FOR_ONE:
            return state.children[position:]
        case _:  # one_for_all
            return state.children


def _with(state: State, changed: Child) -> State:
    children = tuple(changed if child.id == changed.id else child for child in state.children)
    return attrs.evolve(state, children=children)
