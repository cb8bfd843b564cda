"""The agent process actor: one agent's process, from its start until nothing of it is left.

Its state is in its row and with the process monitor. So any later incarnation, also of another server, continues: it
finds the process and watches it, or finds it gone and settles the effects.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from attrs import evolve

from actors import Actor, Refused, Reply, ask
from intercom.model import crash_points
from intercom.model.child import Child, ChildState, Exit, Process, Why
from intercom.model.errors import IntercomError, InvalidState, SpawnFailed
from intercom.model.session import Session, SessionStatus
from intercom.model.steering import Instruction
from intercom.sessions.spawning import output_files, processes, restarts, runs, winding_up
from intercom.sessions.spawning.kept import Status
from intercom.sessions.spawning.messages import AwaitStart, Continue, Stop, Suspend
from intercom.sessions.spawning.news import Ended, KeeperUp, Look, RunAgain, Said, Told, WoundUp
from intercom.sessions.spawning.surroundings import Surroundings
from intercom.store import children, instructions, sessions
from intercom.store.messages import Database, Transact

T = TypeVar("T")

STORE_SECONDS = 30.0

_GOING = frozenset({ChildState.STARTING, ChildState.RUNNING, ChildState.WAITING})


class ChildActor(Actor):
    """The actor `child/<session>`."""

    refusals = (Refused, IntercomError)

    def __init__(self, session_id: str, at: Surroundings) -> None:
        super().__init__()
        self._id = session_id
        self._at = at
        self._row: Child | None = None
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
                return await processes.reach(self._family().members, signal.SIGSTOP)
            case Continue():
                if self.row.state is ChildState.WAITING and not self._winding_up:
                    # The restart may have been due while the session was paused.
                    self._wait_for_restart()
                return await processes.reach(self._family().members, signal.SIGCONT)
            case KeeperUp():
                await self._keeper_up(message)
            case Told():
                await self._told(message)
            case Said():
                await self._said()
            case Ended(run, exit):
                await self._ended(run, exit)
            case WoundUp(run):
                await self._wound_up(run)
            case RunAgain() if self._row is not None and self._row.state is ChildState.WAITING:
                await self._run_again()
        return None

    async def on_stop(self) -> None:
        """End the agents of a server that stops, unless another server is about to take them over."""
        row = self._row
        if row is None or row.state is ChildState.OVER or not self.system.is_stopping or self._at.stays():
            return
        if row.state in _GOING:
            await self._record(evolve(row, state=ChildState.ENDING, why=Why.SHUTDOWN))
        await self._wind_up(self.row)
        await self._record(evolve(self.row, state=ChildState.OVER))

    # --- recovery ----------------------------------------------------------------------------------------------------

    @property
    def row(self) -> Child:
        assert self._row is not None, "it has looked"
        return self._row

    async def _look(self) -> bool:
        """Read the current state, and continue from there. False if there is nothing to do."""
        row, session = await self._transact(partial(_load, session_id=self._id))
        if row is None or session is None or row.state is ChildState.OVER:
            self._at.forget(self._id)
            self.stop()
            return False
        self._row, self._session = row, session
        self._at.note(self.row)
        if session.status is SessionStatus.TERMINATED and row.state in _GOING:
            await self._clear()
            return True
        match row.state:
            case ChildState.STARTING if row.keeper is None:
                self._launch()
            case ChildState.STARTING:
                self._launching = True
                self._begin(runs.hear_of, self.directory, row, row.keeper)
            case ChildState.RUNNING:
                self._watch()
            case ChildState.WAITING | ChildState.ENDING:
                self._begin_winding_up()
        return True

    # --- starting ----------------------------------------------------------------------------------------------------

    def _await_start(self) -> None:
        row = self.row
        if row.why is Why.NOT_STARTED:
            raise SpawnFailed(f"the agent could not be started: {row.said}")
        if row.state in (ChildState.STARTING, ChildState.RUNNING) and not self._is_known:
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
        self._begin(runs.start_keeper, self.directory, self.row.run, limit)

    async def _keeper_up(self, news: KeeperUp) -> None:
        keeper = news.keeper
        if keeper is None or self.row.run != news.run or self.row.state is not ChildState.STARTING:
            if keeper is not None:
                await keeper.close()
                await winding_up.dismiss(keeper.process)
            await self._launched(news.fault)
            return
        try:
            crash_points.reach("child.kept")
            await self._record(evolve(self.row, keeper=keeper.process))
            crash_points.reach("child.keeper_recorded")
        except BaseException:
            # It must not wait for instructions that never come.
            await keeper.close()
            with trio.CancelScope(shield=True):
                await winding_up.dismiss(keeper.process)
            raise
        self._at.note(self.row)
        self._begin(runs.tell_keeper, self._at, self.row, self._session, keeper, self._words_at)

    async def _told(self, news: Told) -> None:
        if news.run != self.row.run:
            return
        status = news.status
        if status is None and news.fault is None and self.row.state is ChildState.STARTING:
            await self._record(evolve(self.row, keeper=None))
            self._launch()
            return
        if status is None or status.pid is None:
            await self._launched(news.fault or (status.error if status is not None else None) or "it fell")
            return
        process = self._identify(status.pid, status)
        if self.row.state is ChildState.STARTING:
            now = self._now()
            await self._record(evolve(self.row, state=ChildState.RUNNING, process=process, ran_at=now))
            crash_points.reach("child.running")
        self._launching = False
        self._at.note(self.row)
        if self.row.state is not ChildState.RUNNING:
            # The session was cleared during the start.
            self._begin_winding_up()
            return
        self._watch()

    async def _launched(self, fault: str | None) -> None:
        """End a launch after which nothing runs."""
        self._launching = False
        if fault is not None and self.row.state is ChildState.STARTING:
            await self._record(evolve(self.row, state=ChildState.ENDING, why=Why.NOT_STARTED, said=fault))
        if self.row.state is ChildState.ENDING:
            for reply in self._awaiting:
                reply.fail(SpawnFailed(f"the agent could not be started: {self.row.said or 'its session was ended'}"))
            self._awaiting.clear()
            self._begin_winding_up()

    async def _say_started(self) -> None:
        await winding_up.say_started(self.system, self._at, self._id, self.row)
        self.actor_ref.tell(Said())

    async def _said(self) -> None:
        self._answer()
        # An earlier server may have crashed between recording a pause, or its end, and signalling the processes.
        session = await self._transact(partial(sessions.get, id=self._id))
        if session is not None:
            number = signal.SIGSTOP if session.is_paused else signal.SIGCONT
            await processes.reach(self._family().members, number)

    # --- running -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        row = self.row
        assert row.keeper is not None, "it runs"
        assert row.process is not None, "it runs"
        self._begin(self._run, row.run, row.keeper, row.process)

    async def _run(self, run: int, keeper: Process, process: Process) -> Ended:
        # The session is told of the start before the end.
        await self._say_started()
        return await runs.until_ended(self.directory, run, keeper, process)

    # --- ending ------------------------------------------------------------------------------------------------------

    async def _clear(self) -> None:
        if self.row.state in _GOING:
            await self._record(evolve(self.row, state=ChildState.ENDING, why=Why.CLEARED))
            crash_points.reach("child.cleared")
        self._begin_winding_up()

    async def _ended(self, run: int, exit: Exit) -> None:
        row = self.row
        if row.run != run or row.state is not ChildState.RUNNING:
            return
        now = self._now()
        before = restarts.Runs(row.ran_at or row.created_at, row.restarts)
        counted, then = restarts.step(before, exit, now, self._at.context.config.spawn, await self._words_at())
        if then.then is restarts.Then.AGAIN:
            ended = evolve(row, state=ChildState.WAITING, exit=exit, restarts=counted.restarts, restart_at=then.at)
        else:
            ended = evolve(row, state=ChildState.ENDING, exit=exit, why=Why.ENDED)
        await self._record(ended)
        crash_points.reach("child.ended")
        self._answer()
        self._begin_winding_up()

    async def _words_at(self) -> datetime | None:
        """Return when the newest instruction was given that waits for this agent; None if there is none."""
        queued = await self._transact(self._queued)
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

    async def _wind_up(self, row: Child) -> None:
        await winding_up.end_processes(self._family(), row.keeper)
        crash_points.reach("child.processes_gone")
        await winding_up.settle(self.system, self._at, row, self.directory)

    async def _wound_up(self, run: int) -> None:
        self._winding_up = False
        row = self.row
        if row.state is ChildState.WAITING and row.run == run:
            self._wait_for_restart()
        elif row.state is ChildState.ENDING:
            await self._record(evolve(row, state=ChildState.OVER))
            crash_points.reach("child.over")
            self._at.forget(self._id)
            self.stop()

    def _wait_for_restart(self) -> None:
        at = self.row.restart_at
        assert at is not None, "it waits for that"
        # Never longer than the longest pause: the clock may have been set back since.
        left = min(restarts.LONGEST_PAUSE, (at - self._now()).total_seconds())
        self.set_timer(RunAgain(), max(0.0, left), RunAgain())

    async def _run_again(self) -> None:
        session = await self._transact(partial(sessions.get, id=self._id))
        if session is not None and session.is_paused:
            # `Continue` comes when the session is unpaused.
            return
        run = self.row.run + 1
        again = evolve(self.row, run=run, keeper=None, process=None, restart_at=None, exit=None)
        await self._record(evolve(again, state=ChildState.STARTING))
        self._launch()

    def _begin(self, step: Callable[..., Awaitable[object]], *given: Any) -> None:
        """Run a step in the background; its result is told to this actor."""

        async def run() -> None:
            self.actor_ref.tell(await step(*given))

        self.spawn(run)

    # --- shared ------------------------------------------------------------------------------------------------------

    def _family(self) -> processes.Family:
        row = self.row
        # Only living ones: the pid of a dead one may have been reused by this agent, and would outlive its session.
        others = (keeper for id, keeper in self._at.keepers.items() if id != self._id)
        spared = {keeper.pid for keeper in others if processes.is_alive(keeper)}
        leader = None if row.process is None else row.process.pid
        if not processes.is_alive(row.process):
            # The pid is free, and may belong to another process by now.
            leader = None
        return processes.Family(self._id, row.keeper, leader, frozenset(spared))

    def _identify(self, pid: int, status: Status) -> Process:
        """Return the process that the monitor reports. Its pid is not reused until the monitor has seen its end."""
        found = processes.identify(pid) if status.exit is None else None
        if found is not None and not processes.is_alive(self.row.keeper) and processes.marked(pid) != self._id:
            found = None
        return found or Process(pid, 0.0)

    async def _record(self, row: Child) -> None:
        expect = [state for state in ChildState if state is not ChildState.OVER]
        if not await self._transact(partial(children.change, child=row, expect=expect)):
            raise RuntimeError(f"the row of session {self._id}'s process was changed by somebody else")
        self._row = row

    async def _transact(self, work: Callable[[Database], T]) -> T:
        return await ask(self._at.context.store, Transact(work), timeout=STORE_SECONDS, retry=True)

    def _now(self) -> datetime:
        return self._at.context.now()


def _load(db: Database, session_id: str) -> tuple[Child | None, Session | None]:
    return children.get(db, session_id), sessions.get(db, session_id)
