"""The server's end of a keeper: starting one, hearing from it, and waiting for processes that are not our children."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from intercom.model.child import Exit, Process
from intercom.sessions.spawning import keeper, processes
from intercom.sessions.spawning.command import Command

#: How long a keeper may take to start its program and say so, in seconds.
START_SECONDS = 20.0
#: How long its word on the program's end may be behind that end.
_WORD_SECONDS = 5.0
_POLL_SECONDS = 0.02
#: Where the system has no pidfd: how often is looked whether a process is there.
_LOOK_SECONDS = 0.25


@frozen
class Status:
    """A keeper's word: its program's pid, or why that could not be started (a sentence), and how it ended."""

    run: int
    pid: int | None
    error: str | None
    exit: Exit | None


class Keeper:
    """A keeper that was started and not told yet what to run. Make one with `start`."""

    def __init__(self, process: Process, says: trio.lowlevel.FdStream, hears: trio.lowlevel.FdStream) -> None:
        self.process = process
        self._says = says
        self._hears = hears

    async def run(self, command: Command, environment: Mapping[str, str], directory: str) -> Status:
        """Tell it what to run, in which directory; how that went. Raises OSError when it falls or is too slow."""
        spec = {
            "program": command.program,
            "arguments": list(command.arguments),
            "environment": dict(environment),
            "cwd": directory,
        }
        said = b""
        try:
            with trio.fail_after(START_SECONDS):
                await self._hears.send_all(json.dumps(spec).encode() + b"\n")
                while b"\n" not in said:
                    piece = await self._says.receive_some(65536)
                    if not piece:
                        raise BrokenPipeError(errno.EPIPE, "its keeper fell")
                    said += piece
        except trio.BrokenResourceError:
            raise BrokenPipeError(errno.EPIPE, "its keeper fell") from None
        except trio.TooSlowError:
            raise TimeoutError(errno.ETIMEDOUT, f"it was not there within {START_SECONDS:g} s") from None
        return _status(json.loads(said))

    async def close(self) -> None:
        """Let go of it: one that was not told what to run runs nothing."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._hears)
            await trio.aclose_forcefully(self._says)


async def start(directory: Path, run: int, limit: int) -> Keeper:
    """Start a keeper that will keep its files in `directory`. Raises OSError when the system has no room for one."""
    pid, ours_in, ours_out = await trio.to_thread.run_sync(_start, directory, run, limit)
    says, hears = trio.lowlevel.FdStream(ours_in), trio.lowlevel.FdStream(ours_out)
    found = processes.identify(pid)
    if found is None:
        await trio.aclose_forcefully(hears)
        await trio.aclose_forcefully(says)
        _let_go(pid)
        raise ChildProcessError(errno.ECHILD, "its keeper fell")
    return Keeper(found, says, hears)


def _start(directory: Path, run: int, limit: int) -> tuple[int, int, int]:
    """Its pid, and our ends of what it says and hears."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", keeper.__file__, str(directory), str(run), str(limit)],
            # Nothing of ours, and not the mark that tells an agent's own processes.
            {"PATH": os.defpath, "LANG": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs_in, 0),
                (os.POSIX_SPAWN_DUP2, theirs_out, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ],
            setsid=True,
        )
    except BaseException as failed:
        os.close(ours_out)
        os.close(ours_in)
        if isinstance(failed, NotImplementedError):
            raise OSError(errno.ENOSYS, "this system can not start a process in a session of its own") from None
        raise
    finally:
        for each in (theirs_in, theirs_out, null):
            os.close(each)
    return pid, ours_in, ours_out


def read(directory: Path, run: int) -> Status | None:
    """What the keeper of this run wrote down last; None when there is nothing of it."""
    try:
        said = json.loads((directory / "status.json").read_bytes())
        status = _status(said)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return status if status.run == run else None


async def ended(directory: Path, run: int, kept: Process) -> Exit:
    """How the program of this run ended, once it has; an Exit that says nothing where its keeper did not see it."""
    with trio.move_on_after(_WORD_SECONDS):
        while True:
            there = processes.is_alive(kept)
            status = read(directory, run)
            if status is not None and status.exit is not None:
                return status.exit
            if not there:
                # It said nothing before it went, and will not now.
                break
            await trio.sleep(_POLL_SECONDS)
    return Exit()


async def gone(process: Process, *, reap: bool = False) -> None:
    """Wait until this process has ended, whoever's child it is. With `reap` it is let go of, if it is ours."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await _looked_for(process)
    else:
        try:
            # Of another that has got its pid meanwhile there is nothing to wait for.
            if processes.is_alive(process):
                await trio.lowlevel.wait_readable(descriptor)
        finally:
            trio.lowlevel.notify_closing(descriptor)
            os.close(descriptor)
    if reap:
        _let_go(process.pid)


def _let_go(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


async def _looked_for(process: Process) -> None:
    while processes.is_alive(process):  # noqa: ASYNC110 - the system tells only a parent
        await trio.sleep(_LOOK_SECONDS)


def _status(said: dict[str, Any]) -> Status:
    error, ending = said["error"], said["exit"]
    return Status(
        run=said["run"],
        pid=said["pid"],
        error=None if error is None else f"{error[1] or 'it'}: {(os.strerror(error[0])).lower()}",
        exit=None if ending is None else Exit(ending["code"], ending["signal"], bool(ending["oom"])),
    )
