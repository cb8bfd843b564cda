"""Whose processes are whose: finding all that belong to one session, stopping, continuing and ending them.

They are those of the agent's own session (in the system's sense), all that descend from its keeper, and all that carry
the session's id in their environment. Only a process that shed all three can get away.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Collection
from contextlib import suppress

import psutil
import trio
from attrs import frozen

from intercom.model.child import Process
from intercom.sessions.spawning.environment import SESSION_ID

#: How long processes have between being asked to end and being killed, and how long that may take, in seconds.
GRACE_SECONDS = 5.0
_KILL_SECONDS = 3.0
_POLL_SECONDS = 0.03
#: How often processes are looked for again that a signal missed: they were being started.
_ROUNDS = 5
#: Two start times of one process, as the system tells them, may differ by so many seconds.
_SAME_SECONDS = 0.05


@frozen
class Family:
    """The processes of a session: of `keeper` all descendants, of `leader` (a pid) the system's session. `spared` are
    pids that are others', although an agent may have been at their beginning: this server, and keepers."""

    session_id: str
    keeper: Process | None
    leader: int | None
    spared: Collection[int] = ()

    def members(self) -> list[int]:
        """Their pids now, without the keeper's and without those that have ended. Blocks while it looks at all
        processes."""
        parents = _parents()
        spared = {os.getpid(), *self.spared}
        keeper = self.keeper
        descend = set()
        if keeper is not None and is_alive(keeper):
            descend = _descendants(keeper.pid, parents, spared)
        found = {pid for pid in parents if pid in descend or self._is_marked(pid) or self._is_led(pid)}
        if keeper is not None:
            spared.add(keeper.pid)
        return [pid for pid in found - spared if not _has_ended(pid)]

    def _is_led(self, pid: int) -> bool:
        try:
            return self.leader is not None and self.leader in (os.getsid(pid), os.getpgid(pid))
        except OSError:
            return False

    def _is_marked(self, pid: int) -> bool:
        return marked(pid) == self.session_id


def marked(pid: int) -> str | None:
    """The session whose id this process was started with; None for none, and for what can not be seen."""
    try:
        return psutil.Process(pid).environ().get(SESSION_ID)
    except (psutil.Error, OSError, ValueError):
        return None


def identify(pid: int) -> Process | None:
    """Which process has this pid now; None when there is none, or only its remains."""
    try:
        return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else Process(pid, _began(pid))
    except (psutil.Error, OSError, ValueError):
        return None


def _began(pid: int) -> float:
    """When a process started: in seconds since the system did, where that is told, since a clock that is set moves all
    start times that are told by it; else since the epoch."""
    if not sys.platform.startswith("linux"):
        return psutil.Process(pid).create_time()
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in parentheses, may hold anything.
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def is_alive(known: Process | None) -> bool:
    """Whether exactly this process is there, and has not ended."""
    if known is None:
        return False
    found = identify(known.pid)
    return found is not None and abs(found.began - known.began) < _SAME_SECONDS


def send(pids: Collection[int], number: signal.Signals) -> None:
    """Send a signal to each that is still there and ours."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


async def reach(members: Callable[[], list[int]], number: signal.Signals) -> int:
    """Send a signal to all there are, also to those that are being started meanwhile; to how many it was sent."""
    reached: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(await trio.to_thread.run_sync(members)) - reached
        if not found:
            break
        send(found, number)
        reached |= found
    return len(reached)


async def end(members: Callable[[], list[int]]) -> bool:
    """Ask all to end, kill who is left after `GRACE_SECONDS`; False when some are there even then."""
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        left = await trio.to_thread.run_sync(members)
        send(left, number)
        # One that stands still would not hear of it.
        send(left, signal.SIGCONT)
        with trio.move_on_after(seconds):
            while left:
                await trio.sleep(_POLL_SECONDS)
                if all(_has_ended(pid) for pid in left):
                    # Others may have been started since.
                    left = await trio.to_thread.run_sync(members)
                    send(left, number)
        if not left:
            return True
    return not await trio.to_thread.run_sync(members)


def _has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError):
        return True


def _parents() -> dict[int, int]:
    """All processes, with who started each (or took it over)."""
    found = {}
    for pid in psutil.pids():
        try:
            found[pid] = psutil.Process(pid).ppid()
        except psutil.Error:
            continue
    return found


def _descendants(root: int, parents: dict[int, int], spared: Collection[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    at_hand = [root]
    while at_hand:
        # What a spared one started is as little the agent's.
        next_ones = [pid for pid in children.get(at_hand.pop(), ()) if pid not in spared and pid not in found]
        found.update(next_ones)
        at_hand += next_ones
    return found
