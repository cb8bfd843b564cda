"""What people can do with checkpoints: calls of the desk, no state."""

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

#: How long a look at a workspace may take in all, in seconds, others' before it among them; and a verdict.
LOOK_SECONDS = 600.0
ANSWER_SECONDS = 30.0


@frozen
class CheckpointCalls:
    """`actor` is the one named `checkpoints`; `session_id` finds a session by the beginning of its id, or the only one
    there is."""

    actor: Name
    reader: Reader
    session_id: Callable[[str | None], Awaitable[str]]

    async def take(
        self, session: str | None, label: str | None, by: str, channel: str, act_id: str | None = None
    ) -> CheckpointTaken:
        """Record how a session and its workspace stand; without `session`, the only one there is. An act of this id
        takes one checkpoint, however often it is asked. Raises NotFound, Ambiguous, and FileError for a workspace that
        is gone."""
        id = await self.session_id(session)
        words = " ".join((label or "").split())[:200] or None
        wish = TakeCheckpoint(_named(act_id, "checkpoint"), id, words, by, channel)
        return await ask(self.actor, wish, timeout=LOOK_SECONDS, retry=True)

    async def listed(self, session: str | None = None) -> tuple[CheckpointLine, ...]:
        """The checkpoints of a session, or of all, newest first."""
        id = None if session is None else await self.session_id(session)
        return await self.reader.read(partial(checkpoints.of, session_id=id))

    async def checkpoint(self, prefix: str) -> CheckpointLine:
        """A checkpoint by the beginning of its id. Raises NotFound and Ambiguous."""
        return await self.reader.read(partial(_one, prefix=prefix))

    async def ask_restore(
        self, checkpoint: str, files: Files, by: str, channel: str, act_id: str | None = None
    ) -> Restore:
        """Compare a checkpoint with its workspace, and ask whether to go back to it: the question, which is answered as
        any card is, with proceed or cancel. Nothing changes until then. Raises NotFound and Ambiguous, FileError for
        a workspace that is gone, and InvalidState, with what differs, where a session would end and nothing be put
        back."""
        line = await self.checkpoint(checkpoint)
        wish = AskRestore(_named(act_id, "restore"), line.id, files, by, channel)
        card = await ask(self.actor, wish, timeout=LOOK_SECONDS, retry=True)
        return await self.restore(card.id)

    async def restore(self, id: str) -> Restore:
        """How a restore stands, by its whole id. Raises NotFound."""
        found = await self.reader.read(partial(restores.get, id=id))
        if found is None:
            raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
        return found

    async def answer(self, id: str, verdict: Verdict) -> Card:
        """Proceed with a restore, or cancel it. The first verdict wins: raises AlreadyDecided for a later one."""
        return await ask(self.actor, AnswerRestore(id, verdict), timeout=ANSWER_SECONDS, retry=True)


def _named(act_id: str | None, kind: str) -> str:
    """The id of what an act makes: always the same for one act."""
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
