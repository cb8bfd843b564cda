"""Housekeeping: unapplied approvals lapse, old data is deleted, and processes that are gone are forgotten."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio

from actors import Actor, Refused
from intercom.model.card import Card, Notice
from intercom.model.errors import DatabaseError, IntercomError
from intercom.sessions import cards
from intercom.sessions.asking import UNANSWERED, ask_session
from intercom.sessions.checkpoints.messages import SweepContents
from intercom.sessions.context import Context
from intercom.sessions.messages import EndAbandoned
from intercom.sessions.processes import output_files
from intercom.sessions.timers import ClockChanged, Expire
from intercom.store import agent_processes, retention, sessions
from intercom.store.client import LARGE_TRANSACTION_SECONDS
from intercom.store.messages import Database
from intercom.store.requests import approvals

#: Seconds between two checks for lapsed approvals, for agents' processes that are gone, and between two purges.
LAPSE_SECONDS = 60.0
PRUNE_SECONDS = 600.0
PURGE_SECONDS = 3600.0
_ROUNDS = {"lapse": LAPSE_SECONDS, "prune": PRUNE_SECONDS, "purge": PURGE_SECONDS}
_AT_ONCE = 100
#: How many ended sessions one line names.
_NAMED = 5

R = TypeVar("R")

log = logging.getLogger("intercom.sessions")


class Housekeeper(Actor):
    """The actor `housekeeping`. The first purge comes an hour after the start, as in the reference. `prune_processes`
    forgets the processes of agents that are gone."""

    def __init__(self, context: Context, outputs: Path, prune_processes: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._context = context
        self._outputs = outputs
        self._prune_processes = prune_processes

    def on_start(self) -> None:
        for task, seconds in _ROUNDS.items():
            self.set_timer(task, seconds, task)

    async def on_receive(self, message: Any) -> None:
        try:
            if isinstance(message, ClockChanged):
                # Approvals lapse by the new clock. Nothing is purged right after the clock was set: it may be set
                # again, and deletion is final.
                self.set_timer("purge", PURGE_SECONDS, "purge")
                message = "lapse"
            if message == "lapse":
                await self._lapse()
            elif message == "prune":
                # Not in this handler: it reads every process of the machine.
                self.spawn(self._prune)
            elif message == "purge":
                # Not in this handler: it asks sessions, which takes a while.
                self.spawn(self._end_abandoned)
                await self._purge()
        except DatabaseError as failed:
            # For example, the disk is full. The next round tries again.
            self._context.operators.tell(_notice(self._context, f"housekeeping has to wait: {failed}"))
        self.set_timer(message, _ROUNDS[message], message)

    async def _prune(self) -> None:
        try:
            await self._prune_processes()
        except (IntercomError, Refused, *UNANSWERED) as failed:
            log.warning("processes that are gone could not be forgotten for now: %s", failed)

    async def _lapse(self) -> None:
        now = self._context.now()
        before = now - timedelta(seconds=self._context.config.timeouts.approved_valid_seconds)
        for card in await self._ask(partial(_lapse, before=before, at=now)):
            session = self.system.ref(f"session/{card.session_id}")
            if session is not None:
                # The session may still be about to tell its agent of the approval. It also shows the card.
                session.tell(Expire(card.id))
            else:
                self._context.operators.tell(card)

    async def _end_abandoned(self) -> None:
        """End the sessions whose agents did not come back, and tell people once of all of them."""
        days = self._context.config.interrupted_retention_days
        before = self._context.now() - timedelta(days=days)
        ended: list[str] = []
        try:
            count = -1
            while count < len(ended):
                count = len(ended)
                for id in await self._ask(partial(sessions.abandoned_before, cutoff=before, limit=_AT_ONCE)):
                    why = f"its agent has been away for more than {days} days"
                    if await ask_session(self.system, id, EndAbandoned(before, why)):
                        ended.append(id[:8])
        except (IntercomError, Refused, *UNANSWERED) as failed:
            log.warning("sessions whose agents are away could not be ended for now: %s", failed)
        if ended:
            some = ", ".join(ended[:_NAMED]) + (f" and {len(ended) - _NAMED} more" if len(ended) > _NAMED else "")
            what = f"session {some} was" if len(ended) == 1 else f"{len(ended)} sessions ({some}) were"
            text = f"{what} ended: away for more than {days} days; what waited there is closed"
            self._context.operators.tell(Notice(text, "info", self._context.now()))

    async def _purge(self) -> None:
        now = self._context.now()
        cutoff = now - timedelta(days=self._context.config.retention_days)
        # The agents' output goes before the rows that name it.
        while old := await self._ask(partial(agent_processes.expired, cutoff=cutoff, limit=_AT_ONCE)):
            for session_id in old:
                await trio.to_thread.run_sync(output_files.forget, output_files.directory_of(self._outputs, session_id))
            if not await self._ask(partial(agent_processes.forget, session_ids=old)):
                break
        # In small steps, because other writers wait.
        kept_until = now - timedelta(days=self._context.config.checkpoint_retention_days)
        purge = partial(retention.purge, cutoff=cutoff, at=now, checkpoints_before=kept_until)
        while any((await self._ask(purge)).values()):
            continue
        keeper = self.system.ref("checkpoints")
        if keeper is not None:
            keeper.tell(SweepContents())

    async def _ask(self, work: Callable[[Database], R]) -> R:
        return await self._context.store.transact(work, timeout=LARGE_TRANSACTION_SECONDS)


def _lapse(db: Database, before: Any, at: Any) -> list[Card]:
    shown = []
    for id in approvals.lapse(db, before, at):
        request = approvals.get(db, id)
        session = sessions.get(db, request.session_id) if request is not None else None
        if request is not None and session is not None:
            shown.append(cards.of_request(request, session.workspace_root))
    return shown


def _notice(context: Context, text: str) -> Notice:
    return Notice(text, "warning", context.now())
