"""The restart rules of a supervisor, as a pure function: tests need no task and no clock.

`decide(state, event, now)` returns the next state and the actions that lead to it. A supervisor performs the actions
one by one and reports the result of each start. A failed start replaces the rest of the plan.
"""

from __future__ import annotations

import enum
from bisect import bisect_right

import attrs

from actors.spec import Backoff, Restart, Strategy


class Phase(enum.Enum):
    """The status of a child."""

    UP = "up"
    DOWN = "down"  # not running, will be started
    WAITING = "waiting"  # not running, its restart is delayed
    GONE = "gone"  # ended, will not be started again


@attrs.frozen
class Child:
    """One child, as the rules see it: its `failures` in a row, and its start time `up_at` (seconds) while it is up."""

    id: str
    restart: Restart = Restart.PERMANENT
    phase: Phase = Phase.DOWN
    failures: int = 0
    up_at: float | None = None


@attrs.frozen
class State:
    """The children in start order, the rules, and the times (seconds) of recent restarts."""

    children: tuple[Child, ...]
    strategy: Strategy = Strategy.ONE_FOR_ONE
    max_restarts: int = 3
    within: float = 5.0
    backoff: Backoff | None = None
    restarted_at: tuple[float, ...] = ()


@attrs.frozen
class Started:
    """The child's `on_start` has returned."""

    id: str


@attrs.frozen
class StartFailed:
    """The child crashed while it started. This counts as a crash."""

    id: str


@attrs.frozen
class Exited:
    """The child ended by itself, with an exception or without."""

    id: str
    crashed: bool


@attrs.frozen
class Due:
    """The delay before the child's restart is over."""

    id: str


Event = Started | StartFailed | Exited | Due


@attrs.frozen
class Start:
    """Start the child."""

    id: str


@attrs.frozen
class Stop:
    """Stop the child and wait until it has ended."""

    id: str


@attrs.frozen
class Wait:
    """Report `Due` for the child after `seconds`."""

    id: str
    seconds: float


@attrs.frozen
class GiveUp:
    """Stop all children and crash. `id` is the child that crashed last."""

    id: str


Action = Start | Stop | Wait | GiveUp


def decide(state: State, event: Event, now: float) -> tuple[State, tuple[Action, ...]]:
    """Return the state after `event` at `now` (seconds, any monotonic clock), and the ordered actions that lead to it.

    Outdated events change nothing. Examples are a delay that was overtaken, and the end of a child that is gone.
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
            return _crashed(state, position, now)
        case _:  # StartFailed
            return _crashed(state, position, now)


def _crashed(state: State, position: int, now: float) -> tuple[State, tuple[Action, ...]]:
    """Count a crash. Stop the children that restart with this one, and start them again, at once or after a delay."""
    child = state.children[position]
    recent = (*state.restarted_at[bisect_right(state.restarted_at, now - state.within) :], now)
    if len(recent) > state.max_restarts:
        return attrs.evolve(state, restarted_at=recent), (GiveUp(child.id),)

    backoff = state.backoff
    failures = child.failures
    if backoff is not None and child.up_at is not None and now - child.up_at >= backoff.reset_after:
        failures = 0
    crashed = attrs.evolve(child, phase=Phase.WAITING, failures=failures + 1, up_at=None)
    state = _with(attrs.evolve(state, restarted_at=recent), crashed)

    stops: list[Action] = []
    for other in reversed(_group(state, position)):
        if other.id == child.id:
            continue
        if other.phase is Phase.UP:
            stops.append(Stop(other.id))
            # A temporary child is never restarted, not even with its group.
            then = Phase.GONE if other.restart is Restart.TEMPORARY else Phase.DOWN
            state = _with(state, attrs.evolve(other, phase=then, up_at=None))
        elif other.phase is Phase.WAITING:
            state = _with(state, attrs.evolve(other, phase=Phase.DOWN))
    if backoff is not None:
        return state, (*stops, Wait(child.id, backoff.delay(failures)))
    state, starts = _begin_again(state, position)
    return state, (*stops, *starts)


def _begin_again(state: State, position: int) -> tuple[State, tuple[Action, ...]]:
    """Start, in order, the children of the group that are down or whose restart is delayed."""
    starts: list[Action] = []
    for child in _group(state, position):
        if child.phase is Phase.WAITING:
            state = _with(state, attrs.evolve(child, phase=Phase.DOWN))
        elif child.phase is not Phase.DOWN:
            continue
        starts.append(Start(child.id))
    return state, tuple(starts)


def _group(state: State, position: int) -> tuple[Child, ...]:
    """Return the children that restart with the one at `position`, itself included, in start order."""
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
