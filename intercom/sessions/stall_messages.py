"""The protocol between a session and its stall detector."""

from __future__ import annotations

from attrs import frozen


@frozen
class Activity:
    """The agent made a call, or got a result."""


@frozen
class Prodded:
    """A person said something to the agent, which has time to answer from now on."""


@frozen
class Watch:
    """How things stand with the agent. `resting`: it waits for a person, or is not there, so silence is no stall;
    `road`: whether words can reach it."""

    resting: bool
    road: bool


@frozen
class DetectorStarted:
    """The detector runs (again) and rests until it is told, by `Watch`, how things stand."""


@frozen
class Stalled:
    """The agent has been quiet for so many seconds, longer than it may."""

    idle_seconds: int


@frozen
class NudgeDue:
    """Nobody has seen to the stall: it is time for nudge number `count`."""

    count: int


@frozen
class Escalated:
    """Nudging is over after `count` nudges. `delivered` is False where no road led to the agent."""

    count: int
    delivered: bool


@frozen
class Recovered:
    """The agent that was taken for stalled has done something."""
