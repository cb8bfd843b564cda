"""What a child actor hears from its own tasks and timers: nobody else sends these."""

from __future__ import annotations

from attrs import frozen

from intercom.model.child import Exit
from intercom.sessions.spawning.kept import Keeper, Status


@frozen
class Look:
    """See how things stand."""


@frozen
class KeeperUp:
    """A keeper is there and waits to be told what to run; or why there is none."""

    run: int
    keeper: Keeper | None
    fault: str | None = None


@frozen
class Told:
    """The keeper has been told, and this is its answer; or why there is none."""

    run: int
    status: Status | None
    fault: str | None = None


@frozen
class Said:
    """The session knows that its process runs."""


@frozen
class Ended:
    """The process of this run is gone."""

    run: int
    exit: Exit


@frozen
class WoundUp:
    """Nothing of this run is left, and its session knows."""

    run: int


@frozen
class RunAgain:
    """A timer: the pause before a restart is over."""
