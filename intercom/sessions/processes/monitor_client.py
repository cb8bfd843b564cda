"""The server's end of a process monitor: starts one, and waits for processes that are not the server's children."""

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

from intercom.model.process import Exit, Process
from intercom.sessions.processes import membership, monitor
from intercom.sessions.processes.command import Command

#: Time limit for a monitor to start its program and report that, in seconds.
START_SECONDS = 20.0
#: How long after the program's end the monitor may report it, in seconds.
_WORD_SECONDS = 5.0
_POLL_SECONDS = 0.02
#: The poll interval on systems without pidfd, in seconds.
_LOOK_SECONDS = 0.25


@frozen
class Status:
    """A monitor's report: its program's pid, or why it could not be started (a sentence), and how it ended."""

    run: int
    pid: int | None
    error: str | None
    exit: Exit | None


class MonitoredProcess:
    """A process monitor that was started and does not know yet what to run. Create one with `start`."""

    def __init__(self, process: Process, says: trio.lowlevel.FdStream, hears: trio.lowlevel.FdStream) -> None:
        self.process = process
        self._says = says
        self._hears = hears

    async def run(self, command: Command, environment: Mapping[str, str], directory: str) -> Status:
        """Tell the monitor what to run, and return its report. Raises OSError if it crashes or is too slow."""
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
        """Close the connection. A monitor that was not told what to run exits."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._hears)
            await trio.aclose_forcefully(self._says)


async def start(directory: Path, run: int, limit: int) -> MonitoredProcess:
    """Start a monitor that will keep its files in `directory`. Raises OSError if the system lacks resources."""
    pid, ours_in, ours_out = await trio.to_thread.run_sync(_start, directory, run, limit)
    says, hears = trio.lowlevel.FdStream(ours_in), trio.lowlevel.FdStream(ours_out)
    found = membership.identify(pid)
    if found is None:
        await trio.aclose_forcefully(hears)
        await trio.aclose_forcefully(says)
        _let_go(pid)
        raise ChildProcessError(errno.ECHILD, "its keeper fell")
    return MonitoredProcess(found, says, hears)


def _start(directory: Path, run: int, limit: int) -> tuple[int, int, int]:
    """Return the pid, and our ends of its stdout and stdin."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", monitor.__file__, str(directory), str(run), str(limit)],
            # None of our variables, and not the mark of an agent's own processes.
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
            raise OSError(errno.ENOSYS, "this system cannot start a process in a session of its own") from None
        raise
    finally:
        for each in (theirs_in, theirs_out, null):
            os.close(each)
    return pid, ours_in, ours_out


def read(directory: Path, run: int) -> Status | None:
    """Return the last recorded status of this run; None if there is none."""
    try:
        said = json.loads((directory / "status.json").read_bytes())
        status = _status(said)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return status if status.run == run else None


async def ended(directory: Path, run: int, kept: Process) -> Exit:
    """Wait until the program of this run has ended, and return how; an empty Exit if its monitor saw no end."""
    with trio.move_on_after(_WORD_SECONDS):
        while True:
            there = membership.is_alive(kept)
            status = read(directory, run)
            if status is not None and status.exit is not None:
                return status.exit
            if not there:
                # It exited without a report.
                break
            await trio.sleep(_POLL_SECONDS)
    return Exit()


async def gone(process: Process, *, reap: bool = False) -> None:
    """Wait until this process has ended; it need not be our child. `reap` reaps it if it is."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await _looked_for(process)
    else:
        try:
            # If the pid belongs to another process by now, there is nothing to wait for.
            if membership.is_alive(process):
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
    while membership.is_alive(process):  # noqa: ASYNC110 - the system tells only a parent
        await trio.sleep(_LOOK_SECONDS)


def _status(said: dict[str, Any]) -> Status:
    error, ending = said["error"], said["exit"]
    return Status(
        run=said["run"],
        pid=said["pid"],
        error=None if error is None else f"{error[1] or 'it'}: {(os.strerror(error[0])).lower()}",
        exit=None if ending is None else Exit(ending["code"], ending["signal"], bool(ending["oom"])),
    )
