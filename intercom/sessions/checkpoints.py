"""The actor `checkpoints`: takes checkpoints of sessions, and restores them.

Looking at a workspace takes a while, so each wish is carried out in a task of its own; what is promised stands in the
store before anything is done, and is carried on with after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from actors import Actor, Busy, Down, NotRunning, Refused, Reply
from intercom.model import crash_points
from intercom.model.card import Card, Notice
from intercom.model.errors import AlreadyDecided, IntercomError, InvalidArguments, NotFound
from intercom.model.restore import Restore, RestoreState
from intercom.model.verdict import Decided, Decision, Verdict
from intercom.sessions import checkpoint_taking, restoring
from intercom.sessions.archive import Archive
from intercom.sessions.checkpoint_messages import (
    AnswerRestore,
    AskRestore,
    LookBack,
    RestoreExpired,
    SweepContents,
    TakeCheckpoint,
)
from intercom.sessions.restore_cards import of_restore
from intercom.sessions.successors import Successors
from intercom.store import audit, checkpoints, restores
from intercom.store.messages import Database

log = logging.getLogger("intercom.sessions")

#: Seconds until what could not be carried out for now is tried again.
AGAIN_SECONDS = 10.0

_PASSING = (IntercomError, Refused, Down, NotRunning, Busy, trio.TooSlowError)


class Checkpoints(Actor):
    """Answers `TakeCheckpoint`, `AskRestore` and `AnswerRestore`; told `SweepContents` by the housekeeping."""

    refusals = (Refused, IntercomError)

    def __init__(self, archive: Archive, successors: Successors) -> None:
        super().__init__()
        self._archive = archive
        self._successors = successors
        self._has_looked = False
        self._begun: dict[str, list[Reply[Any]]] = {}
        self._carrying: set[str] = set()

    def on_start(self) -> None:
        # Not here: the store may be down, and is not restarted while its supervisor waits for this start.
        self.actor_ref.tell(LookBack())

    async def on_receive(self, message: Any) -> Any:
        match message:
            case LookBack():
                await self._look_back()
            case TakeCheckpoint():
                self._begin(message.id, partial(checkpoint_taking.take, self._archive, message))
            case AskRestore():
                self._begin(message.id, partial(self._asked, message))
            case AnswerRestore():
                return await self._answer(message)
            case RestoreExpired():
                await self._expire(message.restore_id)
            case SweepContents():
                self.spawn(self._sweep)
        return None

    # --- wishes that take a while ------------------------------------------------------------------------------------

    def _begin(self, id: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Do it in a task of its own, once for this id; whoever asks meanwhile waits for the same answer."""
        waiting = self._begun.setdefault(id, [])
        waiting.append(self.defer())
        if len(waiting) == 1:
            self.spawn(self._do, id, work)

    async def _do(self, id: str, work: Callable[[], Awaitable[Any]]) -> None:
        try:
            answer = await work()
        except self.refusals as refused:
            for reply in self._begun.pop(id, ()):
                reply.fail(refused)
            return
        except _PASSING as passing:
            for reply in self._begun.pop(id, ()):
                reply.fail(
                    IntercomError(f"a part of the server is restarting ({passing}); try again", code="unavailable")
                )
            return
        except Exception:
            # One workspace that we can not deal with must not take the others' checkpoints down with it.
            log.exception("a wish about checkpoints failed")
            for reply in self._begun.pop(id, ()):
                reply.fail(IntercomError("this failed for a reason that the server's log tells", code="unavailable"))
            return
        for reply in self._begun.pop(id, ()):
            reply.set(answer)

    async def _asked(self, asked: AskRestore) -> Card:
        restore = await restoring.ask(self._archive, asked)
        self._watch(restore)
        return of_restore(restore)

    # --- verdicts ----------------------------------------------------------------------------------------------------

    async def _answer(self, asked: AnswerRestore) -> Card:
        won, restore = await self._archive.transact(
            partial(_decide, id=asked.restore_id, verdict=asked.verdict, at=self._archive.context.now())
        )
        if not won:
            raise _too_late(restore)
        crash_points.reach("restore.accepted")
        self._tell(restore)
        self._watch(restore)
        if restore.state is RestoreState.GIVEN_UP:
            self.spawn(restoring.give_up, self._archive, restore)
        return of_restore(restore)

    async def _expire(self, id: str) -> None:
        restore = await self._archive.transact(partial(_expire, id=id, at=self._archive.context.now()))
        if restore is not None:
            self._tell(restore)
            self._watch(restore)

    def _watch(self, restore: Restore) -> None:
        """See to it that a restore comes to its end: by its deadline, or by being carried out."""
        if restore.state is RestoreState.ASKED and restore.expires_at is not None:
            left = (restore.expires_at - self._archive.context.now()).total_seconds()
            self.set_timer(restore.id, max(0.0, left), RestoreExpired(restore.id))
        elif restore.state in (RestoreState.ACCEPTED, RestoreState.COMMITTED, RestoreState.HANDED_OVER):
            self.cancel_timer(restore.id)
            if restore.id not in self._carrying:
                self._carrying.add(restore.id)
                self.spawn(self._carry_out, restore.id)
        else:
            self.cancel_timer(restore.id)

    async def _carry_out(self, id: str) -> None:
        try:
            restore = await restoring.carry_out(self._archive, self._successors, id)
        except _PASSING as passing:
            log.warning("a restore has to wait: %s", passing)
            self.set_timer("again", AGAIN_SECONDS, LookBack())
            return
        except Exception:
            log.exception("a restore stopped, and is tried again")
            self.set_timer("again", AGAIN_SECONDS, LookBack())
            return
        finally:
            self._carrying.discard(id)
        self._watch(restore)

    async def _look_back(self) -> None:
        """Carry on with what was begun, by an earlier life or by one that had to wait."""
        try:
            found = await self._archive.read(lambda db: (*restores.waiting(db), *restores.under_way(db)))
        except _PASSING as passing:
            log.warning("checkpoints can not be looked at yet: %s", passing)
            self.set_timer("again", AGAIN_SECONDS, LookBack())
            return
        for restore in found:
            self._watch(restore)

    def _tell(self, restore: Restore) -> None:
        self._archive.context.operators.tell(of_restore(restore))

    # --- contents ----------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Take away contents that no checkpoint names. While it runs none is taken: theirs are not named yet."""
        try:
            async with self._archive.work:
                gone = await trio.to_thread.run_sync(_swept, self._archive)
        except IntercomError as failed:
            context = self._archive.context
            context.operators.tell(
                Notice(f"contents of old checkpoints stay for now: {failed}", "warning", context.now())
            )
        else:
            if gone:
                log.info("%d contents that no checkpoint names any more were removed", gone)


def _swept(archive: Archive) -> int:
    if not archive.contents.size():
        return 0
    with archive.contents.open() as held:
        return archive.reader.read_sync(lambda db: held.sweep(checkpoints.hashes_named(db)))


def _decide(db: Database, id: str, verdict: Verdict, at: Any) -> tuple[bool, Restore]:
    """Whether this verdict won, now or before, and the restore as it stands after."""
    restore = restores.get(db, id)
    if restore is None:
        raise NotFound(f"no restore has the id {id!r}", code="request_not_found")
    if verdict.decision not in (Decision.PROCEED, Decision.CANCEL):
        raise InvalidArguments(f"{verdict.decision.value} is no answer to a restore; use proceed or cancel")
    if restore.decided is not None and restore.decided.verdict_id == verdict.id:
        return True, restore
    to = {
        (RestoreState.ASKED, Decision.PROCEED): RestoreState.ACCEPTED,
        (RestoreState.ASKED, Decision.CANCEL): RestoreState.CANCELLED,
        (RestoreState.STUCK, Decision.PROCEED): RestoreState.HANDED_OVER,
        (RestoreState.STUCK, Decision.CANCEL): RestoreState.GIVEN_UP,
    }.get((restore.state, verdict.decision))
    late = restore.state is RestoreState.ASKED and restore.expires_at is not None and restore.expires_at <= at
    if to is None or late:
        return False, restore
    decided = Decided(verdict.id, verdict.decision.value, verdict.by, verdict.channel, at, verdict.text)
    won = restores.advance(db, id, restore.state, to, at, decided=decided)
    after = restores.get(db, id)
    assert after is not None
    if won:
        data = {"restore_id": id, "channel": verdict.channel}
        audit.record(db, at, "decided", restore.session_id, verdict.by, verdict.decision.value, data)
    return won, after


def _expire(db: Database, id: str, at: Any) -> Restore | None:
    restore = restores.get(db, id)
    if restore is None or restore.state is not RestoreState.ASKED:
        return restore
    restores.advance(db, id, RestoreState.ASKED, RestoreState.EXPIRED, at, note="nobody said whether to proceed")
    return restores.get(db, id)


def _too_late(restore: Restore) -> AlreadyDecided:
    decided = restore.decided
    who = "" if decided is None else f": {decided.decision} by {decided.by} ({decided.channel})"
    return AlreadyDecided(
        f"restore {restore.id} is no longer open, it is {restore.state.value.replace('_', ' ')}{who};"
        " nothing was changed",
        request_id=restore.id,
        status=restore.state.value,
    )
