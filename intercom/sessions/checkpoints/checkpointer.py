"""The actor `checkpoints`: takes checkpoints of sessions, and restores them.

Reading a workspace takes a while, so each request runs in a task of its own. A decision is in the store before it is
carried out, and continues after a crash.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from actors import Actor, Refused, Reply
from intercom.model.card import Card, Notice
from intercom.model.checkpoint import CLEANED_UP, UNDER_WAY, Restore, RestoreState
from intercom.model.errors import IntercomError
from intercom.sessions.checkpoints import archive
from intercom.sessions.checkpoints import restore as checkpoints_restore
from intercom.sessions.checkpoints.archive import Archive
from intercom.sessions.checkpoints.checkpoint_messages import (
    AnswerRestore,
    AskRestore,
    LookBack,
    RestoreExpired,
    SweepContents,
    TakeCheckpoint,
)
from intercom.sessions.checkpoints.restore import of_restore
from intercom.sessions.checkpoints.restored_session import Successors
from intercom.sessions.lookups import UNANSWERED
from intercom.sessions.messages import ClockChanged
from intercom.store import checkpoints

log = logging.getLogger("intercom.sessions")

#: Seconds until a restore that had to wait is tried again.
AGAIN_SECONDS = 10.0
#: How often a restore that fails for an unexpected reason is tried.
TRIES = 5

_PASSING = (IntercomError, Refused, *UNANSWERED)
#: Codes of our errors that may pass by waiting. Other errors would occur again.
_PASSING_CODES = frozenset({"unavailable", "busy", "db"})


class Checkpoints(Actor):
    """Answers `TakeCheckpoint`, `AskRestore` and `AnswerRestore`. The housekeeping tells it `SweepContents`."""

    refusals = (Refused, IntercomError)

    def __init__(self, archive: Archive, successors: Successors) -> None:
        super().__init__()
        self._archive = archive
        self._successors = successors
        self._has_looked = False
        self._begun: dict[str, list[Reply[Any]]] = {}
        self._carrying: set[str] = set()
        self._wanted_again: set[str] = set()
        self._failures: Counter[str] = Counter()

    def on_start(self) -> None:
        # Not inside this handler: if the store is down, it is not restarted while its supervisor waits for this start.
        self.actor_ref.tell(LookBack())

    async def on_receive(self, message: object) -> Any:
        match message:
            case LookBack() | ClockChanged():
                await self._look_back()
            case TakeCheckpoint():
                self._begin(message.id, partial(archive.take, self._archive, message))
            case AskRestore():
                self._begin(message.id, partial(self._asked, message))
            case AnswerRestore():
                return await self._answer(message)
            case RestoreExpired():
                await self._expire(message.restore_id)
            case SweepContents():
                self.spawn(self._sweep)
        return None

    # --- requests that take a while ----------------------------------------------------------------------------------

    def _begin(self, id: str, work: Callable[[], Awaitable[Any]]) -> None:
        """Run `work` in a task of its own, once for this id. Repeated requests meanwhile get the same answer."""
        waiting = self._begun.setdefault(id, [])
        waiting.append(self.defer())
        if len(waiting) == 1:
            self.spawn(self._do, id, work)

    async def _do(self, id: str, work: Callable[[], Awaitable[Any]]) -> None:
        failed: Exception
        try:
            answer = await work()
        except self.refusals as refused:
            failed = refused
        except _PASSING as passing:
            failed = IntercomError(f"a part of the server is restarting ({passing}); try again", code="unavailable")
        except Exception:
            # One broken workspace must not crash the other workspaces' checkpoints.
            log.exception("a request about checkpoints failed")
            failed = IntercomError("this failed; the server's log says why", code="unavailable")
        else:
            for reply in self._begun.pop(id, ()):
                reply.set(answer)
            return
        for reply in self._begun.pop(id, ()):
            reply.fail(failed)

    async def _asked(self, asked: AskRestore) -> Card:
        restore = await checkpoints_restore.ask_restore(self._archive, asked)
        self._watch(restore)
        return of_restore(restore)

    # --- decisions ---------------------------------------------------------------------------------------------------

    async def _answer(self, asked: AnswerRestore) -> Card:
        won, restore = await self._archive.transact(
            partial(
                checkpoints_restore.decide,
                id=asked.restore_id,
                verdict=asked.verdict,
                at=self._archive.deps.now(),
                signatures=self._archive.deps.signatures,
            )
        )
        if not won:
            if restore.state is RestoreState.ASKED:
                # Its time is over, and its timer is late because the clock was set.
                await self._expire(restore.id)
            raise checkpoints_restore.too_late(restore)
        self._tell(restore)
        self._watch(restore)
        return of_restore(restore)

    async def _expire(self, id: str) -> None:
        restore = await self._archive.transact(partial(checkpoints_restore.expire, id=id, at=self._archive.deps.now()))
        if restore is not None:
            self._tell(restore)
            self._watch(restore)

    def _watch(self, restore: Restore) -> None:
        """Make sure that a restore ends: at its deadline, or by being carried out."""
        if restore.state is RestoreState.ASKED and restore.expires_at is not None:
            left = (restore.expires_at - self._archive.deps.now()).total_seconds()
            self.set_timer(restore.id, max(0.0, left), RestoreExpired(restore.id))
            return
        self.cancel_timer(restore.id)
        if restore.state not in UNDER_WAY | CLEANED_UP:
            return
        if restore.id in self._carrying:
            # The running task may end without seeing the newest decision.
            self._wanted_again.add(restore.id)
        else:
            self._carrying.add(restore.id)
            self.spawn(self._carry_out, restore.id)

    async def _carry_out(self, id: str) -> None:
        try:
            while True:
                self._wanted_again.discard(id)
                restore = await self._carried(id)
                if restore is None or id not in self._wanted_again:
                    break
        finally:
            self._carrying.discard(id)
        if restore is None:
            self.set_timer("again", AGAIN_SECONDS, LookBack())
        elif restore.state is RestoreState.ASKED:
            self._watch(restore)

    async def _carried(self, id: str) -> Restore | None:
        """Carry a restore out, and return it as it is then; None if it must be tried again later."""
        try:
            return await checkpoints_restore.carry_out(self._archive, self._successors, id)
        except _PASSING as passing:
            if isinstance(passing, IntercomError) and passing.error_code not in _PASSING_CODES:
                return await self._failed(id, passing)
            log.warning("a restore has to wait: %s", passing)
            return None
        except Exception as failed:
            log.exception("a restore stopped")
            return await self._failed(id, failed)

    async def _failed(self, id: str, why: Exception) -> Restore | None:
        self._failures[id] += 1
        if self._failures[id] < TRIES:
            log.warning("a restore is tried again: %s", why)
            return None
        told = str(why) if isinstance(why, IntercomError) else "for a reason that is in the server's log"
        try:
            stopped = await checkpoints_restore.stop(self._archive, id, f"it was tried {TRIES} times ({told})")
        except _PASSING as passing:
            log.warning("a restore has to wait: %s", passing)
            return None
        del self._failures[id]
        return stopped

    async def _look_back(self) -> None:
        """Continue the restores that an earlier server run began, or that had to wait."""
        try:
            found = await self._archive.read(checkpoints_restore.unfinished)
        except _PASSING as passing:
            log.warning("checkpoints cannot be looked at yet: %s", passing)
            self.set_timer("again", AGAIN_SECONDS, LookBack())
            return
        for restore in found:
            self._watch(restore)

    def _tell(self, restore: Restore) -> None:
        self._archive.deps.card_router.tell(of_restore(restore))

    # --- contents ----------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        """Remove contents that no checkpoint names. No checkpoint is taken meanwhile: its contents would go too."""
        try:
            async with self._archive.work:
                gone = await trio.to_thread.run_sync(_swept, self._archive)
        except IntercomError as failed:
            deps = self._archive.deps
            deps.card_router.tell(Notice(f"contents of old checkpoints stay for now: {failed}", "warning", deps.now()))
        else:
            if gone:
                log.info("%d contents that no checkpoint names any more were removed", gone)


def _swept(archive: Archive) -> int:
    if not archive.contents.size():
        return 0
    with archive.contents.open() as held:
        return archive.reader.read_sync(lambda db: held.sweep(checkpoints.hashes_named(db)))
