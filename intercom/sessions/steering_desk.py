"""The desk's part for pausing and steering: what operators' channels, and a program that embeds us, can do to an agent
that works."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import trio
from attrs import evolve, frozen

from actors import ask
from intercom.model.card import Card
from intercom.model.errors import AlreadyDecided, InvalidArguments, InvalidState
from intercom.model.session import Session, SessionStatus
from intercom.model.steering import Instruction, Kind, id_of_act
from intercom.model.verdict import SignedCommand
from intercom.sessions import cards, outcomes, steering
from intercom.sessions.context import Context
from intercom.sessions.finding import only
from intercom.sessions.steering_messages import Pause, Steer, TakeBack, TasksLeft, Unpause
from intercom.store import audit, instructions, sessions
from intercom.store.messages import Database, Transact
from intercom.workspace.paths import check_workspace
from intercom.workspace.roots import version_control_root

if TYPE_CHECKING:
    from intercom.sessions.desk import Desk

T = TypeVar("T")

#: How many entries a listing holds when it is not said.
LISTED = 50
_STORE_SECONDS = 30.0
_TASKS = (Kind.TASK,)
_WORDS = (Kind.NUDGE, Kind.STEER)


@frozen
class Steering:
    """Sessions are named by id or unique prefix: raises NotFound and Ambiguous. Without a name, the only one that it
    can be. An `act_id` names an act for good: the same again is answered as the first time."""

    desk: Desk

    async def pause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        """Let no call of the agent do anything until `unpause`. Raises InvalidState for a session that has ended."""
        id = await self.desk.named_session(session, _can_be_paused, "session that could be paused", act_id)
        return await self.desk.ask_session(id, Pause(by, channel))

    async def unpause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        """Let a paused session go on. Raises InvalidState for one that is not paused."""
        id = await self.desk.named_session(session, _is_paused, "paused session", act_id)
        return await self.desk.ask_session(id, Unpause(act_id or self._context.new_id(), by, channel))

    async def steer(
        self,
        session: str | None,
        text: str,
        by: str,
        channel: str,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card:
        """Queue words for the agent: they ride on its next result, or end its standby. Raises SteerQueueFull,
        InvalidArguments for words that say nothing or are too long, InvalidState for a session that has ended, and
        where there is an operator key SignatureRefused."""
        id = await self.desk.named_session(session, _is_open, "session", act_id)
        return await self.desk.ask_session(id, Steer(self._id(act_id), Kind.STEER, text, by, channel, signed))

    async def words(self, session: str | None = None, limit: int = LISTED) -> tuple[Instruction, ...]:
        """What agents were told or are to be told, oldest first; of one session, or of all."""
        id = None if session is None else await self.desk.session_id(session)
        return await self.desk.reader.read(partial(instructions.listed, limit=limit, session_id=id, kinds=_WORDS))

    async def add_task(
        self,
        text: str,
        by: str,
        channel: str,
        *,
        session: str | None = None,
        workspace: str | None = None,
        act_id: str | None = None,
        signed: SignedCommand | None = None,
    ) -> Card:
        """Leave a task for a session's agent, or for the next agent in a workspace: it is handed over when that calls
        reboot or standby. `workspace` is a directory: the root of a workspace, or one below it. Raises as `steer`, and
        WorkspaceRefused."""
        if (session is None) == (workspace is None):
            raise InvalidArguments("a task is for a session or for a workspace: name one of them")
        id = None if session is None else await self.desk.session_id(session)
        root = None if workspace is None else await self.workspace_of(workspace)
        at = self._context.now()
        word = Instruction(self._id(act_id), Kind.TASK, text, by, channel, at, id, root)
        kept, home = await self._transact(partial(_leave, word=word, signed=signed, context=self._context))
        card = cards.of_words(kept, home)
        self._context.operators.tell(card)
        if kept.is_open and kept.taken_at is None:
            await self._tell_of_tasks(kept)
        return card

    async def tasks(
        self, session: str | None = None, *, everything: bool = False, limit: int = LISTED
    ) -> tuple[Instruction, ...]:
        """The tasks that were left and no agent has yet, oldest first; with `everything`, those that are done with
        too."""
        id = None if session is None else await self.desk.session_id(session)
        found = await self.desk.reader.read(partial(instructions.listed, limit=limit, session_id=id, kinds=_TASKS))
        return tuple(word for word in found if everything or word.is_open)

    async def take_back(self, prefix: str, by: str, channel: str) -> Card:
        """Let words or a task never reach an agent. Raises AlreadyDecided when they have, or may be on their way."""
        word = await self.desk.reader.read(partial(_named, prefix=prefix))
        if word.session_id is not None and (word.kind is not Kind.TASK or word.taken_at is not None):
            return await self.desk.ask_session(word.session_id, TakeBack(word.id, by, channel))
        kept, home = await self._transact(
            partial(_take_back, id=word.id, by=by, channel=channel, context=self._context)
        )
        card = cards.of_words(kept, home)
        self._context.operators.tell(card)
        return card

    @property
    def _context(self) -> Context:
        return self.desk.context

    def _id(self, act_id: str | None) -> str:
        """An act's id becomes that of its words: the same act again is the same words."""
        return self._context.new_id() if act_id is None else id_of_act(act_id)

    async def _transact(self, work: Callable[[Database], T]) -> T:
        return await ask(self._context.store, Transact(work), timeout=_STORE_SECONDS, retry=True)

    async def workspace_of(self, directory: str) -> str:
        """The root of the workspace that a task is for which is left in this directory: that of a session, the nearest,
        else what an agent started there would take. Of a root it is that root. Raises WorkspaceRefused."""
        here, rooted = await trio.to_thread.run_sync(_workspaces_at, directory)
        known = {session.workspace_root for session in await self.desk.sessions()}
        above = [root for root in known if here.is_relative_to(root)]
        return max(above, key=len) if above else str(rooted)

    async def _tell_of_tasks(self, task: Instruction) -> None:
        """Agents that stand by take it now; the first of them does."""
        for session in await self.desk.sessions():
            if session.id == task.session_id or session.workspace_root == task.workspace_root:
                name = self.desk.system.named(f"session/{session.id}")
                if name.ref is not None:
                    name.tell(TasksLeft(task.by, task.channel))


def _workspaces_at(directory: str) -> tuple[Path, Path]:
    """The directory, resolved, and the workspace of an agent that is started in it."""
    here = check_workspace(Path(directory))
    return here, check_workspace(version_control_root(here) or here)


def _leave(db: Database, word: Instruction, signed: SignedCommand | None, context: Context) -> tuple[Instruction, str]:
    """The task as it is on record, and the workspace it is done in."""
    home = word.workspace_root
    if word.session_id is not None:
        session = sessions.get(db, word.session_id)
        assert session is not None, "it was found a moment ago, and sessions are kept for days"
        home = session.workspace_root
        if session.status is SessionStatus.TERMINATED:
            raise InvalidState("this session was ended; leave the task for its workspace, or for another session")
    found = instructions.get(db, word.id)
    if found is not None:
        # Asked again, because the answer was lost; or another act under the same name.
        if (found.kind, found.text) != (word.kind, word.text):
            raise AlreadyDecided("this id stands for other words; give each act its own")
        return found, home or ""
    limits = context.config.steering
    load = instructions.load(db, word.session_id, word.workspace_root)
    steering.check_room(word.text, load, limits.max_queued, limits.max_queued_bytes)
    word = evolve(word, signed=context.signatures.admit_words(db, word, signed, word.at))
    instructions.insert(db, word)
    data = {"instruction_id": word.id, "channel": word.channel, "workspace_root": home}
    audit.record(db, word.at, Kind.TASK.value, word.session_id, word.by, word.text, data)
    return word, home or ""


def _take_back(db: Database, id: str, by: str, channel: str, context: Context) -> tuple[Instruction, str]:
    word = instructions.get(db, id)
    assert word is not None, "it was found a moment ago"
    if word.taken_at is not None or word.delivered_at is not None:
        raise AlreadyDecided("an agent has taken this task; nothing was changed")
    if instructions.close(db, (id,), context.now()):
        data = {"instruction_id": id, "channel": channel}
        summary = outcomes.headline(word.text)
        audit.record(db, context.now(), "task_taken_back", word.session_id, by, summary, data)
    session = None if word.session_id is None else sessions.get(db, word.session_id)
    return instructions.get(db, id) or word, "" if session is None else session.workspace_root


def _named(db: Database, prefix: str) -> Instruction:
    ids = instructions.with_prefix(db, prefix)
    word = instructions.get(db, only([prefix] if prefix in ids else list(ids), prefix, "message or task"))
    assert word is not None, "read in the same moment"
    return word


def _can_be_paused(session: Session) -> bool:
    return session.status is SessionStatus.ACTIVE


def _is_paused(session: Session) -> bool:
    return session.is_paused


def _is_open(session: Session) -> bool:
    return session.status is not SessionStatus.INTERRUPTED
