"""The server's end of a process monitor: starts one, reads what it records, and reaches the processes it holds.

A session's processes are those of the agent's own system session, the descendants of its monitor, and those with the
session's id in their environment. Only a process that shed all three can escape. None of them is the server's child.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import psutil
import trio
from attrs import frozen

from intercom.local import processes
from intercom.local.places import private_directory
from intercom.masking import Masker
from intercom.model.process import Exit, Process
from intercom.sessions.processes import monitor_program
from intercom.sessions.processes.monitor_program import segment_name, segment_starts

#: Marks the processes of a session: for the agent's shim, and for ending them.
SESSION_ID = "INTERCOM_SESSION_ID"

#: Time limit for a monitor to start its program and report that, in seconds.
START_SECONDS = 20.0
#: How long after the program's end the monitor may report it, and then take to exit, in seconds.
_REPORT_SECONDS = 5.0
_LEAVE_SECONDS = 2.0
_POLL_SECONDS = 0.02
#: The poll interval on systems without pidfd, in seconds.
_LOOK_SECONDS = 0.25

#: Seconds between asking processes to end and killing them, and how long killing may take.
GRACE_SECONDS = 5.0
_KILL_SECONDS = 3.0
#: How often processes are searched again that a signal missed, because they were just being started.
_ROUNDS = 5
#: Two reported start times of one process may differ by this many seconds.
_SAME_SECONDS = 0.05

#: How many bytes before a piece of output are searched for a secret that reaches into it. No key is longer.
LEAD = 64 * 1024


# --- one monitor -----------------------------------------------------------------------------------------------------


@frozen
class Command:
    """A command line. `program` is an absolute path, `arguments` begin with the program's name."""

    program: str
    arguments: tuple[str, ...]


@frozen
class Status:
    """A monitor's report: its program's pid, or why it could not be started (a sentence), and how it ended."""

    run: int
    pid: int | None
    error: str | None
    exit: Exit | None

    @staticmethod
    def of(line: bytes) -> Status:
        """Read a report. Raises ValueError, KeyError and TypeError for anything else."""
        said: monitor_program.Status = json.loads(line)
        error, ending = said["error"], said["exit"]
        return Status(
            run=said["run"],
            pid=said["pid"],
            error=None if error is None else f"{error[1] or 'it'}: {os.strerror(error[0]).lower()}",
            exit=None if ending is None else Exit(ending["code"], ending["signal"], bool(ending["oom"])),
        )


@frozen
class IdleMonitor:
    """A process monitor that was started and does not know yet what to run. Create one with `start`."""

    process: Process
    _says: trio.lowlevel.FdStream
    _hears: trio.lowlevel.FdStream

    async def run(self, command: Command, environment: Mapping[str, str], directory: str) -> Status:
        """Tell the monitor what to run, and return its report. Raises OSError if it crashes or is too slow."""
        spec: monitor_program.Spec = {
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
                        raise BrokenPipeError(errno.EPIPE, "its monitor crashed")
                    said += piece
        except trio.BrokenResourceError:
            raise BrokenPipeError(errno.EPIPE, "its monitor crashed") from None
        except trio.TooSlowError:
            raise TimeoutError(errno.ETIMEDOUT, f"it was not there within {START_SECONDS:g} s") from None
        return Status.of(said)

    async def close(self) -> None:
        """Close the connection. A monitor that was not told what to run exits."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._hears)
            await trio.aclose_forcefully(self._says)

    async def dismiss(self) -> None:
        """Close the connection, and end the monitor."""
        await self.close()
        with trio.CancelScope(shield=True):
            await dismiss(self.process)


async def start(directory: Path, run: int, limit: int) -> IdleMonitor:
    """Start a monitor that will keep its files in `directory`. Raises OSError if the system lacks resources, IpcError
    if the directory is open to others."""
    private_directory(str(directory))
    pid, ours_in, ours_out = await trio.to_thread.run_sync(_start, directory, run, limit)
    says, hears = trio.lowlevel.FdStream(ours_in), trio.lowlevel.FdStream(ours_out)
    found = identify(pid)
    if found is None:
        await trio.aclose_forcefully(hears)
        await trio.aclose_forcefully(says)
        _reap(pid)
        raise ChildProcessError(errno.ECHILD, "its monitor crashed")
    return IdleMonitor(found, says, hears)


def _start(directory: Path, run: int, limit: int) -> tuple[int, int, int]:
    """Return the pid, and our ends of its stdout and stdin."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", monitor_program.__file__, str(directory), str(run), str(limit)],
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
        status = Status.of((directory / "status.json").read_bytes())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return status if status.run == run else None


async def ended(directory: Path, run: int, kept: Process) -> Exit:
    """Wait until the program of this run has ended, and return how; an empty Exit if its monitor saw no end."""
    with trio.move_on_after(_REPORT_SECONDS):
        while True:
            # Looked at before the file: a monitor that is gone has written all it knew.
            there = is_alive(kept)
            status = read(directory, run)
            if status is not None and status.exit is not None:
                return status.exit
            if not there:
                break
            await trio.sleep(_POLL_SECONDS)
    return Exit()


async def dismiss(kept: Process) -> None:
    """End a monitor that is not needed any more, and reap it if it is our child."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if is_alive(kept):
            send((kept.pid,), number)
        with trio.move_on_after(_LEAVE_SECONDS):
            await gone(kept)
            _reap(kept.pid)
            return


async def gone(process: Process) -> None:
    """Wait until this process has ended; it need not be our child."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        while is_alive(process):  # noqa: ASYNC110 - the system tells only a parent
            await trio.sleep(_LOOK_SECONDS)
        return
    try:
        # If the pid belongs to another process by now, there is nothing to wait for.
        if is_alive(process):
            await trio.lowlevel.wait_readable(descriptor)
    finally:
        trio.lowlevel.notify_closing(descriptor)
        os.close(descriptor)


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


# --- the processes of a session --------------------------------------------------------------------------------------


@frozen
class Family:
    """The processes of a session: the descendants of `monitor`, and the system session of `leader` (a pid). `spared`
    are pids that belong to others, although an agent may have started them: this server, and monitors."""

    session_id: str
    monitor: Process | None
    leader: int | None
    spared: Collection[int] = ()

    def members(self) -> list[int]:
        """Return their pids, without the monitor's and without ended ones. Blocks while it reads all processes."""
        every = {each.pid: each for each in processes.every()}
        spared = {os.getpid(), *self.spared}
        found = {pid for pid in every if self._is_led(pid) or marked(pid) == self.session_id}
        if self.monitor is not None:
            if is_alive(self.monitor):
                found |= _descendants(self.monitor.pid, every.values(), spared)
            spared.add(self.monitor.pid)
        return [pid for pid in found - spared if not _has_ended(pid)]

    def _is_led(self, pid: int) -> bool:
        try:
            return self.leader is not None and self.leader in (os.getsid(pid), os.getpgid(pid))
        except OSError:
            return False


def marked(pid: int) -> str | None:
    """Return the session whose id this process was started with; None if there is none, or it cannot be read."""
    try:
        return psutil.Process(pid).environ().get(SESSION_ID)
    except (psutil.Error, OSError, ValueError):
        return None


def identify(pid: int) -> Process | None:
    """Return the process that has this pid now; None if there is none, or only a zombie."""
    try:
        return Process(pid, processes.examine(pid).key.started / processes.TICKS)
    except processes.NotExaminable:
        return None


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
    return identify(pid) is None


def _descendants(root: int, every: Collection[processes.Process], spared: Collection[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for each in every:
        children.setdefault(each.parent, []).append(each.pid)
    found: set[int] = set()
    at_hand = [root]
    while at_hand:
        # Descendants of a spared process are spared too.
        next_ones = [pid for pid in children.get(at_hand.pop(), ()) if pid not in spared and pid not in found]
        found.update(next_ones)
        at_hand += next_ones
    return found


# --- what a monitor keeps of the output ------------------------------------------------------------------------------


class Stream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@frozen
class Piece:
    """A piece of a stream: its bytes from `start` up to `end`, where reading continues. `start` is later than requested
    if that part is gone."""

    data: bytes
    start: int
    end: int


def read_from(directory: Path, stream: Stream, start: int, limit: int) -> Piece:
    """Return at most `limit` bytes of the stream from byte `start` on. Blocks. Never raises for missing parts."""
    starts = segment_starts(str(directory), stream)
    if not starts:
        return Piece(b"", start, start)
    at = max(start, starts[0])
    data = b""
    for begin, following in zip(starts, [*starts[1:], None], strict=True):
        if following is not None and at + len(data) >= following:
            continue
        if at + len(data) < begin:
            # A part was lost on a full disk: what came before is a piece of its own.
            break
        with suppress(OSError), (directory / segment_name(stream, begin)).open("rb") as file:
            file.seek(at + len(data) - begin)
            data += file.read(limit - len(data))
        if len(data) >= limit:
            break
    if not data and (later := [begin for begin in starts if begin > at]):
        return read_from(directory, stream, later[0], limit)
    return Piece(data, at, at + len(data))


def read_tail(directory: Path, stream: Stream, lines: int, limit: int) -> Piece:
    """Return the last `lines` lines of the stream, at most `limit` bytes of them."""
    end = end_of(directory, stream)
    piece = read_from(directory, stream, max(0, end - limit), limit)
    kept = piece.data.splitlines(keepends=True)[-lines:] if lines else []
    data = b"".join(kept)
    return Piece(data, piece.end - len(data), piece.end)


def end_of(directory: Path, stream: Stream) -> int:
    """Return how many bytes the stream has had so far."""
    begin = (segment_starts(str(directory), stream) or [0])[-1]
    try:
        return begin + (directory / segment_name(stream, begin)).stat().st_size
    except OSError:
        return begin


def last_output(directory: Path, streams: tuple[Stream, ...], lines: int = 8, limit: int = 1200) -> str:
    """Return the last lines of the first non-empty stream, as text with secrets masked: people are shown it."""
    for stream in streams:
        text = masked(directory, stream, read_tail(directory, stream, lines, limit)).strip()
        if text:
            return text[-limit:]
    return ""


def masked(directory: Path, stream: Stream, piece: Piece) -> str:
    """Return a piece as text with secrets masked, also those that begin before it. If what precedes it ends within a
    line, the result holds all of that line."""
    begin = max(0, piece.start - LEAD)
    lead = read_from(directory, stream, begin, piece.start - begin)
    # If a part in between is gone, what precedes it does not lead up to the piece.
    before = lead.data if lead.end == piece.start else b""
    text = (before + piece.data).decode(errors="replace")
    return Masker().mask(text).lines(before.count(b"\n") + 1).text


def forget(directory: Path) -> None:
    """Remove the directory, if it exists."""
    shutil.rmtree(directory, ignore_errors=True)
