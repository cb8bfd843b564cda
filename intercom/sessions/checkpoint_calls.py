"""What people can do with checkpoints: stateless calls of the operator service."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from functools import partial

from attrs import frozen

from actors import Name, ask
from intercom.model.card import Card
from intercom.model.checkpoint import CheckpointLine
from intercom.model.errors import Ambiguous, NotFound
from intercom.model.restore import Files, Restore
from intercom.model.verdict import Verdict
from intercom.sessions.checkpoint_messages import AnswerRestore, AskRestore, CheckpointTaken, TakeCheckpoint
from intercom.store import checkpoints, restores
from intercom.store.messages import Database
from intercom.store.reader import Reader

#: Time limit of comparing a workspace, including the wait for other comparisons; and of a decision. In seconds.
LOOK_SECONDS = 600.0
ANSWER_SECONDS = 30.0


@frozen
class CheckpointCalls:
    """The checkpoint calls. `actor` is the actor `checkpoints`. `session_id` finds a session by the prefix of its id;
    without a prefix, the only session."""

    actor: Name
    reader: Reader
    session_id: Callable[[str | None], Awaitable[str]]

    async def take(
        self, session: str | None, label: str | None, by: str, channel: str, act_id: str | None = None
    ) -> CheckpointTaken:
        """Take a checkpoint of a session and its workspace; without `session`, of the only session. One `act_id` takes
        one checkpoint, however often it is repeated. Raises NotFound, Ambiguous, and FileError if the workspace is
        gone."""
        id = await self.session_id(session)
        words = " ".join((label or "").split())[:200] or None
        wish = TakeCheckpoint(_named(act_id, "checkpoint"), id, words, by, channel)
        return await ask(self.actor, wish, timeout=LOOK_SECONDS, retry=True)

    async def listed(self, session: str | None = None) -> tuple[CheckpointLine, ...]:
        """Return the checkpoints of a session, or of all, newest first."""
        id = None if session is None else await self.session_id(session)
        return await self.reader.read(partial(checkpoints.of, session_id=id))

    async def checkpoint(self, prefix: str) -> CheckpointLine:
        """Return a checkpoint by the prefix of its id. Raises NotFound and Ambiguous."""
        return await self.reader.read(partial(_one, prefix=prefix))

    async def ask_restore(
        self, checkpoint: str, files: Files, by: str, channel: str, act_id: str | None = None
    ) -> Restore:
        """Compare a checkpoint with its workspace, and ask whether to restore it. The question is a card, answered with
        proceed or cancel; nothing changes before. Raises NotFound and Ambiguous, FileError if the workspace is gone,
        and InvalidState, with the differences, if a session would end and no file be put back."""
        line = await self.checkpoint(checkpoint)
        wish = AskRestore(_named(act_id, "restore"), line.id, files, by, channel)
        card = await ask(self.actor, wish, timeout=LOOK_SECONDS, retry=True)
        return await self.restore(card.id)

    async def restore(self, id: str) -> Restore:
        """Return a restore by its whole id. Raises NotFound."""
        found = await self.reader.read(partial(restores.get, id=id))
        if found is None:
            raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
        return found

    async def answer(self, id: str, verdict: Verdict) -> Card:
        """Proceed with a restore, or cancel it. The first decision wins: raises AlreadyDecided for a later one."""
        return await ask(self.actor, AnswerRestore(id, verdict), timeout=ANSWER_SECONDS, retry=True)


def _named(act_id: str | None, kind: str) -> str:
    """Return the id of what an action creates: always the same for one action."""
    return str(uuid.uuid4() if act_id is None else uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}/{act_id}"))


def _one(db: Database, prefix: str) -> CheckpointLine:
    ids = checkpoints.with_prefix(db, prefix) if prefix else ()
    found = [id for id in ids if id == prefix] or list(ids)
    if not found:
        raise NotFound(f"no checkpoint has an id that begins with {prefix[:40]!r}; see checkpoints")
    if len(found) > 1:
        raise Ambiguous(f"{prefix!r} fits {len(found)} checkpoints ({', '.join(found[:5])}); give more of the id")
    line = checkpoints.line(db, found[0])
    assert line is not None, "read in one transaction"
    return line
