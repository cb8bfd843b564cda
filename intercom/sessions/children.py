"""Agents that people start, as operators' channels see them: calls, no state."""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path

import trio
from attrs import frozen

from actors import System, ask
from intercom.model.child import Child, ChildState, Exit
from intercom.model.errors import NotFound, WorkspaceRefused
from intercom.model.session import Session, SessionMode
from intercom.sessions.context import Context
from intercom.sessions.finding import session_id as find_session
from intercom.sessions.spawning import output_files
from intercom.sessions.spawning.messages import Start
from intercom.sessions.spawning.output_files import Stream
from intercom.store import children
from intercom.store.reader import Reader
from intercom.workspace.paths import check_workspace

#: How long a start may take, in seconds: the program's own, and that of parts which are restarting.
START_SECONDS = 60.0
#: The most that is read of an output at once, in bytes.
LONGEST_PIECE = 256 * 1024
#: How many lines there are of an output, where nobody says how many are wanted.
LINES = 200

#: An act's id becomes its session's: the same act again is the same session.
_ACTS = uuid.UUID("5f1f9e0c-6a0b-4d7a-9c55-3f6c8f3a1b52")


@frozen
class Output:
    """A piece of what an agent wrote: `text`, from byte `start` of the stream up to `end`, where to go on reading.
    `is_going` says that more may come; `exit` how its last run ended, None while it runs."""

    session_id: str
    stream: Stream
    text: str
    start: int
    end: int
    is_going: bool
    exit: Exit | None


@frozen
class Children:
    """`root` is the directory that all outputs are under."""

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
        """Start an agent; its session, once its process runs.

        `by` is who starts it, `owner` whose session it is (empty: every authorized operator's). Without `workspace` it
        works in the default one; `mode` says who is notified, `chat_channel` where in the chat it is shown. `act` names
        the act, which then starts one agent however often it is repeated. `session_id` is a session that is there and
        has no agent yet: one that was restored; then `workspace`, `owner`, `mode` and `chat_channel` are its own.

        Raises WorkspaceRefused, ConfigError, InvalidArguments (the prompt), IntercomError (`too_many_sessions`):
        nothing was started then, and nothing is on record. Raises SpawnFailed when the program can not be run.
        """
        given = workspace or self.context.config.default_workspace_root
        if given is None:
            raise WorkspaceRefused("say where the agent is to work: there is no default_workspace_root")
        root = await trio.to_thread.run_sync(check_workspace, Path(given))
        id = session_id or (self.context.new_id() if act is None else self._named(act))
        asked = Start(id, prompt, str(root), by, channel, owner, mode, chat_channel, label)
        return await ask(self.system.named("spawner"), asked, timeout=START_SECONDS, retry=True)

    def _named(self, act: str) -> str:
        """The session of this act: the same again, and no other server's, since processes are known by it."""
        return str(uuid.uuid5(_ACTS, f"{self.reader.path.resolve()}\0{act}"))

    async def everyone(self) -> dict[str, Child]:
        """All agents that people started and that are on record, by session."""
        return {child.session_id: child for child in await self.reader.read(children.everyone)}

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
        """What an agent wrote: its last `lines`, or from byte `start` on; at most `limit` bytes. For what leaves the
        machine `masked` has secrets masked in it, also such as begin before the piece.

        Raises NotFound (also for a session whose agent people did not start) and Ambiguous.
        """
        id = await find_session(self.reader, session)
        child = await self.reader.read(partial(children.get, session_id=id))
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
        # What it wrote last may be read after its end is on record, and before its keeper has written it down.
        is_going = child.state is not ChildState.OVER
        if is_going or (start is not None and len(data) == limit):
            # Not through the middle of a character: the rest of it is to come.
            data = data[: len(data) - _loose_end(data)]
        text = data.decode(errors="replace")
        if masked:
            before = await trio.to_thread.run_sync(output_files.lead, directory, stream, piece.start)
            text = (await trio.to_thread.run_sync(output_files.masked_after, before, data))[-limit:]
        return Output(id, stream, text, piece.start, piece.start + len(data), is_going, child.exit)


def _loose_end(data: bytes) -> int:
    """How many bytes at the end begin a character and do not end it."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if needed > back else 0
        if byte < 0x80:
            return 0
    return 0
