"""The actor of one agent process, from its start to the end of everything it left running.

Its state is in its row and with the process monitor. So any later incarnation, also of another server, continues: it
finds the process and watches it, or finds it gone and settles the effects.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import evolve, frozen

from actors import Actor, Refused, Reply, Request, System, ask
from intercom.model import crash_points
from intercom.model.config import SpawnRestart, SpawnSettings
from intercom.model.errors import IntercomError, InvalidState, NotFound, SpawnFailed
from intercom.model.process import AgentProcess, AgentProcessState, Exit, Process, Why
from intercom.model.session import Instruction, Session, SessionStatus
from intercom.sessions.messages import ProcessEnded, ProcessStarted, Wanted
from intercom.sessions.processes import command, membership, monitor_client, output_files
from intercom.sessions.processes.deps import ProcessDeps
from intercom.sessions.processes.messages import AwaitStart, Continue, Stop, Suspend
from intercom.sessions.processes.monitor_client import MonitoredProcess, Status
from intercom.sessions.processes.output_files import Stream
from intercom.store import agent_processes, instructions, sessions
from intercom.store.messages import Database

log = logging.getLogger("intercom.sessions")

#: Time limit of telling a session something, in seconds: its components may be restarting.
SESSION_SECONDS = 60.0
#: How long a monitor with nothing left to do may take to exit, in seconds.
_LEAVE_SECONDS = 2.0


async def end_processes(family: membership.Family, keeper: Process | None) -> None:
    """End all of a session's processes, and its monitor last."""
    await membership.end(family.members)
    if keeper is not None:
        await dismiss(keeper)
    # Without the monitor, its descendants are searched again by their other marks.
    if not await membership.end(family.members):
        left = await trio.to_thread.run_sync(family.members)
        log.error("processes of session %s do not end, even when killed: %s", family.session_id, left)


async def dismiss(keeper: Process) -> None:
    """End a monitor that is not needed any more."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if membership.is_alive(keeper):
            membership.send((keeper.pid,), number)
        with trio.move_on_after(_LEAVE_SECONDS):
            await monitor_client.gone(keeper, reap=True)
            return


async def say_started(system: System, at: ProcessDeps, session_id: str, row: AgentProcess) -> None:
    """Tell the session that its agent's process runs."""
    pid = 0 if row.process is None else row.process.pid
    await _tell(system, at, session_id, ProcessStarted(row.run, pid, row.started_by))


async def settle(system: System, at: ProcessDeps, row: AgentProcess, directory: Path) -> None:
    """Tell the session how its agent's process ended, unless the session itself ended it."""
    if row.why is Why.CLEARED:
        return
    is_well = row.exit is not None and row.exit.is_success
    streams = (Stream.STDOUT, Stream.STDERR) if is_well else (Stream.STDERR, Stream.STDOUT)
    words = await trio.to_thread.run_sync(output_files.last_words, directory, streams)
    again = row.restart_at if row.state is AgentProcessState.WAITING else None
    await _tell(system, at, row.session_id, ProcessEnded(row.run, row.why, row.exit, words, row.said, again))
    crash_points.reach("child.settled")


async def _tell(system: System, at: ProcessDeps, session_id: str, told: Request[Session]) -> None:
    try:
        await ask(at.registry, Wanted(session_id), timeout=SESSION_SECONDS, retry=True)
    except NotFound:
        return
    await ask(system.named(f"session/{session_id}"), told, timeout=SESSION_SECONDS, retry=True)


@frozen
class Look:
    """Read the current state."""


@frozen
class MonitorStarted:
    """A process monitor runs and waits to be told what to run; or why there is none."""

    run: int
    keeper: MonitoredProcess | None
    fault: str | None = None


@frozen
class Told:
    """The monitor's answer to what it was told to run; or why there is none."""

    run: int
    status: Status | None
    fault: str | None = None


@frozen
class Said:
    """The session was told that its process runs."""


@frozen
class Ended:
    """The process of this run is gone."""

    run: int
    exit: Exit


@frozen
class WoundUp:
    """Nothing of this run is left, and its session was told."""

    run: int


@frozen
class RunAgain:
    """A timer: the pause before a restart is over."""


#: How long an earlier server's monitor may take for its first report, in seconds.
_NEWS_SECONDS = 3.0


async def start_monitor(directory: Path, run: int, limit: int) -> MonitorStarted:
    """Start a monitor for this run. It runs nothing until it is told to, so it may be dropped at any time."""
    try:
        output_files.make(directory)
        return MonitorStarted(run, await monitor_client.start(directory, run, limit))
    except (OSError, IntercomError) as failed:
        return MonitorStarted(run, None, _words(failed))


async def tell_monitor(
    at: ProcessDeps,
    row: AgentProcess,
    session: Session,
    keeper: MonitoredProcess,
    words_at: Callable[[], Awaitable[datetime | None]],
) -> Told:
    """Tell the monitor to start the agent with its prompt. If instructions wait for an agent that ran before
    (`words_at`), the prompt wakes it instead. Closes the connection to the monitor."""
    config = at.context.config
    variables = command.build_environment(
        at.environ, config.spawn.environment, session.id, session.workspace_root, at.http(session.id)
    )
    try:
        # A first run gets its prompt; a later one with waiting instructions continues where the last one ended.
        wakes = row.run > 1 and bool(config.spawn.resume_args) and await words_at() is not None
        line = command.build_command(config, session.prompt or "", variables, session.id, resumes=wakes)
        status = await keeper.run(line, variables, session.workspace_root)
    except (OSError, ValueError, IntercomError) as failed:
        await dismiss(keeper.process)
        return Told(row.run, None, _words(failed))
    finally:
        await keeper.close()
    crash_points.reach("child.told")
    return Told(row.run, status)


async def hear_of(directory: Path, row: AgentProcess, keeper: Process) -> Told:
    """Read the report of an earlier server's monitor. It is None if the monitor was not told what to run."""
    with trio.move_on_after(_NEWS_SECONDS):
        while (  # noqa: ASYNC110 - a file tells nobody when it changes
            status := monitor_client.read(directory, row.run)
        ) is None and membership.is_alive(keeper):
            await trio.sleep(0.02)
        status = status or monitor_client.read(directory, row.run)
    if status is None:
        # Nothing was run, or its monitor hangs. The run starts again, so nothing of it may remain.
        await end_processes(membership.Family(row.session_id, keeper, None), keeper)
    return Told(row.run, status)


async def until_ended(directory: Path, run: int, keeper: Process, process: Process) -> Ended:
    """Wait for the end of the process or of its monitor. Without a monitor the agent is ended too."""
    async with trio.open_nursery() as nursery:

        async def until_gone(which: Process) -> None:
            await monitor_client.gone(which)
            nursery.cancel_scope.cancel()

        nursery.start_soon(until_gone, keeper)
        nursery.start_soon(until_gone, process)
    return Ended(run, await monitor_client.ended(directory, run, keeper))


def _words(failed: Exception) -> str:
    if isinstance(failed, OSError) and failed.strerror:
        return failed.strerror.lower() if not failed.filename else f"{failed.filename}: {failed.strerror.lower()}"
    return str(failed)


#: After a run of this many seconds, earlier restarts do not count any more.
STEADY_SECONDS = 600.0
#: The longest pause before a restart, in seconds.
LONGEST_PAUSE = 300.0


class Then(StrEnum):
    """What to do after a process has ended."""

    AGAIN = "again"
    OVER = "over"


@frozen
class Runs:
    """The runs of one agent so far: when the last one `began`, and how many `restarts` there were in a row."""

    began: datetime
    restarts: int = 0


@frozen
class Decision:
    """What to do, and when the agent runs again."""

    then: Then
    at: datetime | None = None


def step(
    runs: Runs, ended: Exit, now: datetime, settings: SpawnSettings, words_at: datetime | None = None
) -> tuple[Runs, Decision]:
    """Return the runs as they count from now on, and what to do after a run that ended at `now`. `words_at` is when the
    newest waiting instruction was given; None if there is none."""
    if words_at is not None and ended.is_success and settings.resume_args:
        return _resume(runs, now, settings, is_news=words_at >= runs.began)
    if (now - runs.began).total_seconds() >= STEADY_SECONDS:
        runs = evolve(runs, restarts=0)
    if not _wanted(ended, settings.restart) or runs.restarts >= settings.max_restarts:
        return runs, Decision(Then.OVER)
    # After 30 doublings any pause is the longest.
    pause = min(LONGEST_PAUSE, settings.restart_backoff_seconds * 2.0 ** min(runs.restarts, 30))
    return evolve(runs, restarts=runs.restarts + 1), Decision(Then.AGAIN, now + timedelta(seconds=pause))


def _resume(runs: Runs, now: datetime, settings: SpawnSettings, *, is_news: bool) -> tuple[Runs, Decision]:
    """Decide whether to wake an agent for waiting instructions. If it does not fetch them, it is woken at most
    `max_restarts` times in a row."""
    if is_news:
        runs = evolve(runs, restarts=0)
    elif runs.restarts >= settings.max_restarts:
        return runs, Decision(Then.OVER)
    return evolve(runs, restarts=runs.restarts + 1), Decision(Then.AGAIN, now)


def _wanted(ended: Exit, policy: SpawnRestart) -> bool:
    match policy:
        case SpawnRestart.NEVER:
            return False
        case SpawnRestart.ON_FAILURE:
            return not ended.is_success
        case SpawnRestart.ALWAYS:
            return True


T = TypeVar("T")

_GOING = frozenset({AgentProcessState.STARTING, AgentProcessState.RUNNING, AgentProcessState.WAITING})


class ChildActor(Actor):
    """The actor `child/<session>`."""

    refusals = (Refused, IntercomError)

    def __init__(self, session_id: str, at: ProcessDeps) -> None:
        super().__init__()
        self._id = session_id
        self._at = at
        self._row: AgentProcess | None = None
        self._session: Session
        self._launching = self._winding_up = self._is_known = False
        self._awaiting: list[Reply[None]] = []

    @property
    def directory(self) -> Path:
        return output_files.directory_of(self._at.root, self._id)

    def on_start(self) -> None:
        # If the store is down, asking it here would block the server's start.
        self.actor_ref.tell(Look())

    async def on_receive(self, message: object) -> Any:
        if self._row is None and not await self._look():
            raise InvalidState(f"the process of session {self._id} is over")
        match message:
            case AwaitStart():
                return self._await_start()
            case Stop():
                await self._clear()
            case Suspend():
                if self._launching:
                    # A process stopped before it executes the agent's program would never execute it.
                    return 0
                return await membership.reach(self._family().members, signal.SIGSTOP)
            case Continue():
                if self.row.state is AgentProcessState.WAITING and not self._winding_up:
                    # The restart may have been due while the session was paused.
                    self._wait_for_restart()
                return await membership.reach(self._family().members, signal.SIGCONT)
            case MonitorStarted():
                await self._monitor_started(message)
            case Told():
                await self._told(message)
            case Said():
                await self._said()
            case Ended(run, exit):
                await self._ended(run, exit)
            case WoundUp(run):
                await self._wound_up(run)
            case RunAgain() if self._row is not None and self._row.state is AgentProcessState.WAITING:
                await self._run_again()
        return None

    async def on_stop(self) -> None:
        """End the agents of a server that stops, unless another server is about to take them over."""
        row = self._row
        if row is None or row.state is AgentProcessState.OVER or not self.system.is_stopping or self._at.stays():
            return
        if row.state in _GOING:
            await self._record(evolve(row, state=AgentProcessState.ENDING, why=Why.SHUTDOWN))
        await self._wind_up(self.row)
        await self._record(evolve(self.row, state=AgentProcessState.OVER))

    # --- recovery ----------------------------------------------------------------------------------------------------

    @property
    def row(self) -> AgentProcess:
        assert self._row is not None, "it has looked"
        return self._row

    async def _look(self) -> bool:
        """Read the current state, and continue from there. False if there is nothing to do."""
        row, session = await self._at.context.store.transact(partial(_load, session_id=self._id))
        if row is None or session is None or row.state is AgentProcessState.OVER:
            self._at.forget(self._id)
            self.stop()
            return False
        self._row, self._session = row, session
        self._at.note(self.row)
        if session.status is SessionStatus.TERMINATED and row.state in _GOING:
            await self._clear()
            return True
        match row.state:
            case AgentProcessState.STARTING if row.keeper is None:
                self._launch()
            case AgentProcessState.STARTING:
                self._launching = True
                self._begin(hear_of, self.directory, row, row.keeper)
            case AgentProcessState.RUNNING:
                self._watch()
            case AgentProcessState.WAITING | AgentProcessState.ENDING:
                self._begin_winding_up()
        return True

    # --- starting ----------------------------------------------------------------------------------------------------

    def _await_start(self) -> None:
        row = self.row
        if row.why is Why.NOT_STARTED:
            raise SpawnFailed(f"the agent could not be started: {row.said}")
        if row.state in (AgentProcessState.STARTING, AgentProcessState.RUNNING) and not self._is_known:
            self._awaiting.append(self.defer())

    def _answer(self) -> None:
        """Answer the start requests: the process runs, or has run."""
        self._is_known = True
        for reply in self._awaiting:
            reply.set(None)
        self._awaiting.clear()

    def _launch(self) -> None:
        self._launching = True
        limit = self._at.context.config.spawn.output_limit_bytes
        self._begin(start_monitor, self.directory, self.row.run, limit)

    async def _monitor_started(self, news: MonitorStarted) -> None:
        keeper = news.keeper
        if keeper is None or self.row.run != news.run or self.row.state is not AgentProcessState.STARTING:
            if keeper is not None:
                await keeper.close()
                await dismiss(keeper.process)
            await self._launched(news.fault)
            return
        try:
            await self._record(evolve(self.row, keeper=keeper.process))
            crash_points.reach("child.keeper_recorded")
        except BaseException:
            # It must not wait for instructions that never come.
            await keeper.close()
            with trio.CancelScope(shield=True):
                await dismiss(keeper.process)
            raise
        self._at.note(self.row)
        self._begin(tell_monitor, self._at, self.row, self._session, keeper, self._words_at)

    async def _told(self, news: Told) -> None:
        if news.run != self.row.run:
            return
        status = news.status
        if status is None and news.fault is None and self.row.state is AgentProcessState.STARTING:
            await self._record(evolve(self.row, keeper=None))
            self._launch()
            return
        if status is None or status.pid is None:
            await self._launched(news.fault or (status.error if status is not None else None) or "it fell")
            return
        process = self._identify(status.pid, status)
        if self.row.state is AgentProcessState.STARTING:
            now = self._now()
            await self._record(evolve(self.row, state=AgentProcessState.RUNNING, process=process, ran_at=now))
        self._launching = False
        self._at.note(self.row)
        if self.row.state is not AgentProcessState.RUNNING:
            # The session was cleared during the start.
            self._begin_winding_up()
            return
        self._watch()

    async def _launched(self, fault: str | None) -> None:
        """End a launch after which nothing runs."""
        self._launching = False
        if fault is not None and self.row.state is AgentProcessState.STARTING:
            await self._record(evolve(self.row, state=AgentProcessState.ENDING, why=Why.NOT_STARTED, said=fault))
        if self.row.state is AgentProcessState.ENDING:
            for reply in self._awaiting:
                reply.fail(SpawnFailed(f"the agent could not be started: {self.row.said or 'its session was ended'}"))
            self._awaiting.clear()
            self._begin_winding_up()

    async def _say_started(self) -> None:
        await say_started(self.system, self._at, self._id, self.row)
        self.actor_ref.tell(Said())

    async def _said(self) -> None:
        self._answer()
        # An earlier server may have crashed between recording a pause, or its end, and signalling the processes.
        session = await self._at.context.store.transact(partial(sessions.get, id=self._id))
        if session is not None:
            number = signal.SIGSTOP if session.is_paused else signal.SIGCONT
            await membership.reach(self._family().members, number)

    # --- running -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        row = self.row
        assert row.keeper is not None, "it runs"
        assert row.process is not None, "it runs"
        self._begin(self._run, row.run, row.keeper, row.process)

    async def _run(self, run: int, keeper: Process, process: Process) -> Ended:
        # The session is told of the start before the end.
        await self._say_started()
        return await until_ended(self.directory, run, keeper, process)

    # --- ending ------------------------------------------------------------------------------------------------------

    async def _clear(self) -> None:
        if self.row.state in _GOING:
            await self._record(evolve(self.row, state=AgentProcessState.ENDING, why=Why.CLEARED))
            crash_points.reach("child.cleared")
        self._begin_winding_up()

    async def _ended(self, run: int, exit: Exit) -> None:
        row = self.row
        if row.run != run or row.state is not AgentProcessState.RUNNING:
            return
        now = self._now()
        before = Runs(row.ran_at or row.created_at, row.restarts)
        counted, then = step(before, exit, now, self._at.context.config.spawn, await self._words_at())
        if then.then is Then.AGAIN:
            ended = evolve(
                row, state=AgentProcessState.WAITING, exit=exit, restarts=counted.restarts, restart_at=then.at
            )
        else:
            ended = evolve(row, state=AgentProcessState.ENDING, exit=exit, why=Why.ENDED)
        await self._record(ended)
        crash_points.reach("child.ended")
        self._answer()
        self._begin_winding_up()

    async def _words_at(self) -> datetime | None:
        """Return when the newest instruction was given that waits for this agent; None if there is none."""
        queued = await self._at.context.store.transact(self._queued)
        return max((word.at for word in queued), default=None)

    def _queued(self, db: Database) -> tuple[Instruction, ...]:
        return self._at.context.signatures.trusted_words(db, instructions.queued(db, self._id))

    def _begin_winding_up(self) -> None:
        if self._launching or self._winding_up:
            # A launch reports what it has started, and this continues from there.
            return
        self._winding_up = True
        self.spawn(self._wind_up_and_say)

    async def _wind_up_and_say(self) -> None:
        await self._wind_up(self.row)
        self.actor_ref.tell(WoundUp(self.row.run))

    async def _wind_up(self, row: AgentProcess) -> None:
        await end_processes(self._family(), row.keeper)
        await settle(self.system, self._at, row, self.directory)

    async def _wound_up(self, run: int) -> None:
        self._winding_up = False
        row = self.row
        if row.state is AgentProcessState.WAITING and row.run == run:
            self._wait_for_restart()
        elif row.state is AgentProcessState.ENDING:
            await self._record(evolve(row, state=AgentProcessState.OVER))
            self._at.forget(self._id)
            self.stop()

    def _wait_for_restart(self) -> None:
        at = self.row.restart_at
        assert at is not None, "it waits for that"
        # Never longer than the longest pause: the clock may have been set back since.
        left = min(LONGEST_PAUSE, (at - self._now()).total_seconds())
        self.set_timer(RunAgain(), max(0.0, left), RunAgain())

    async def _run_again(self) -> None:
        session = await self._at.context.store.transact(partial(sessions.get, id=self._id))
        if session is not None and session.is_paused:
            # `Continue` comes when the session is unpaused.
            return
        run = self.row.run + 1
        again = evolve(self.row, run=run, keeper=None, process=None, restart_at=None, exit=None)
        await self._record(evolve(again, state=AgentProcessState.STARTING))
        self._launch()

    def _begin(self, step: Callable[..., Awaitable[object]], *given: Any) -> None:
        """Run a step in the background; its result is told to this actor."""

        async def run() -> None:
            self.actor_ref.tell(await step(*given))

        self.spawn(run)

    # --- shared ------------------------------------------------------------------------------------------------------

    def _family(self) -> membership.Family:
        row = self.row
        # Only living ones: the pid of a dead one may have been reused by this agent, and would outlive its session.
        others = (keeper for id, keeper in self._at.keepers.items() if id != self._id)
        spared = {keeper.pid for keeper in others if membership.is_alive(keeper)}
        leader = None if row.process is None else row.process.pid
        if not membership.is_alive(row.process):
            # The pid is free, and may belong to another process by now.
            leader = None
        return membership.Family(self._id, row.keeper, leader, frozenset(spared))

    def _identify(self, pid: int, status: Status) -> Process:
        """Return the process that the monitor reports. Its pid is not reused until the monitor has seen its end."""
        found = membership.identify(pid) if status.exit is None else None
        if found is not None and not membership.is_alive(self.row.keeper) and membership.marked(pid) != self._id:
            found = None
        return found or Process(pid, 0.0)

    async def _record(self, row: AgentProcess) -> None:
        expect = [state for state in AgentProcessState if state is not AgentProcessState.OVER]
        if not await self._at.context.store.transact(partial(agent_processes.change, child=row, expect=expect)):
            raise RuntimeError(f"the row of session {self._id}'s process was changed by somebody else")
        self._row = row

    def _now(self) -> datetime:
        return self._at.context.now()


def _load(db: Database, session_id: str) -> tuple[AgentProcess | None, Session | None]:
    return agent_processes.get(db, session_id), sessions.get(db, session_id)
