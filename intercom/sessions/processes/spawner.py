"""Starts agents for people: the spawner, and the calls that operators' channels make.

The spawner also recovers the agents that an earlier server started.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import evolve, frozen

from actors import Actor, ChildSpec, DownEvent, Name, Refused, Reply, Restart, System, ask
from intercom.model import crash_points
from intercom.model.errors import IntercomError, InvalidState, NotFound, SpawnFailed, WorkspaceRefused
from intercom.model.process import AgentProcess, AgentProcessState, Exit, Why
from intercom.model.session import Session, SessionMode, SessionStatus
from intercom.model.visible_text import count
from intercom.sessions import lookups
from intercom.sessions.lookups import session_id as find_session
from intercom.sessions.messages import AwaitStart, Start, key_of
from intercom.sessions.processes import monitor_client
from intercom.sessions.processes.agent_process import (
    AgentProcessActor,
    ProcessDeps,
    build_command,
    build_environment,
)
from intercom.sessions.processes.monitor_client import GRACE_SECONDS, START_SECONDS, Stream
from intercom.sessions.request_kinds import headline
from intercom.sessions.session_deps import SessionDeps
from intercom.store import audit, sessions
from intercom.store.processes import agent_processes
from intercom.store.store_and_reader import TRANSACTION_SECONDS, Reader
from intercom.store.writer_messages import Database
from intercom.workspace.files import check_workspace

#: How long an agent process actor may take to end its processes when the server stops, in seconds.
_SHUTDOWN_SECONDS = 3 * GRACE_SECONDS
#: Time limit of a person's start, in seconds: for the program, and for components that restart.
_ASK_SECONDS = 60.0
#: Seconds between two checks of a start's result.
_PAUSE = 0.1

#: The most bytes of output that are read at once.
LONGEST_PIECE = 256 * 1024
#: The default number of output lines.
LINES = 200

#: The namespace of session ids made from action ids: the same action is the same session.
_ACTS = uuid.UUID("5f1f9e0c-6a0b-4d7a-9c55-3f6c8f3a1b52")


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
                await self.system.next_incarnation(self._at.supervisor, None)
                await self._bring_back()
        return None

    async def _bring_back(self) -> None:
        found = await self._at.session_deps.store.transact(agent_processes.unfinished)
        for agent_process in found:
            # Before the first of them ends a process or reports one.
            self._at.note_first(agent_process)
        for agent_process in found:
            await self._ensure(agent_process.session_id)
        self._brought_back = True
        self.monitor(self._at.supervisor)

    async def _start(self, asked: Start) -> Session | None:
        config = self._at.session_deps.config
        variables = build_environment(
            self._at.environ, config.spawn.environment, asked.session_id, asked.workspace_root, {}
        )
        # Checked before anything is recorded.
        await trio.to_thread.run_sync(build_command, config, asked.prompt, variables)
        session, agent_process = await self._at.session_deps.store.transact(partial(_record, asked=asked, at=self._at))
        crash_points.reach("agent_process.recorded")
        if agent_process.state is AgentProcessState.OVER:
            return _outcome(session, agent_process)
        self._at.note_first(agent_process)
        await self._ensure(session.id)
        self.spawn(self._await_start, session, self.defer())
        return None

    async def _await_start(self, session: Session, reply: Reply[Session]) -> None:
        agent_process = self.system.named(f"agent-process/{session.id}")
        with trio.move_on_after(START_SECONDS + TRANSACTION_SECONDS):
            while not reply.abandoned:
                try:
                    if (done := await self._outcome_of(session.id, agent_process)) is not None:
                        reply.set(done)
                        return
                except SpawnFailed as failed:
                    reply.fail(failed)
                    return
                except (IntercomError, *lookups.UNANSWERED):
                    pass  # its actor or the store may be restarting or overloaded
                await trio.sleep(_PAUSE)
        reply.fail(SpawnFailed(f"session {session.id} is recorded, and its agent is not there yet; see the log"))

    async def _outcome_of(self, session_id: str, agent_process: Name) -> Session | None:
        """Return the session once its agent runs, or has run; None while that is unknown. Raises SpawnFailed."""
        is_there = True
        try:
            await ask(agent_process, AwaitStart(), timeout=START_SECONDS)
        except SpawnFailed:
            raise
        except (IntercomError, *lookups.UNANSWERED):
            is_there = False
        after, row = await self._at.session_deps.store.transact(partial(_both, session_id=session_id))
        return _outcome(after, row) if is_there or row.state is AgentProcessState.OVER else None

    async def _ensure(self, session_id: str) -> None:
        spec = ChildSpec(
            f"agent-process/{session_id}",
            partial(AgentProcessActor, session_id, self._at),
            restart=Restart.TRANSIENT,
            shutdown=_SHUTDOWN_SECONDS,
        )
        await lookups.ensure(self._at.supervisor, spec)


def _outcome(session: Session, agent_process: AgentProcess) -> Session:
    """Return the session of a start that is over. Raises SpawnFailed if it failed."""
    if agent_process.why is Why.NOT_STARTED:
        raise SpawnFailed(f"the agent could not be started: {agent_process.said}", session_id=session.id)
    return session


def _both(db: Database, session_id: str) -> tuple[Session, AgentProcess]:
    session, agent_process = sessions.get(db, session_id), agent_processes.get(db, session_id)
    assert session is not None, "it was recorded, and is not purged before it is old"
    assert agent_process is not None, "it was recorded with its session"
    return session, agent_process


def _record(db: Database, asked: Start, at: ProcessDeps) -> tuple[Session, AgentProcess]:
    """Record that this agent is to run. Existing rows stay as they are."""
    now = at.session_deps.now()
    session, agent_process = sessions.get(db, asked.session_id), agent_processes.get(db, asked.session_id)
    if session is not None and agent_process is not None:
        return session, agent_process
    if session is not None and session.status is SessionStatus.TERMINATED:
        raise InvalidState(f"session {session.id} is over; start another")
    if session is not None and session.agent_key is not None and at.session_deps.present(session.agent_key):
        # Any agent may take up a restored session, but not two.
        raise InvalidState(f"session {session.id} has an agent already, which is connected")
    running = agent_processes.unfinished(db)
    most = at.session_deps.config.max_concurrent_sessions
    if len(running) >= most:
        ids = ", ".join(each.session_id[:8] for each in running[:8])
        run = "runs" if len(running) == 1 else "run"
        raise IntercomError(
            f"{count(len(running), 'agent')} started by people {run} already ({ids}),"
            f" and max_concurrent_sessions is {most}: end one, or wait until one is done",
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
    agent_process = AgentProcess(session.id, AgentProcessState.STARTING, now, asked.by, asked.label)
    agent_processes.insert(db, agent_process)
    what = headline(asked.prompt, 200)
    data = {"workspace_root": session.workspace_root, "channel": asked.channel, "label": asked.label}
    if asked.mode is not None:
        data["mode"] = asked.mode.value
    audit.record(db, now, "session_started", session.id, asked.by, what, data)
    return sessions.get(db, session.id) or session, agent_process


# --- for operators' channels -----------------------------------------------------------------------------------------


@frozen
class Output:
    """A piece of an agent's output: `text`, from byte `start` of the stream up to `end`, where reading continues.
    `is_going` says that more may come. `exit` is how the last run ended, None while it runs."""

    session_id: str
    stream: Stream
    text: str
    start: int
    end: int
    is_going: bool
    exit: Exit | None


@frozen
class AgentProcesses:
    """The calls for started agents. `root` is the directory of all outputs."""

    system: System
    deps: SessionDeps
    reader: Reader
    root: Path

    async def start(
        self,
        prompt: str,
        *,
        by: str,
        channel: str,
        workspace: str | None = None,
        owner: str = "",
        mode: SessionMode | None = None,
        chat_channel: str | None = None,
        label: str | None = None,
        act: str | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Start an agent, and return its session once its process runs.

        `by` is the person, `owner` the session's owner (empty: every authorized operator). Without `workspace`, the
        default one is used. `mode` says who is notified, `chat_channel` where the chat shows it. `act` names the
        action, which starts one agent however often it is repeated. `session_id` names an existing session without an
        agent, such as a restored one; it keeps its own `workspace`, `owner`, `mode` and `chat_channel`.

        Raises WorkspaceRefused, ConfigError, InvalidArguments (the prompt), IntercomError (`too_many_sessions`): then
        nothing was started or recorded. Raises SpawnFailed if the program cannot be run.
        """
        given = workspace or self.deps.config.default_workspace_root
        if given is None:
            raise WorkspaceRefused("say where the agent is to work: there is no default_workspace_root")
        root = await trio.to_thread.run_sync(check_workspace, Path(given))
        id = session_id or (self.deps.new_id() if act is None else self._named(act))
        asked = Start(id, prompt, str(root), by, channel, owner, mode, chat_channel, label)
        return await ask(self.system.named("spawner"), asked, timeout=_ASK_SECONDS, retry=True)

    def _named(self, act: str) -> str:
        """Return the session id of this action, unique to this server's database: processes are found by it."""
        return str(uuid.uuid5(_ACTS, f"{self.reader.path.resolve()}\0{act}"))

    async def everyone(self, sessions: Collection[str] | None = None) -> dict[str, AgentProcess]:
        """Return the recorded agents that people started for these sessions, or all, by session id."""
        read = partial(agent_processes.everyone, session_ids=sessions)
        return {agent_process.session_id: agent_process for agent_process in await self.reader.read(read)}

    async def output(
        self,
        session: str,
        stream: Stream = Stream.STDOUT,
        *,
        lines: int = LINES,
        start: int | None = None,
        limit: int = LONGEST_PIECE,
        masked: bool = False,
    ) -> Output:
        """Return an agent's output: its last `lines`, or from byte `start` on; at most `limit` bytes. `masked` masks
        secrets, also those that begin before the piece; use it for text that leaves the machine.

        Raises NotFound (also if people did not start the session's agent) and Ambiguous.
        """
        id = await find_session(self.reader, session)
        agent_process = await self.reader.read(partial(agent_processes.get, id=id))
        if agent_process is None:
            raise NotFound(f"the agent of session {id[:8]} was not started by intercom: its output is its client's")
        directory = self.root / id
        limit = min(limit, LONGEST_PIECE)
        piece = await trio.to_thread.run_sync(
            partial(monitor_client.read_tail, directory, stream, lines, limit)
            if start is None
            else partial(monitor_client.read_from, directory, stream, start, limit)
        )
        data = piece.data
        # Not `exit`: the end may be recorded before the monitor has written the last output.
        is_going = agent_process.state is not AgentProcessState.OVER
        if is_going or (start is not None and len(data) == limit):
            # Do not split a character: the rest of it may follow.
            data = data[: len(data) - _loose_end(data)]
        text = data.decode(errors="replace")
        if masked:
            whole = evolve(piece, data=data)
            text = (await trio.to_thread.run_sync(monitor_client.masked, directory, stream, whole))[-limit:]
        return Output(id, stream, text, piece.start, piece.start + len(data), is_going, agent_process.exit)


def _loose_end(data: bytes) -> int:
    """Return how many bytes at the end begin a character that is not complete."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if needed > back else 0
        if byte < 0x80:
            return 0
    return 0
