"""The actor of one agent process, from its start to the end of everything it left running.

Its state is in its row and with the process monitor. So any later incarnation, also of another server, continues: it
finds the process and watches it, or finds it gone and settles the effects.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import evolve, field, frozen

from actors import Actor, Name, Refused, Reply, Request, ask
from intercom.model import crash_points
from intercom.model.config import Config, SpawnRestart, SpawnSettings
from intercom.model.errors import ConfigError, IntercomError, InvalidArguments, InvalidState, NotFound, SpawnFailed
from intercom.model.process import AgentProcess, AgentProcessState, Exit, Process, Why
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.sessions.messages import AwaitStart, Continue, ProcessEnded, ProcessStarted, Stop, Suspend, Wanted
from intercom.sessions.processes import monitor_client
from intercom.sessions.processes.monitor_client import SESSION_ID, Command, Family, IdleMonitor, Status, Stream
from intercom.sessions.session_deps import SessionDeps
from intercom.store import instructions, sessions
from intercom.store.processes import agent_processes
from intercom.store.writer_messages import Database
from intercom.workspace import command_runner

log = logging.getLogger("intercom.sessions")

#: Time limit of telling a session something, in seconds: its components may be restarting.
SESSION_SECONDS = 60.0
#: How long an earlier server's monitor may take for its first report, in seconds.
_REPORT_SECONDS = 3.0
#: After a run of this many seconds, earlier restarts do not count any more.
STEADY_SECONDS = 600.0
#: The longest pause before a restart, in seconds.
LONGEST_PAUSE = 300.0


# --- what is run -----------------------------------------------------------------------------------------------------

#: The longest prompt in bytes. Linux allows arguments of up to 128 KiB.
LONGEST_PROMPT = 100_000

#: The prompt of a woken agent. The instructions themselves are attached to its next result, as always.
WAKE = "A person has something for you: call the tool ping of agent-intercom, and do what its instructions say."


def check_prompt(prompt: str, host_cli_args: tuple[str, ...]) -> str:
    """Return the prompt if it can be an agent's only argument. Raises InvalidArguments.

    Most programs take a prompt that begins with a dash for an option, and options decide what an agent may do. It is
    allowed if `host_cli_args` end with `--`, which by convention ends the options.
    """
    if not prompt.strip():
        raise InvalidArguments("a prompt is needed: say what the agent is to do")
    if "\0" in prompt:
        raise InvalidArguments("the prompt contains a NUL character, which an argument cannot contain; remove it")
    try:
        size = len(prompt.encode())
    except UnicodeEncodeError:
        raise InvalidArguments("the prompt is not valid Unicode; type it again") from None
    if size > LONGEST_PROMPT:
        raise InvalidArguments(
            f"the prompt has {size} bytes, and at most {LONGEST_PROMPT} can be given: put the rest into a file"
        )
    if prompt.lstrip().startswith("-") and host_cli_args[-1:] != ("--",):
        raise InvalidArguments(
            "the prompt begins with a dash, and the agent would take it for an option: begin with a word, or end"
            ' host_cli_args with "--" if the program knows that'
        )
    return prompt


def build_command(
    config: Config, prompt: str, environ: Mapping[str, str], session_id: str = "", *, resumes: bool = False
) -> Command:
    """Return the command that starts an agent with this prompt, or (`resumes`) wakes one for its instructions. The
    program is looked up in the PATH of `environ`, the agent's environment. `{session_id}` in an argument is replaced.

    Raises ConfigError if no program is configured or found, InvalidArguments for a prompt that cannot be used.
    """
    program = find_program(config.host_cli, environ)
    given = config.spawn.resume_args if resumes else config.host_cli_args
    arguments = (each.replace("{session_id}", session_id) for each in given)
    return Command(program, (program, *arguments, check_prompt(WAKE if resumes else prompt, given)))


def find_program(host_cli: str | None, environ: Mapping[str, str]) -> str:
    """Return the program's absolute path. Raises ConfigError if `host_cli` is not set, not found, or not executable."""
    if host_cli is None:
        raise ConfigError("no agent can be started: set host_cli in the server's configuration to an agent's program")
    home = environ.get("HOME", "")
    name = f"{home}{host_cli[1:]}" if host_cli.startswith("~/") and home else host_cli
    if "/" in name and not os.path.isabs(name):
        raise ConfigError(f"host_cli is {host_cli!r}: give a program's name, or a path that begins with / or ~")
    path = environ.get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is None:
        where = "is no program that can be run" if "/" in name else f"is not found in the server's PATH ({path})"
        raise ConfigError(f"host_cli is {host_cli!r}, which {where}: install it, or give its whole path")
    return found


def build_environment(
    environ: Mapping[str, str],
    passed_on: tuple[str, ...],
    session_id: str,
    workspace_root: str,
    http: Mapping[str, str],
) -> dict[str, str]:
    """Return the agent's environment. From the server's `environ` it gets what programs need, without credentials, and
    the names in `passed_on`. `http` are the variables for reaching the server over HTTP."""
    return {
        **command_runner.environment(environ),
        **{name: environ[name] for name in passed_on if name in environ},
        "INTERCOM_WORKSPACE_ROOT": workspace_root,
        SESSION_ID: session_id,
        **http,
    }


def plan_restart(
    began: datetime,
    restarts: int,
    ended: Exit,
    now: datetime,
    settings: SpawnSettings,
    instruction_at: datetime | None = None,
) -> tuple[int, datetime | None]:
    """Return the restarts in a row as they count from now on, and when the agent runs again: None for never.

    Its last run `began` then and `ended` now, after so many `restarts`. `instruction_at` is when the newest waiting
    instruction was given; None if there is none.
    """
    if instruction_at is not None and ended.is_success and settings.resume_args:
        # Woken for its instructions. If it does not fetch them, it is woken at most `max_restarts` times in a row.
        if instruction_at >= began:
            return 1, now
        return (restarts, None) if restarts >= settings.max_restarts else (restarts + 1, now)
    if (now - began).total_seconds() >= STEADY_SECONDS:
        restarts = 0
    failed = settings.restart is SpawnRestart.ON_FAILURE and not ended.is_success
    if not (failed or settings.restart is SpawnRestart.ALWAYS) or restarts >= settings.max_restarts:
        return restarts, None
    # After 30 doublings any pause is the longest.
    pause = min(LONGEST_PAUSE, settings.restart_backoff_seconds * 2.0 ** min(restarts, 30))
    return restarts + 1, now + timedelta(seconds=pause)


# --- the actor -------------------------------------------------------------------------------------------------------


@frozen
class ProcessDeps:
    """What the spawner and the agent processes need. `root` is the directory of the output, one directory per session.
    `environ` is the server's environment. `http` returns the variables with which an agent reaches the server. `came`
    and `left` record agents' processes. `stays` is true if another server will take the agents over. `registry` runs
    sessions' actors."""

    session_deps: SessionDeps
    root: Path
    environ: Mapping[str, str]
    supervisor: Name
    registry: Name
    default_mode: SessionMode
    http: Callable[[str], Mapping[str, str]] = lambda _session_id: {}
    came: Callable[[str, str, frozenset[int]], None] = lambda _connection, _session_id, _pids: None
    left: Callable[[str], None] = lambda _connection: None
    stays: Callable[[], bool] = lambda: False
    #: The monitors of all sessions. None of them belongs to another agent.
    monitors: dict[str, Process] = field(factory=dict, init=False)
    _noted: set[str] = field(factory=set, init=False)

    def note(self, agent_process: AgentProcess) -> None:
        """Record the living processes in this row as an agent's."""
        if agent_process.monitor is not None:
            self.monitors[agent_process.session_id] = agent_process.monitor
        living = frozenset(
            each.pid
            for each in (agent_process.monitor, agent_process.process)
            if each is not None and monitor_client.is_alive(each)
        )
        self._noted.add(agent_process.session_id)
        self.came(f"agent-process/{agent_process.session_id}", agent_process.session_id, living)

    def note_first(self, agent_process: AgentProcess) -> None:
        """Note the row as `note` does, unless the session was noted before: its own actor has newer information."""
        if agent_process.session_id not in self._noted:
            self.note(agent_process)

    def forget(self, session_id: str) -> None:
        """Record that nothing of this session's agent runs any more."""
        self._noted.discard(session_id)
        self.monitors.pop(session_id, None)
        self.left(f"agent-process/{session_id}")


@frozen
class Look:
    """Read the current state."""


@frozen
class MonitorStarted:
    """A process monitor runs and waits to be told what to run; or why there is none."""

    run: int
    monitor: IdleMonitor | None
    fault: str | None = None


@frozen
class MonitorAnswer:
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


class AgentProcessActor(Actor):
    """The actor `agent-process/<session>`."""

    refusals = (Refused, IntercomError)

    def __init__(self, session_id: str, at: ProcessDeps) -> None:
        super().__init__()
        self._id = session_id
        self._at = at
        self._directory = at.root / session_id
        self._row: AgentProcess | None = None
        self._session: Session
        self._launching = self._winding_up = self._is_known = False
        self._awaiting: list[Reply[None]] = []

    def on_start(self) -> None:
        # If the store is down, asking it here would block the server's start.
        self.actor_ref.tell(Look())

    async def on_receive(self, message: object) -> Any:
        if self._row is None and not await self._look():
            raise InvalidState(f"the process of session {self._id} is over")
        match message:
            case AwaitStart():
                if self.row.why is Why.NOT_STARTED:
                    raise SpawnFailed(f"the agent could not be started: {self.row.said}")
                if self.row.state in (AgentProcessState.STARTING, AgentProcessState.RUNNING) and not self._is_known:
                    self._awaiting.append(self.defer())
            case Stop():
                await self._clear()
            case Suspend():
                if self._launching:
                    # A process stopped before it executes the agent's program would never execute it.
                    return 0
                return await monitor_client.reach(self._family().members, signal.SIGSTOP)
            case Continue():
                if self.row.state is AgentProcessState.WAITING and not self._winding_up:
                    # The restart may have been due while the session was paused.
                    self._wait_for_restart()
                return await monitor_client.reach(self._family().members, signal.SIGCONT)
            case MonitorStarted():
                await self._monitor_started(message)
            case MonitorAnswer():
                await self._told(message)
            case Said():
                await self._said()
            case Ended(run, exit):
                await self._ended(run, exit)
            case WoundUp(run):
                await self._wound_up(run)
            case RunAgain() if self.row.state is AgentProcessState.WAITING:
                await self._run_again()
        return None

    async def on_stop(self) -> None:
        """End the agents of a server that stops, unless another server is about to take them over."""
        row = self._row
        if row is None or row.state is AgentProcessState.OVER or not self.system.is_stopping or self._at.stays():
            return
        if row.is_going:
            await self._record(evolve(row, state=AgentProcessState.ENDING, why=Why.SHUTDOWN))
        await self._wind_up(self.row)
        await self._record(evolve(self.row, state=AgentProcessState.OVER))

    # --- recovery

    @property
    def row(self) -> AgentProcess:
        assert self._row is not None, "it has looked"
        return self._row

    async def _look(self) -> bool:
        """Read the current state, and continue from there. False if there is nothing to do."""

        def load(db: Database) -> tuple[AgentProcess | None, Session | None]:
            return agent_processes.get(db, self._id), sessions.get(db, self._id)

        row, session = await self._at.session_deps.store.transact(load)
        if row is None or session is None or row.state is AgentProcessState.OVER:
            self._at.forget(self._id)
            self.stop()
            return False
        self._row, self._session = row, session
        self._at.note(row)
        if session.status is SessionStatus.TERMINATED and row.is_going:
            await self._clear()
            return True
        match row.state:
            case AgentProcessState.STARTING:
                if row.monitor is None:
                    self._launch()
                    return True
                self._launching = True
                self._begin(self._hear_of(row, row.monitor))
            case AgentProcessState.RUNNING:
                self._begin(self._run(row))
            case AgentProcessState.WAITING | AgentProcessState.ENDING:
                self._begin_winding_up()
        return True

    async def _hear_of(self, row: AgentProcess, monitor: Process) -> MonitorAnswer:
        """Read the report of an earlier server's monitor. It is None if the monitor was not told what to run."""
        with trio.move_on_after(_REPORT_SECONDS):
            while (  # noqa: ASYNC110 - a file tells nobody when it changes
                status := monitor_client.read(self._directory, row.run)
            ) is None and monitor_client.is_alive(monitor):
                await trio.sleep(0.02)
            status = status or monitor_client.read(self._directory, row.run)
        if status is None:
            # Nothing was run, or its monitor hangs. The run starts again, so nothing of it may remain.
            await _end_processes(Family(row.session_id, monitor, None))
        return MonitorAnswer(row.run, status)

    # --- starting

    def _launch(self) -> None:
        self._launching = True
        self._begin(self._start_monitor(self.row.run))

    async def _start_monitor(self, run: int) -> MonitorStarted:
        """Start a monitor for this run. It runs nothing until it is told to, so it may be dropped at any time."""
        try:
            limit = self._at.session_deps.config.spawn.output_limit_bytes
            return MonitorStarted(run, await monitor_client.start(self._directory, run, limit))
        except (OSError, IntercomError) as failed:
            return MonitorStarted(run, None, _describe(failed))

    async def _monitor_started(self, news: MonitorStarted) -> None:
        monitor = news.monitor
        if monitor is None or self.row.run != news.run or self.row.state is not AgentProcessState.STARTING:
            if monitor is not None:
                await monitor.dismiss()
            await self._not_launched(news.fault)
            return
        try:
            await self._record(evolve(self.row, monitor=monitor.process))
            crash_points.reach("agent_process.monitor_recorded")
        except BaseException:
            # It must not wait for instructions that never come.
            await monitor.dismiss()
            raise
        self._at.note(self.row)
        self._begin(self._tell_monitor(self.row, self._session, monitor))

    async def _tell_monitor(self, row: AgentProcess, session: Session, monitor: IdleMonitor) -> MonitorAnswer:
        """Tell the monitor to start the agent with its prompt. If instructions wait for an agent that ran before, the
        prompt wakes it instead. Closes the connection to the monitor."""
        config = self._at.session_deps.config
        variables = build_environment(
            self._at.environ, config.spawn.environment, session.id, session.workspace_root, self._at.http(session.id)
        )
        try:
            # A first run gets its prompt; a later one with waiting instructions continues where the last one ended.
            wakes = row.run > 1 and bool(config.spawn.resume_args) and await self._instruction_at() is not None
            command = build_command(config, session.prompt or "", variables, session.id, resumes=wakes)
            status = await monitor.run(command, variables, session.workspace_root)
        except (OSError, ValueError, IntercomError) as failed:
            await monitor.dismiss()
            return MonitorAnswer(row.run, None, _describe(failed))
        finally:
            await monitor.close()
        crash_points.reach("agent_process.told")
        return MonitorAnswer(row.run, status)

    async def _told(self, news: MonitorAnswer) -> None:
        if news.run != self.row.run:
            return
        status = news.status
        if status is None and news.fault is None and self.row.state is AgentProcessState.STARTING:
            await self._record(evolve(self.row, monitor=None))
            self._launch()
            return
        if status is None or status.pid is None:
            await self._not_launched(news.fault or (status.error if status is not None else None) or "it crashed")
            return
        if self.row.state is AgentProcessState.STARTING:
            process, now = self._identify(status.pid, status), self._at.session_deps.now()
            await self._record(evolve(self.row, state=AgentProcessState.RUNNING, process=process, ran_at=now))
        self._launching = False
        self._at.note(self.row)
        if self.row.state is AgentProcessState.RUNNING:
            self._begin(self._run(self.row))
        else:
            # The session ended during the start.
            self._begin_winding_up()

    async def _not_launched(self, fault: str | None) -> None:
        """End a launch after which nothing runs."""
        self._launching = False
        if fault is not None and self.row.state is AgentProcessState.STARTING:
            await self._record(evolve(self.row, state=AgentProcessState.ENDING, why=Why.NOT_STARTED, said=fault))
        if self.row.state is AgentProcessState.ENDING:
            for reply in self._awaiting:
                reply.fail(SpawnFailed(f"the agent could not be started: {self.row.said or 'its session was ended'}"))
            self._awaiting.clear()
            self._begin_winding_up()

    # --- running

    async def _run(self, row: AgentProcess) -> Ended:
        """Tell the session that the process runs, and wait for its end or its monitor's. Without a monitor the agent is
        ended too."""
        monitor, process = row.monitor, row.process
        assert monitor is not None, "it runs"
        assert process is not None, "it runs"
        await self._tell_session(ProcessStarted(row.run, process.pid, row.started_by))
        self.actor_ref.tell(Said())
        async with trio.open_nursery() as nursery:

            async def until_gone(which: Process) -> None:
                await monitor_client.gone(which)
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_gone, monitor)
            nursery.start_soon(until_gone, process)
        return Ended(row.run, await monitor_client.ended(self._directory, row.run, monitor))

    async def _said(self) -> None:
        self._answer_starts()
        # An earlier server may have crashed between recording a pause, or its end, and signalling the processes.
        session = await self._at.session_deps.store.transact(partial(sessions.get, id=self._id))
        if session is not None:
            number = signal.SIGSTOP if session.is_paused else signal.SIGCONT
            await monitor_client.reach(self._family().members, number)

    def _answer_starts(self) -> None:
        """Answer the start requests: the process runs, or has run."""
        self._is_known = True
        for reply in self._awaiting:
            reply.set(None)
        self._awaiting.clear()

    # --- ending

    async def _clear(self) -> None:
        if self.row.is_going:
            await self._record(evolve(self.row, state=AgentProcessState.ENDING, why=Why.CLEARED))
            crash_points.reach("agent_process.cleared")
        self._begin_winding_up()

    async def _ended(self, run: int, exit: Exit) -> None:
        row = self.row
        if row.run != run or row.state is not AgentProcessState.RUNNING:
            return
        deps = self._at.session_deps
        restarts, at = plan_restart(
            row.ran_at or row.created_at,
            row.restarts,
            exit,
            deps.now(),
            deps.config.spawn,
            await self._instruction_at(),
        )
        if at is None:
            ended = evolve(row, state=AgentProcessState.ENDING, exit=exit, why=Why.ENDED)
        else:
            ended = evolve(row, state=AgentProcessState.WAITING, exit=exit, restarts=restarts, restart_at=at)
        await self._record(ended)
        crash_points.reach("agent_process.ended")
        self._answer_starts()
        self._begin_winding_up()

    async def _instruction_at(self) -> datetime | None:
        """Return when the newest instruction was given that waits for this agent; None if there is none."""
        deps = self._at.session_deps
        queued = await deps.store.transact(
            lambda db: deps.signatures.trusted_instructions(db, instructions.queued(db, self._id))
        )
        return max((each.at for each in queued), default=None)

    def _begin_winding_up(self) -> None:
        # A launch reports what it has started, and this continues from there.
        if not self._launching and not self._winding_up:
            self._winding_up = True
            self._begin(self._wind_up(self.row))

    async def _wind_up(self, row: AgentProcess) -> WoundUp:
        """End what is left of a run. Tell the session how it ended, unless the session itself ended it."""
        await _end_processes(self._family())
        if row.why is not Why.CLEARED:
            is_well = row.exit is not None and row.exit.is_success
            streams = (Stream.STDOUT, Stream.STDERR) if is_well else (Stream.STDERR, Stream.STDOUT)
            output = await trio.to_thread.run_sync(monitor_client.last_output, self._directory, streams)
            again = row.restart_at if row.state is AgentProcessState.WAITING else None
            await self._tell_session(ProcessEnded(row.run, row.why, row.exit, output, row.said, again))
            crash_points.reach("agent_process.settled")
        return WoundUp(row.run)

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
        left = min(LONGEST_PAUSE, (at - self._at.session_deps.now()).total_seconds())
        self.set_timer(RunAgain(), max(0.0, left), RunAgain())

    async def _run_again(self) -> None:
        session = await self._at.session_deps.store.transact(partial(sessions.get, id=self._id))
        if session is not None and session.is_paused:
            # `Continue` comes when the session is unpaused.
            return
        run = self.row.run + 1
        again = evolve(self.row, run=run, monitor=None, process=None, restart_at=None, exit=None)
        await self._record(evolve(again, state=AgentProcessState.STARTING))
        self._launch()

    # --- shared

    def _begin(self, work: Awaitable[object]) -> None:
        """Run a step in the background; its result is told to this actor."""

        async def run() -> None:
            self.actor_ref.tell(await work)

        self.spawn(run)

    async def _tell_session(self, told: Request[Session]) -> None:
        try:
            await ask(self._at.registry, Wanted(self._id), timeout=SESSION_SECONDS, retry=True)
        except NotFound:
            return
        await ask(self.system.named(f"session/{self._id}"), told, timeout=SESSION_SECONDS, retry=True)

    def _family(self) -> Family:
        row = self.row
        # Only living ones: the pid of a dead one may have been reused by this agent, and would outlive its session.
        others = (each for id, each in self._at.monitors.items() if id != self._id)
        spared = {each.pid for each in others if monitor_client.is_alive(each)}
        # The pid of a process that is gone is free, and may belong to another one by now.
        leader = row.process.pid if row.process is not None and monitor_client.is_alive(row.process) else None
        return Family(self._id, row.monitor, leader, frozenset(spared))

    def _identify(self, pid: int, status: Status) -> Process:
        """Return the process that the monitor reports. Its pid is not reused until the monitor has seen its end."""
        found = monitor_client.identify(pid) if status.exit is None else None
        if found is not None and not monitor_client.is_alive(self.row.monitor):
            found = found if monitor_client.marked(pid) == self._id else None
        return found or Process(pid, 0.0)

    async def _record(self, row: AgentProcess) -> None:
        expect = [state for state in AgentProcessState if state is not AgentProcessState.OVER]
        if not await self._at.session_deps.store.transact(partial(agent_processes.change, process=row, expect=expect)):
            raise RuntimeError(f"the row of session {self._id}'s process was changed by somebody else")
        self._row = row


async def _end_processes(family: Family) -> None:
    """End all of a session's processes, and its monitor last."""
    await monitor_client.end(family.members)
    if family.monitor is not None:
        await monitor_client.dismiss(family.monitor)
    # Without the monitor, its descendants are searched again by their other marks.
    if not await monitor_client.end(family.members):
        left = await trio.to_thread.run_sync(family.members)
        log.error("processes of session %s do not end, even when killed: %s", family.session_id, left)


def _describe(failed: Exception) -> str:
    if isinstance(failed, OSError) and failed.strerror:
        return failed.strerror.lower() if not failed.filename else f"{failed.filename}: {failed.strerror.lower()}"
    return str(failed)
