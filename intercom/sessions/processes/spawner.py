"""The spawner: starts agents for people, and recovers those that an earlier server started."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import trio
from attrs import frozen

from actors import Actor, ChildSpec, DownEvent, Name, Refused, Reply, Restart, ask
from intercom.model import crash_points
from intercom.model.errors import IntercomError, InvalidState, SpawnFailed
from intercom.model.process import AgentProcess, AgentProcessState, Why
from intercom.model.session import Session, SessionStatus
from intercom.sessions import lookups
from intercom.sessions.kinds import headline
from intercom.sessions.messages import key_of
from intercom.sessions.processes import command
from intercom.sessions.processes.agent_process import ChildActor
from intercom.sessions.processes.deps import ProcessDeps
from intercom.sessions.processes.membership import GRACE_SECONDS
from intercom.sessions.processes.messages import AwaitStart, Start
from intercom.sessions.processes.monitor_client import START_SECONDS
from intercom.store import agent_processes, audit, sessions
from intercom.store.client import TRANSACTION_SECONDS
from intercom.store.messages import Database

T = TypeVar("T")

#: How long an agent process actor may take to end its processes when the server stops, in seconds.
_SHUTDOWN_SECONDS = 3 * GRACE_SECONDS
#: Seconds between two checks of a start's result.
_PAUSE = 0.1


@frozen
class BringBack:
    """Told by the actor to itself: recover what an earlier server, or incarnation, left."""


class Spawner(Actor):
    """The actor `spawner`."""

    refusals = (Refused, IntercomError)

    def __init__(self, at: ProcessDeps) -> None:
        super().__init__()
        self._at = at
        self._brought_back = False

    def on_start(self) -> None:
        # If the store is down, it is not restarted while the server's start waits for this actor.
        self.actor_ref.tell(BringBack())

    async def on_receive(self, message: object) -> Any:
        if not self._brought_back:
            await self._bring_back()
        match message:
            case Start():
                return await self._start(message)
            case DownEvent():
                # All agent process actors ended with their supervisor, which restarts empty.
                self._brought_back = False
                await self.system.next_incarnation(self._at.children, None)
                await self._bring_back()
        return None

    async def _bring_back(self) -> None:
        found = await self._at.context.store.transact(agent_processes.unfinished)
        for child in found:
            # Before the first of them ends a process or reports one.
            self._at.note_first(child)
        for child in found:
            await self._ensure(child.session_id)
        self._brought_back = True
        self.monitor(self._at.children)

    async def _start(self, asked: Start) -> Session | None:
        config = self._at.context.config
        variables = command.build_environment(
            self._at.environ, config.spawn.environment, asked.session_id, asked.workspace_root, {}
        )
        # Checked before anything is recorded.
        await trio.to_thread.run_sync(command.build_command, config, asked.prompt, variables)
        session, child = await self._at.context.store.transact(partial(_record, asked=asked, at=self._at))
        crash_points.reach("child.recorded")
        if child.state is AgentProcessState.OVER:
            return _outcome(session, child)
        self._at.note_first(child)
        await self._ensure(session.id)
        self.spawn(self._await_start, session, self.defer())
        return None

    async def _await_start(self, session: Session, reply: Reply[Session]) -> None:
        child = self.system.named(f"child/{session.id}")
        with trio.move_on_after(START_SECONDS + TRANSACTION_SECONDS):
            while not reply.abandoned:
                try:
                    done = await self._outcome_of(session.id, child)
                except SpawnFailed as failed:
                    reply.fail(failed)
                    return
                except (IntercomError, *lookups.UNANSWERED):
                    # Its actor or the store may be restarting or overloaded.
                    done = None
                if done is not None:
                    reply.set(done)
                    return
                await trio.sleep(_PAUSE)
        reply.fail(SpawnFailed(f"session {session.id} is recorded, and its agent is not there yet; see the log"))

    async def _outcome_of(self, session_id: str, child: Name) -> Session | None:
        """Return the session once its agent runs, or has run; None while that is unknown. Raises SpawnFailed."""
        is_there = True
        try:
            await ask(child, AwaitStart(), timeout=START_SECONDS)
        except SpawnFailed:
            raise
        except (IntercomError, *lookups.UNANSWERED):
            is_there = False
        after, row = await self._at.context.store.transact(partial(_both, session_id=session_id))
        return _outcome(after, row) if is_there or row.state is AgentProcessState.OVER else None

    async def _ensure(self, session_id: str) -> None:
        spec = ChildSpec(
            f"child/{session_id}",
            partial(ChildActor, session_id, self._at),
            restart=Restart.TRANSIENT,
            shutdown=_SHUTDOWN_SECONDS,
        )
        await lookups.ensure(self._at.children, spec)


def _outcome(session: Session, child: AgentProcess) -> Session:
    """Return the session of a start that is over. Raises SpawnFailed if it failed."""
    if child.why is Why.NOT_STARTED:
        raise SpawnFailed(f"the agent could not be started: {child.said}", session_id=session.id)
    return session


def _both(db: Database, session_id: str) -> tuple[Session, AgentProcess]:
    session, child = sessions.get(db, session_id), agent_processes.get(db, session_id)
    assert session is not None, "it was recorded, and is not purged before it is old"
    assert child is not None, "it was recorded with its session"
    return session, child


def _record(db: Database, asked: Start, at: ProcessDeps) -> tuple[Session, AgentProcess]:
    """Record that this agent is to run. Existing rows stay as they are."""
    now = at.context.now()
    session, child = sessions.get(db, asked.session_id), agent_processes.get(db, asked.session_id)
    if session is not None and child is not None:
        return session, child
    if session is not None and session.status is SessionStatus.TERMINATED:
        raise InvalidState(f"session {session.id} is over; start another")
    if session is not None and session.agent_key is not None and at.context.present(session.agent_key):
        # Any agent may take up a restored session, but not two.
        raise InvalidState(f"session {session.id} has an agent already, which is connected")
    running = agent_processes.unfinished(db)
    most = at.context.config.max_concurrent_sessions
    if len(running) >= most:
        ids = ", ".join(each.session_id[:8] for each in running[:8])
        raise IntercomError(
            f"{len(running)} agents started by people run already ({ids}), and max_concurrent_sessions is {most}:"
            " clear one, or wait until one is done",
            code="too_many_sessions",
        )
    if session is None:
        session = Session(
            id=asked.session_id,
            owner_user_id=asked.owner_user_id,
            workspace_root=asked.workspace_root,
            status=SessionStatus.CREATED,
            mode=asked.mode or at.default_mode,
            created_at=now,
            updated_at=now,
            prompt=asked.prompt,
            agent_key=key_of(asked.session_id),
            channel_id=asked.channel_id,
        )
        sessions.insert(db, session)
    else:
        sessions.set_prompt(db, session.id, asked.prompt)
    child = AgentProcess(session.id, AgentProcessState.STARTING, now, asked.by, asked.label)
    agent_processes.insert(db, child)
    what = headline(asked.prompt, 200)
    data = {"workspace_root": session.workspace_root, "channel": asked.channel, "label": asked.label}
    audit.record(db, now, "session_started", session.id, asked.by, what, data)
    return sessions.get(db, session.id) or session, child
