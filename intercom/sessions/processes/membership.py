"""Which processes belong to a session: found, stopped, continued and ended.

They are the processes of the agent's own system session, the descendants of its monitor, and those with the session's
id in their environment. Only a process that shed all three can escape.
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

from intercom.model.process import Process
from intercom.sessions.processes.command import SESSION_ID

#: Seconds between asking processes to end and killing them, and how long killing may take.
GRACE_SECONDS = 5.0
_KILL_SECONDS = 3.0
_POLL_SECONDS = 0.03
#: How often processes are searched again that a signal missed, because they were just being started.
_ROUNDS = 5
#: Two reported start times of one process may differ by this many seconds.
_SAME_SECONDS = 0.05


@frozen
class Family:
    """The processes of a session: the descendants of `keeper`, and the system session of `leader` (a pid). `spared` are
    pids that belong to others, although an agent may have started them: this server, and monitors."""

    session_id: str
    keeper: Process | None
    leader: int | None
    spared: Collection[int] = ()

    def members(self) -> list[int]:
        """Return their pids, without the monitor's and without ended ones. Blocks while it reads all processes."""
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
    """Return the session whose id this process was started with; None if there is none, or it cannot be read."""
    try:
        return psutil.Process(pid).environ().get(SESSION_ID)
    except (psutil.Error, OSError, ValueError):
        return None


def identify(pid: int) -> Process | None:
    """Return the process that has this pid now; None if there is none, or only a zombie."""
    try:
        return None if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else Process(pid, _began(pid))
    except (psutil.Error, OSError, ValueError):
        return None


def _began(pid: int) -> float:
    """Return when a process started, in seconds. It counts since boot where the system reports that, because setting
    the clock shifts wall-clock start times; otherwise since the epoch."""
    if not sys.platform.startswith("linux"):
        return psutil.Process(pid).create_time()
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The name, in parentheses, may contain anything.
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def is_alive(known: Process | None) -> bool:
    """Return whether exactly this process exists and has not ended."""
    if known is None:
        return False
    found = identify(known.pid)
    return found is not None and abs(found.began - known.began) < _SAME_SECONDS


def send(pids: Collection[int], number: signal.Signals) -> None:
    """Send a signal to each process that still exists and is ours."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, number)


async def reach(members: Callable[[], list[int]], number: signal.Signals) -> int:
    """Send a signal to all members, also to those started meanwhile. Returns how many got it."""
    reached: set[int] = set()
    for _ in range(_ROUNDS):
        found = set(await trio.to_thread.run_sync(members)) - reached
        if not found:
            break
        send(found, number)
        reached |= found
    return len(reached)


async def end(members: Callable[[], list[int]]) -> bool:
    """Ask all members to end, and kill the rest after `GRACE_SECONDS`. False if some remain even then."""
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        left = await trio.to_thread.run_sync(members)
        send(left, number)
        # A stopped process would not handle the signal.
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
    """Return all processes with their parents."""
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
        # Descendants of a spared process are spared too.
        next_ones = [pid for pid in children.get(at_hand.pop(), ()) if pid not in spared and pid not in found]
        found.update(next_ones)
        at_hand += next_ones
    return found
