"""The processes of local downstreams: files that name those that run, and the end of a process with all its group.

A server that is killed cannot end its downstreams. Most end by themselves when their input is closed. For the others
the next server finds a file in `ProcessRecords.directory`, whose name identifies the process by pid, start and boot.
The server of a process locks its file, so other servers with the same state directory leave the process alone.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import trio
from attrs import define

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
    """The files of one state directory, which several servers may use at a time."""

    directory: Path

    @contextmanager
    def running(self, pid: int) -> Iterator[None]:
        """Record a process for the time of the block, which ends it. If that cannot be written, the log says so, and
        the process runs all the same."""
        record = None
        try:
            record = self._record(pid)
        except NotExaminable:
            # It has ended already.
            pass
        except (OSError, IntercomError) as fault:
            log.warning("the process %d of a downstream could not be recorded: %s", pid, fault)
        try:
            yield
        finally:
            if record is not None:
                path, lock = record
                with suppress(OSError):
                    os.unlink(path)
                os.close(lock)

    def _record(self, pid: int) -> tuple[Path, int]:
        """Write the file of a process. Returns its path, and the descriptor that has its lock as long as it is open:
        the system closes it when this server is killed."""
        path = self.directory / _name(processes.examine(pid).key)
        private_directory(str(self.directory))
        # Without its name no server looks at the file, so none finds it before it is locked.
        draft = path.with_name(f".{path.name}")
        lock = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(draft, path)
        except BaseException:
            os.close(lock)
            raise
        return path, lock

    async def end_left(self) -> None:
        """End the processes that killed servers have left, each with its group, but not those of servers that run.
        Takes a few times GRACE_SECONDS at most. A file whose process could not be ended stays for the next server."""
        async with trio.open_nursery() as nursery:
            for name in self._names():
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
        path = self.directory / name
        try:
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            # Its server has just ended it.
            return
        except OSError as fault:
            log.warning("the process %d, which an earlier server may have left, is not looked for: %s", key.pid, fault)
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            await self._end_locked(key, path)
        except BlockingIOError:
            # Its server runs, or another one is ending it.
            pass
        except OSError as fault:
            log.warning("the process %d, which an earlier server may have left, is not ended: %s", key.pid, fault)
        finally:
            os.close(lock)

    async def _end_locked(self, key: ProcessKey, path: Path) -> None:
        if await trio.to_thread.run_sync(_is_left, key):
            log.warning("the process %d of a downstream was left by an earlier server, and is ended", key.pid)
            if not await end_group(key.pid, GRACE_SECONDS):
                log.error("the process %d of a downstream, left by an earlier server, does not end", key.pid)
                return
        with suppress(OSError):
            os.unlink(path)


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
