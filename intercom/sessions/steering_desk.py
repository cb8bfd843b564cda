"""The part of the operator service that pauses agents and sends them messages and tasks."""

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

#: The default length of a listing.
LISTED = 50
_STORE_SECONDS = 30.0
_TASKS = (Kind.TASK,)
_WORDS = (Kind.NUDGE, Kind.STEER)


@frozen
class Steering:
    """Sessions are named by id or unique prefix; without a name, the only possible one is meant. Raises NotFound and
    Ambiguous. An `act_id` names an action: a repeated action is answered like the first time."""

    desk: Desk

    async def pause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        """Pause the agent: its calls do nothing until `unpause`. Raises InvalidState for a session that has ended."""
        id = await self.desk.named_session(session, _can_be_paused, "session that could be paused", act_id)
        return await self.desk.ask_session(id, Pause(by, channel))

    async def unpause(self, session: str | None, by: str, channel: str, act_id: str | None = None) -> Session:
        """Unpause a session. Raises InvalidState if it is not paused."""
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
        """Queue a message for the agent: its next result carries it, or it ends the agent's standby. Raises
        SteerQueueFull, InvalidArguments for an empty or too long message, and InvalidState for a session that has
        ended. Raises SignatureRefused if a required signature is missing or wrong."""
        id = await self.desk.named_session(session, _is_open, "session", act_id)
        return await self.desk.ask_session(id, Steer(self._id(act_id), Kind.STEER, text, by, channel, signed))

    async def words(self, session: str | None = None, limit: int = LISTED) -> tuple[Instruction, ...]:
        """Return what agents were told or are to be told, oldest first; of one session, or of all."""
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
        """Leave a task for a session's agent, or for the next agent in a workspace, which gets it when it calls reboot
        or standby. `workspace` is a directory: a workspace's root, or one below it. Raises as `steer`, and
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
        """Return the tasks that no agent has got yet, oldest first; with `everything`, the closed ones too."""
        id = None if session is None else await self.desk.session_id(session)
        found = await self.desk.reader.read(partial(instructions.listed, limit=limit, session_id=id, kinds=_TASKS))
        return tuple(word for word in found if everything or word.is_open)

    async def take_back(self, prefix: str, by: str, channel: str) -> Card:
        """Cancel a message or a task. Raises AlreadyDecided if it has reached an agent, or may be on its way."""
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
        """Return the instruction's id for an action: a repeated action is the same instruction."""
        return self._context.new_id() if act_id is None else id_of_act(act_id)

    async def _transact(self, work: Callable[[Database], T]) -> T:
        return await ask(self._context.store, Transact(work), timeout=_STORE_SECONDS, retry=True)

    async def workspace_of(self, directory: str) -> str:
        """Return the workspace root for a task that is left in this directory. It is that of the nearest session, else
        the one of an agent started there. Raises WorkspaceRefused."""
        here, rooted = await trio.to_thread.run_sync(_workspaces_at, directory)
        known = {session.workspace_root for session in await self.desk.sessions()}
        above = [root for root in known if here.is_relative_to(root)]
        return max(above, key=len) if above else str(rooted)

    async def _tell_of_tasks(self, task: Instruction) -> None:
        """Tell agents that stand by of the task; the first one takes it."""
        for session in await self.desk.sessions():
            if session.id == task.session_id or session.workspace_root == task.workspace_root:
                name = self.desk.system.named(f"session/{session.id}")
                if name.ref is not None:
                    name.tell(TasksLeft(task.by, task.channel))


def _workspaces_at(directory: str) -> tuple[Path, Path]:
    """Return the resolved directory, and the workspace of an agent that is started in it."""
    here = check_workspace(Path(directory))
    return here, check_workspace(version_control_root(here) or here)


def _leave(db: Database, word: Instruction, signed: SignedCommand | None, context: Context) -> tuple[Instruction, str]:
    """Record the task. Returns it as it is recorded, and its workspace."""
    home = word.workspace_root
    if word.session_id is not None:
        session = sessions.get(db, word.session_id)
        assert session is not None, "it was found a moment ago, and sessions are kept for days"
        home = session.workspace_root
        if session.status is SessionStatus.TERMINATED:
            raise InvalidState("this session was ended; leave the task for its workspace, or for another session")
    found = instructions.get(db, word.id)
    if found is not None:
        # A repeated request whose answer was lost, or another action under the same name.
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
