"""The slow steps of a run. Each is a background task of the agent process actor, and returns a message for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

import trio

from intercom.model import crash_points
from intercom.model.child import Child, Process
from intercom.model.errors import IntercomError
from intercom.model.session import Session
from intercom.sessions.spawning import command, environment, kept, output_files, processes, winding_up
from intercom.sessions.spawning.kept import Keeper
from intercom.sessions.spawning.news import Ended, KeeperUp, Told
from intercom.sessions.spawning.surroundings import Surroundings

#: How long an earlier server's monitor may take for its first report, in seconds.
_NEWS_SECONDS = 3.0


async def start_keeper(directory: Path, run: int, limit: int) -> KeeperUp:
    """Start a monitor for this run. It runs nothing until it is told to, so it may be dropped at any time."""
    try:
        output_files.make(directory)
        return KeeperUp(run, await kept.start(directory, run, limit))
    except (OSError, IntercomError) as failed:
        return KeeperUp(run, None, _words(failed))


async def tell_keeper(
    at: Surroundings, row: Child, session: Session, keeper: Keeper, words_at: Callable[[], Awaitable[datetime | None]]
) -> Told:
    """Tell the monitor to start the agent with its prompt. If instructions wait for an agent that ran before
    (`words_at`), the prompt wakes it instead. Closes the connection to the monitor."""
    config = at.context.config
    variables = environment.build(
        at.environ, config.spawn.environment, session.id, session.workspace_root, at.http(session.id)
    )
    try:
        # A first run gets its prompt; a later one with waiting instructions continues where the last one ended.
        wakes = row.run > 1 and bool(config.spawn.resume_args) and await words_at() is not None
        line = command.build(config, session.prompt or "", variables, session.id, resumes=wakes)
        status = await keeper.run(line, variables, session.workspace_root)
    except (OSError, ValueError, IntercomError) as failed:
        await winding_up.dismiss(keeper.process)
        return Told(row.run, None, _words(failed))
    finally:
        await keeper.close()
    crash_points.reach("child.told")
    return Told(row.run, status)


async def hear_of(directory: Path, row: Child, keeper: Process) -> Told:
    """Read the report of an earlier server's monitor. It is None if the monitor was not told what to run."""
    with trio.move_on_after(_NEWS_SECONDS):
        while (  # noqa: ASYNC110 - a file tells nobody when it changes
            status := kept.read(directory, row.run)
        ) is None and processes.is_alive(keeper):
            await trio.sleep(0.02)
        status = status or kept.read(directory, row.run)
    if status is None:
        # Nothing was run, or its monitor hangs. The run starts again, so nothing of it may remain.
        await winding_up.end_processes(processes.Family(row.session_id, keeper, None), keeper)
    return Told(row.run, status)


async def until_ended(directory: Path, run: int, keeper: Process, process: Process) -> Ended:
    """Wait for the end of the process or of its monitor. Without a monitor the agent is ended too."""
    async with trio.open_nursery() as nursery:

        async def until_gone(which: Process) -> None:
            await kept.gone(which)
            nursery.cancel_scope.cancel()

        nursery.start_soon(until_gone, keeper)
        nursery.start_soon(until_gone, process)
    return Ended(run, await kept.ended(directory, run, keeper))


def _words(failed: Exception) -> str:
    if isinstance(failed, OSError) and failed.strerror:
        return failed.strerror.lower() if not failed.filename else f"{failed.filename}: {failed.strerror.lower()}"
    return str(failed)
