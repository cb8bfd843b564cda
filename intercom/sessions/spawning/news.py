"""Messages of an agent process actor's own tasks and timers. Nothing else sends them."""

from __future__ import annotations

from attrs import frozen

from intercom.model.child import Exit
from intercom.sessions.spawning.kept import Keeper, Status


@frozen
class Look:
    """Read the current state."""


@frozen
class KeeperUp:
    """A process monitor runs and waits to be told what to run; or why there is none."""

    run: int
    keeper: Keeper | None
    fault: str | None = None


@frozen
class Told:
    """The monitor's answer to what it was told to run; or why there is none."""

    run: int
    status: Status | None
    fault: str | None = None


@frozen
class Said:
    """The session was told that its process runs."""


@frozen
class Ended:
    """The process of this run is gone."""

    run: int
    exit: Exit


@frozen
class WoundUp:
    """Nothing of this run is left, and its session was told."""

    run: int


@frozen
class RunAgain:
    """A timer: the pause before a restart is over."""
