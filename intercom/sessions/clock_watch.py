"""The clock watch: it notices when wall time jumps, and has every deadline checked again.

Deadlines are wall-clock times, as cards show them, but timers run on the monotonic clock. The two diverge when somebody
sets the clock, when it is corrected, and when the machine sleeps. Stalls are measured by the monotonic clock alone:
neither sleep nor a set clock is an agent's silence.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import trio
from attrs import define, frozen

from actors import Actor, Info, Name, NotRunning, ask
from intercom.model.card import Notice
from intercom.model.errors import IntercomError
from intercom.sessions.timers import ClockChanged
from intercom.store import outbox
from intercom.store.messages import Transact

log = logging.getLogger("intercom.sessions")

#: Seconds between two checks, and how far the clocks may drift apart in between: a slewed clock moves by at most half a
#: millisecond a second.
WATCH_SECONDS = 2.0
JUMP_SECONDS = 0.5
#: People are told of a change of at least this many seconds.
TOLD_SECONDS = 60.0
#: The actors with deadlines of their own, besides the sessions.
_OTHERS = frozenset({"checkpoints", "housekeeping", "slack/outbox"})


def boot_time() -> float:
    """Return the seconds since the system started, including its sleep. Falls back to the monotonic clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@frozen
class Clocks:
    """The readings of three clocks at one moment. `steady` stops while the machine sleeps, `boot` does not."""

    wall: datetime
    steady: float
    boot: float


@frozen
class Jump:
    """How far wall time moved beyond monotonic time, in seconds, and how long the machine slept."""

    seconds: float
    slept: float

    @property
    def set_by(self) -> float:
        """How far the clock was set, forward or (negative) back, in seconds."""
        return self.seconds - self.slept


def jump(before: Clocks, now: Clocks) -> Jump | None:
    """Return how wall time jumped between two readings; None if it did not."""
    passed = now.steady - before.steady
    seconds = (now.wall - before.wall).total_seconds() - passed
    slept = max(0.0, now.boot - before.boot - passed)
    if abs(seconds) < JUMP_SECONDS and slept < JUMP_SECONDS:
        return None
    return Jump(seconds, slept)


@define
class Noticed:
    """What survives a crash of the watch: its `last` readings, and a jump that is `untold`."""

    last: Clocks | None = None
    untold: Jump | None = None


class ClockWatch(Actor):
    """The actor `clock-watch`. `now` is the wall clock, `boot` returns the seconds since the system started. `noticed`
    lets it continue after a crash."""

    def __init__(
        self,
        store: Name,
        operators: Name,
        now: Callable[[], datetime],
        boot: Callable[[], float] | None = None,
        noticed: Noticed | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._operators = operators
        self._now = now
        self._boot = boot or trio.current_time
        self._noticed = Noticed() if noticed is None else noticed

    def on_start(self) -> None:
        if self._noticed.last is None:
            self._noticed.last = self._clocks()
        if self._noticed.untold is not None:
            # The store was asked to shift the outbox's times before the crash. Shifting twice would be wrong.
            self._tell_all(self._noticed.untold)
        self.set_timer("look", WATCH_SECONDS, "look")

    async def on_receive(self, message: Any) -> None:
        now = self._clocks()
        found = None if self._noticed.last is None else jump(self._noticed.last, now)
        self._noticed.last = now
        self.set_timer("look", WATCH_SECONDS, "look")
        if found is not None:
            await self._changed(found)

    def _clocks(self) -> Clocks:
        return Clocks(self._now(), trio.current_time(), self._boot())

    async def _changed(self, found: Jump) -> None:
        log.warning(
            "the clock jumped by %.1f s (%.1f s of them the machine slept): deadlines are judged again",
            found.seconds,
            found.slept,
        )
        self._noticed.untold = found
        if abs(found.set_by) >= TOLD_SECONDS:
            self._operators.tell(Notice(_told(found), "warning", self._now()))
        try:
            # Queued rows keep waiting as long as before.
            await ask(self._store, Transact(partial(outbox.shift, seconds=found.seconds)), timeout=30.0, retry=True)
        except IntercomError as failed:
            log.warning("the outbox keeps its times: %s", failed)
        self._tell_all(found)

    def _tell_all(self, found: Jump) -> None:
        """Tell every actor with deadlines to check them again."""
        changed = ClockChanged(found.seconds)
        for name in _names(self.system.inspect()):
            if name in _OTHERS or name.startswith("session/"):
                try:
                    self.system.named(name).tell(changed)
                except NotRunning:
                    continue  # it checks its deadlines when it starts
        self._noticed.untold = None


def _names(info: Info) -> Iterator[str]:
    yield info.name
    for child in info.children:
        yield from _names(child)


def _told(found: Jump) -> str:
    span = timedelta(seconds=round(abs(found.set_by)))
    way = "forward" if found.set_by > 0 else "back"
    return f"the system's clock was set {way} by {span}: what waits expires at the time its card says, by the new clock"
