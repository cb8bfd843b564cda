"""The events of an actor system, as passed to its hook (`System(on_event=...)`). Their names are in the past tense."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen
class ActorStarted:
    """`on_start` has returned, and the actor accepts messages."""

    name: str
    actor_class: type


@attrs.frozen
class ActorStopped:
    """An actor ended normally, or was cancelled because it did not end in time (`killed`)."""

    name: str
    killed: bool


@attrs.frozen
class ActorCrashed:
    """An actor ended with an exception. `hook_error` is the exception of its `on_failure`, if that failed too."""

    name: str
    reason: BaseException
    hook_error: BaseException | None = None


@attrs.frozen
class ActorRestarted:
    """A new incarnation of a child is up. `restarts` counts the child's restarts, failed ones included."""

    name: str
    restarts: int


@attrs.frozen
class RestartDelayed:
    """A supervisor waits `seconds` before it restarts a child."""

    name: str
    seconds: float


@attrs.frozen
class SupervisorGaveUp:
    """A supervisor exceeded its restart limit and stops its children. `reason` is the last crash."""

    name: str
    child_id: str
    reason: BaseException | None


@attrs.frozen
class DeadLettered:
    """A message without an asker was not handled, because its actor was not running."""

    target: str
    message: Any


@attrs.frozen
class MailboxOverflowed:
    """A mailbox was full. `message` was refused, or dropped as the oldest."""

    name: str
    message: Any


@attrs.frozen
class StopOverran:
    """An actor did not end within its `shutdown` seconds and was cancelled. `stuck`: it did not end even then."""

    name: str
    seconds: float
    stuck: bool


@attrs.frozen
class StepTooLong:
    """A task blocked the loop for `seconds` in one step. `name` is the actor's name if it is an actor's task."""

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
