"""What happened in an actor system, as told to its one hook (`System(on_event=...)`). Past tense, all of it."""

from __future__ import annotations

from typing import Any

import attrs

__all__ = [
    "ActorCrashed",
    "ActorRestarted",
    "ActorStarted",
    "ActorStopped",
    "DeadLettered",
    "Event",
    "MailboxOverflowed",
    "RestartDelayed",
    "StepTooLong",
    "StopOverran",
    "SupervisorGaveUp",
]


@attrs.frozen
class ActorStarted:
    """`on_start` is through; the actor takes messages."""

    name: str
    actor_class: type


@attrs.frozen
class ActorStopped:
    """An actor ended in good order, or was cancelled because it did not end in time (`killed`)."""

    name: str
    killed: bool


@attrs.frozen
class ActorCrashed:
    """An actor ended with an exception. `hook_error` is what its `on_failure` raised in turn, if it did."""

    name: str
    reason: BaseException
    hook_error: BaseException | None = None


@attrs.frozen
class ActorRestarted:
    """A supervisor has a new incarnation of a child running, the `restarts`-th after the first."""

    name: str
    restarts: int


@attrs.frozen
class RestartDelayed:
    """A supervisor waits `seconds` before it restarts a child."""

    name: str
    seconds: float


@attrs.frozen
class SupervisorGaveUp:
    """A supervisor went over its restart limit and stopped its children; `reason` is the last crash."""

    name: str
    child_id: str
    reason: BaseException | None


@attrs.frozen
class DeadLettered:
    """A message that nobody waits on found nobody to handle it."""

    target: str
    message: Any


@attrs.frozen
class MailboxOverflowed:
    """A mailbox was full and `message` was refused, or dropped as the oldest."""

    name: str
    message: Any


@attrs.frozen
class StopOverran:
    """An actor did not end within its `shutdown` seconds and was cancelled; `stuck` if that did not end it either."""

    name: str
    seconds: float
    stuck: bool


@attrs.frozen
class StepTooLong:
    """A task (an actor's, where `name` is one) kept the loop for `seconds` without a pause: a blocking call."""

    name: str
    seconds: float


Event = (
    ActorStarted
    | ActorStopped
    | ActorCrashed
    | ActorRestarted
    | RestartDelayed
    | SupervisorGaveUp
    | DeadLettered
    | MailboxOverflowed
    | StopOverran
    | StepTooLong
)
