"""How a supervisor starts, restarts and stops a child."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Protocol

import attrs
import pykka


class Behaviour(Protocol):
    """The part of an actor that references, systems and supervisors use. Every `actors.Actor` has it."""

    mailbox_size: ClassVar[int]

    @property
    def actor_ref(self) -> pykka.ActorRef[Any]: ...

    async def _live(self) -> None: ...

    def _child_slots(self) -> Collection[Any]: ...


class Restart(enum.Enum):
    """When a child that ended by itself is restarted."""

    PERMANENT = "permanent"  # always
    TRANSIENT = "transient"  # after a crash
    TEMPORARY = "temporary"  # never


class Strategy(enum.Enum):
    """Which children are restarted with a child that crashed."""

    ONE_FOR_ONE = "one_for_one"  # the child alone
    ONE_FOR_ALL = "one_for_all"  # all children
    REST_FOR_ONE = "rest_for_one"  # the child and those that start after it


@attrs.frozen
class Backoff:
    """The delay before a restart: first `initial` seconds, then `factor` times more each time, at most `max` seconds.

    Each delay varies at random by plus or minus `jitter` (a share, 0 to 1). After a child was up for `reset_after`
    seconds, the delay starts again with `initial`.
    """

    initial: float = attrs.field(default=0.1, validator=attrs.validators.ge(0))
    factor: float = attrs.field(default=2.0, validator=attrs.validators.ge(1))
    max: float = attrs.field(default=30.0, validator=attrs.validators.ge(0))
    jitter: float = attrs.field(default=0.1, validator=[attrs.validators.ge(0), attrs.validators.le(1)])
    reset_after: float = attrs.field(default=60.0, validator=attrs.validators.ge(0))

    def delay(self, attempt: int) -> float:
        """Return the delay in seconds, without jitter, for a failure after `attempt` earlier ones in a row."""
        # After 64 doublings any maximum is reached, and a float would overflow.
        return min(self.max, self.initial * self.factor ** min(attempt, 64))


@attrs.frozen
class ChildSpec:
    """One child of a supervisor.

    `start` creates a new actor and must not start it; it is called for every incarnation. `shutdown` is the time limit
    of a stop in seconds, after which the child is cancelled. None means no limit, which is right for supervisors.
    `name` is registered in the whole system and defaults to `id`, which is unique among siblings.
    """

    id: str
    start: Callable[[], Behaviour]
    restart: Restart = Restart.PERMANENT
    shutdown: float | None = 5.0
    name: str | None = None

    @property
    def registered_name(self) -> str:
        """The name the child is registered under."""
        return self.id if self.name is None else self.name
