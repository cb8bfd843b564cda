"""The watch over the system's clock: it notices when wall time jumps, and has every deadline judged again.

Deadlines are instants by the wall clock, as people see them on cards, and timers run on the steady clock. They part
when somebody sets the clock, when it is corrected, and when the machine sleeps, since the steady clock stands still
then. Silence is the exception: a stall is measured by the steady clock alone, since neither a machine's sleep nor a
clock that is set is an agent's silence.
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

#: Seconds between two looks, and how far the clocks may drift apart between them: a clock that is slewed moves by half
#: a millisecond a second at most.
WATCH_SECONDS = 2.0
JUMP_SECONDS = 0.5
#: A change that people are told of, in seconds.
TOLD_SECONDS = 60.0
#: Who has deadlines of its own, besides the sessions.
_OTHERS = frozenset({"checkpoints", "housekeeping", "slack/outbox"})


def boot_time() -> float:
    """Seconds since the system started, its sleep included; the steady clock's where the system does not tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@frozen
class Clocks:
    """What the three clocks said at one moment: `steady` stands still while the machine sleeps, `boot` does not."""

    wall: datetime
    steady: float
    boot: float


@frozen
class Jump:
    """How far wall time has moved beyond steady time, in seconds, and how much of it the machine slept."""

    seconds: float
    slept: float

    @property
    def set_by(self) -> float:
        """How far the clock was set, forward or (negative) back."""
        return self.seconds - self.slept


def jump(before: Clocks, now: Clocks) -> Jump | None:
    """How wall time jumped between two looks; None where it did not."""
    passed = now.steady - before.steady
    seconds = (now.wall - before.wall).total_seconds() - passed
    slept = max(0.0, now.boot - before.boot - passed)
    if abs(seconds) < JUMP_SECONDS and slept < JUMP_SECONDS:
        return None
    return Jump(seconds, slept)


@define
class Noticed:
    """What outlives a watch that crashes: what the clocks said at its `last` look, and a jump that is `untold`."""

    last: Clocks | None = None
    untold: Jump | None = None


class ClockWatch(Actor):
    """Registered as `clock-watch`. `now` is the wall clock, `boot` seconds since the system started. With the `noticed`
    of the watch before it, it goes on where that one crashed."""

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
            # The store was asked to move the outbox's times before the crash; twice would be too often.
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
            # What waits to be sent again waits as long as before.
            await ask(self._store, Transact(partial(outbox.shift, seconds=found.seconds)), timeout=30.0, retry=True)
        except IntercomError as failed:
            log.warning("the outbox keeps its times: %s", failed)
        self._tell_all(found)

    def _tell_all(self, found: Jump) -> None:
        """Have every deadline judged again."""
        changed = ClockChanged(found.seconds)
        for name in _names(self.system.inspect()):
            if name in _OTHERS or name.startswith("session/"):
                try:
                    self.system.named(name).tell(changed)
                except NotRunning:
                    continue  # it judges its deadlines when it starts
        self._noticed.untold = None


def _names(info: Info) -> Iterator[str]:
    yield info.name
    for child in info.children:
        yield from _names(child)


def _told(found: Jump) -> str:
    span = timedelta(seconds=round(abs(found.set_by)))
    way = "forward" if found.set_by > 0 else "back"
    return f"the system's clock was set {way} by {span}: what waits expires at the time its card says, by the new clock"
