"""The processes of local downstreams: files that name those that run, and the end of a process with all its group.

A server that is killed cannot end its downstreams. Most end by themselves when their input is closed. For the others
the next server finds a file in `ProcessRecords.directory`, whose name identifies the process by pid, start and boot.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import trio
from attrs import define, field

from intercom.local import processes
from intercom.local.places import private_directory
from intercom.local.processes import NotExaminable, ProcessKey
from intercom.model.errors import IntercomError

log = logging.getLogger("intercom.gateway")

_POLL_SECONDS: Final = 0.03
#: How long a process of an earlier server may take to end when it is terminated (seconds).
GRACE_SECONDS: Final = 2.0


@define(eq=False)
class ProcessRecords:
    """The files of one state directory, which one server uses at a time."""

    directory: Path
    #: The names of the files of this server.
    _own: set[str] = field(factory=set, init=False)

    @contextmanager
    def running(self, pid: int) -> Iterator[None]:
        """Record a process for the time of the block, which ends it. If that cannot be written, the log says so, and
        the process runs all the same."""
        name = None
        try:
            name = _name(processes.examine(pid).key)
            private_directory(str(self.directory))
            # It was there if an earlier server of this boot has failed to end this very process.
            os.close(os.open(self.directory / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            self._own.add(name)
        except NotExaminable:
            # It has ended already.
            pass
        except (OSError, IntercomError) as fault:
            log.warning("the process %d of a downstream could not be recorded: %s", pid, fault)
        try:
            yield
        finally:
            if name is not None:
                self._own.discard(name)
                with suppress(OSError):
                    os.unlink(self.directory / name)

    async def end_left(self) -> None:
        """End the processes that earlier servers have left, each with its group. Takes a few times GRACE_SECONDS at
        most. A file whose process could not be ended stays for the next server."""
        names = [each for each in self._names() if each not in self._own]
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self._end, name)

    def _names(self) -> list[str]:
        try:
            private_directory(str(self.directory))
            return os.listdir(self.directory)
        except (OSError, IntercomError) as fault:
            log.warning("processes that an earlier server may have left are not looked for: %s", fault)
            return []

    async def _end(self, name: str) -> None:
        key = _key(name)
        if key is None:
            return
        if await trio.to_thread.run_sync(_is_left, key):
            log.warning("the process %d of a downstream was left by an earlier server, and is ended", key.pid)
            if not await end_group(key.pid, GRACE_SECONDS):
                log.error("the process %d of a downstream, left by an earlier server, does not end", key.pid)
                return
        with suppress(OSError):
            os.unlink(self.directory / name)


def _name(key: ProcessKey) -> str:
    return f"{key.pid}.{key.started}.{key.boot}"


def _key(name: str) -> ProcessKey | None:
    pid, _, rest = name.partition(".")
    started, _, boot = rest.partition(".")
    if not (pid.isascii() and pid.isdecimal() and started.isascii() and started.isdecimal() and boot):
        return None
    key = ProcessKey(int(pid), int(started), boot)
    return key if key.pid > 1 and _name(key) == name else None


def _is_left(key: ProcessKey) -> bool:
    """Whether this process runs, or others of its session do. Its number is given to no other process meanwhile."""
    if key.boot != processes.boot_id():
        return False
    try:
        return processes.examine(key.pid).key == key
    except NotExaminable:
        return any(each.session == key.pid and each.key.started >= key.started for each in processes.every())


async def end_group(leader: int, grace: float) -> bool:
    """Terminate the processes of the leader's group and session, and kill those that still run after `grace` seconds.
    Returns whether none is left after as long again."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        left = _members(leader)
        _signal(leader, left, number)
        with trio.move_on_after(grace):
            while left:
                await trio.sleep(_POLL_SECONDS)
                left = _members(leader)
                if number == signal.SIGKILL:
                    # A process may have started another before it was killed.
                    _signal(leader, left, number)
        if not left:
            return True
    return False


def _members(leader: int) -> list[int]:
    """Return the living processes of the leader's group and session."""
    found = []
    for pid in psutil.pids():
        try:
            if leader in (os.getpgid(pid), os.getsid(pid)):
                alive = psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
                found += [pid] if alive else []
        except (OSError, psutil.Error):
            continue
    return found


def _signal(leader: int, left: list[int], number: signal.Signals) -> None:
    if not left:
        return
    # The whole group at once, before one of its processes starts another; then those of other groups.
    with suppress(OSError):
        os.killpg(leader, number)
    for pid in left:
        with suppress(OSError):
            if os.getpgid(pid) != leader:
                os.kill(pid, number)
