"""The protocol between a session and its stall detector."""

from __future__ import annotations

from attrs import frozen


@frozen
class Activity:
    """The agent made a call, or got a result."""


@frozen
class Prodded:
    """A person sent the agent a message, and it has time to answer from now on."""


@frozen
class Watch:
    """The agent's status. `resting`: it waits for a person, or is not connected, so silence is no stall. `road`:
    whether messages can reach it."""

    resting: bool
    road: bool


@frozen
class DetectorStarted:
    """The detector has started, and rests until `Watch` tells it the agent's status."""


@frozen
class Stalled:
    """The agent has been quiet for too long, for this many seconds."""

    idle_seconds: int


@frozen
class NudgeDue:
    """Nobody has handled the stall: nudge number `count` is due."""

    count: int


@frozen
class Escalated:
    """Nudging has ended after `count` nudges. `delivered` is False if messages could not reach the agent."""

    count: int
    delivered: bool


@frozen
class Recovered:
    """The stalled agent has done something."""
