"""How a supervisor starts, restarts and stops a child."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from actors._actor import Actor

__all__ = ["Backoff", "ChildSpec", "Restart", "Strategy"]


class Restart(enum.Enum):
    """When a child that ended by itself is started again."""

    PERMANENT = "permanent"  # always
    TRANSIENT = "transient"  # after a crash
    TEMPORARY = "temporary"  # never


class Strategy(enum.Enum):
    """Who is restarted with a child that crashed."""

    ONE_FOR_ONE = "one_for_one"  # the child alone
    ONE_FOR_ALL = "one_for_all"  # all children
    REST_FOR_ONE = "rest_for_one"  # the child and those started after it


@attrs.frozen
class Backoff:
    """How long to wait before a restart: `initial` s, then `factor` times more each time, at most `max` s.

    Each wait is scattered by plus or minus `jitter` (a share, 0 to 1). A child that stayed up for `reset_after` s
    begins anew with `initial`.
    """

    initial: float = attrs.field(default=0.1, validator=attrs.validators.ge(0))
    factor: float = attrs.field(default=2.0, validator=attrs.validators.ge(1))
    max: float = attrs.field(default=30.0, validator=attrs.validators.ge(0))
    jitter: float = attrs.field(default=0.1, validator=[attrs.validators.ge(0), attrs.validators.le(1)])
    reset_after: float = attrs.field(default=60.0, validator=attrs.validators.ge(0))

    def delay(self, attempt: int) -> float:
        """Seconds to wait before the restart after `attempt` failures in a row (0 for the first), without jitter."""
        # Past 64 doublings any cap is reached, and a float would overflow.
        return min(self.max, self.initial * self.factor ** min(attempt, 64))


@attrs.frozen
class ChildSpec:
    """One child of a supervisor.

    `start` makes a new actor (it is called again for every incarnation; it must not start it). `shutdown` is how many
    seconds a stop may take before the child is cancelled, None for as long as it takes (right for supervisors).
    `name` is what the child is registered under in the whole system; it defaults to `id`, which is unique among
    its siblings.
    """

    id: str
    start: Callable[[], Actor]
    restart: Restart = Restart.PERMANENT
    shutdown: float | None = 5.0
    name: str | None = None

    @property
    def registered_name(self) -> str:
        """The name the child is registered under."""
        return self.id if self.name is None else self.name
