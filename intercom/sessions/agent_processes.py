"""Agents that people start, as operators' channels see them: calls, no state."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from actors import System, ask
from intercom.model.errors import NotFound, WorkspaceRefused
from intercom.model.process import AgentProcess, AgentProcessState, Exit
from intercom.model.session import Session, SessionMode
from intercom.sessions.context import Context
from intercom.sessions.lookups import session_id as find_session
from intercom.sessions.processes import output_files
from intercom.sessions.processes.messages import Start
from intercom.sessions.processes.output_files import Stream
from intercom.store import agent_processes
from intercom.store.reader import Reader
from intercom.workspace.files import check_workspace

#: Time limit of a start, in seconds: for the program, and for components that restart.
START_SECONDS = 60.0
#: The most bytes of output that are read at once.
LONGEST_PIECE = 256 * 1024
#: The default number of output lines.
LINES = 200

#: The namespace of session ids made from action ids: the same action is the same session.
_ACTS = uuid.UUID("5f1f9e0c-6a0b-4d7a-9c55-3f6c8f3a1b52")


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
    context: Context
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
        given = workspace or self.context.config.default_workspace_root
        if given is None:
            raise WorkspaceRefused("say where the agent is to work: there is no default_workspace_root")
        root = await trio.to_thread.run_sync(check_workspace, Path(given))
        id = session_id or (self.context.new_id() if act is None else self._named(act))
        asked = Start(id, prompt, str(root), by, channel, owner, mode, chat_channel, label)
        return await ask(self.system.named("spawner"), asked, timeout=START_SECONDS, retry=True)

    def _named(self, act: str) -> str:
        """Return the session id of this action, unique to this server's database: processes are found by it."""
        return str(uuid.uuid5(_ACTS, f"{self.reader.path.resolve()}\0{act}"))

    async def everyone(self, sessions: Collection[str] | None = None) -> dict[str, AgentProcess]:
        """Return the recorded agents that people started for these sessions, or all, by session id."""
        read = partial(agent_processes.everyone, session_ids=sessions)
        return {child.session_id: child for child in await self.reader.read(read)}

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
        child = await self.reader.read(partial(agent_processes.get, session_id=id))
        if child is None:
            raise NotFound(f"the agent of session {id[:8]} was not started by intercom: its output is its client's")
        directory = output_files.directory_of(self.root, id)
        limit = min(limit, LONGEST_PIECE)
        piece = await trio.to_thread.run_sync(
            partial(output_files.read_tail, directory, stream, lines, limit)
            if start is None
            else partial(output_files.read_from, directory, stream, start, limit)
        )
        data = piece.data
        # Not `exit`: the end may be recorded before the monitor has written the last output.
        is_going = child.state is not AgentProcessState.OVER
        if is_going or (start is not None and len(data) == limit):
            # Do not split a character: the rest of it may follow.
            data = data[: len(data) - _loose_end(data)]
        text = data.decode(errors="replace")
        if masked:
            before = await trio.to_thread.run_sync(output_files.lead, directory, stream, piece.start)
            text = (await trio.to_thread.run_sync(output_files.masked_after, before, data))[-limit:]
        return Output(id, stream, text, piece.start, piece.start + len(data), is_going, child.exit)


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
