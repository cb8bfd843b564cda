"""Cleanup after a run: its processes end, and its session is told."""

from __future__ import annotations

import logging
import signal
from pathlib import Path

import trio

from actors import Request, System, ask
from intercom.model import crash_points
from intercom.model.child import Child, ChildState, Process, Why
from intercom.model.errors import NotFound
from intercom.model.session import Session
from intercom.sessions.messages import ProcessEnded, ProcessStarted
from intercom.sessions.reception_messages import Wanted
from intercom.sessions.spawning import kept, output_files, processes
from intercom.sessions.spawning.output_files import Stream
from intercom.sessions.spawning.surroundings import Surroundings

log = logging.getLogger("intercom.sessions")

#: Time limit of telling a session something, in seconds: its components may be restarting.
SESSION_SECONDS = 60.0
#: How long a monitor with nothing left to do may take to exit, in seconds.
_LEAVE_SECONDS = 2.0


async def end_processes(family: processes.Family, keeper: Process | None) -> None:
    """End all of a session's processes, and its monitor last."""
    await processes.end(family.members)
    if keeper is not None:
        await dismiss(keeper)
    # Without the monitor, its descendants are searched again by their other marks.
    if not await processes.end(family.members):
        left = await trio.to_thread.run_sync(family.members)
        log.error("processes of session %s do not end, even when killed: %s", family.session_id, left)


async def dismiss(keeper: Process) -> None:
    """End a monitor that is not needed any more."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if processes.is_alive(keeper):
            processes.send((keeper.pid,), number)
        with trio.move_on_after(_LEAVE_SECONDS):
            await kept.gone(keeper, reap=True)
            return


async def say_started(system: System, at: Surroundings, session_id: str, row: Child) -> None:
    """Tell the session that its agent's process runs."""
    pid = 0 if row.process is None else row.process.pid
    await _tell(system, at, session_id, ProcessStarted(row.run, pid, row.started_by))


async def settle(system: System, at: Surroundings, row: Child, directory: Path) -> None:
    """Tell the session how its agent's process ended, unless the session itself ended it."""
    if row.why is Why.CLEARED:
        return
    is_well = row.exit is not None and row.exit.is_success
    streams = (Stream.STDOUT, Stream.STDERR) if is_well else (Stream.STDERR, Stream.STDOUT)
    words = await trio.to_thread.run_sync(output_files.last_words, directory, streams)
    again = row.restart_at if row.state is ChildState.WAITING else None
    await _tell(system, at, row.session_id, ProcessEnded(row.run, row.why, row.exit, words, row.said, again))
    crash_points.reach("child.settled")


async def _tell(system: System, at: Surroundings, session_id: str, told: Request[Session]) -> None:
    try:
        await ask(at.reception, Wanted(session_id), timeout=SESSION_SECONDS, retry=True)
    except NotFound:
        return
    await ask(system.named(f"session/{session_id}"), told, timeout=SESSION_SECONDS, retry=True)
