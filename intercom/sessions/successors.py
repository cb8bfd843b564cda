"""Successors: carries a restore's handover through sessions and agents, for the restoring code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio
from attrs import frozen

from actors import Down, NotRunning, Request, System, ask
from intercom.model import crash_points
from intercom.model.card import Notice
from intercom.model.child import ChildState
from intercom.model.errors import IntercomError
from intercom.model.restore import Files, Restore, RestoreState
from intercom.model.session import Session, SessionStatus
from intercom.sessions import successor
from intercom.sessions.archive import Archive
from intercom.sessions.messages import HandOver, OpenCards
from intercom.sessions.reception_messages import Wanted
from intercom.store import children, sessions

R = TypeVar("R")

#: Time limit for a session to hand over, or to show its cards, in seconds.
SESSION_SECONDS = 60.0

#: Starts an agent for a session without one, with a prompt that says where it continues. A repetition starts nothing
#: twice. Raises IntercomError if none can be started.
StartAgent = Callable[[Session, str], Awaitable[object]]

#: How long the processes of an ended session may take to end, in seconds, and the poll interval.
GONE_SECONDS = 15.0
_LOOK_SECONDS = 0.1


@frozen
class Successors:
    system: System
    archive: Archive
    start_agent: StartAgent | None = None

    async def hand_over(self, restore: Restore) -> None:
        """End the session of a committed restore, and create its successor. Idempotent."""
        before = await self.archive.read(partial(sessions.get, id=restore.session_id))
        if before is None or before.status is SessionStatus.TERMINATED:
            await self.archive.transact(
                partial(
                    successor.hand_over,
                    restore_id=restore.id,
                    timeouts=self.archive.context.config.timeouts,
                    at=self.archive.context.now(),
                )
            )
            crash_points.reach("restore.handed_over")
            return
        # Inside the session's actor, so that its agent can ask nothing in between.
        by = restore.decided.by if restore.decided is not None else restore.asked_by
        await self._ask(restore.session_id, HandOver(restore.id, by))

    async def welcome(self, restore: Restore) -> None:
        """Run the new session's actors, show its cards, and start its agent, if agents can be started."""
        made = await self.archive.read(partial(sessions.get, id=restore.successor_id))
        if made is None or made.status is SessionStatus.TERMINATED:
            # An operator has ended it already.
            return
        context = self.archive.context
        for card in await self._ask(made.id, OpenCards()):
            context.unattended.add(card.id)
        how = await self._begin(restore, made)
        told = f"session restored from checkpoint {restore.label or restore.checkpoint_id}: {how}"
        context.operators.tell(Notice(told, "success", context.now(), made.id))

    async def _begin(self, restore: Restore, made: Session) -> str:
        """Start an agent if possible, unless one has taken the session already. Returns what happened, for people."""
        why = ""
        if self.start_agent is not None:
            try:
                await self.start_agent(made, self._words(restore, made))
            except IntercomError as refused:
                why = f" (none could be started: {refused})"
            else:
                return "its agent was started"
        now = await self.archive.read(partial(sessions.get, id=made.id))
        if now is not None and now.agent_key is not None and self.archive.context.present(now.agent_key):
            return "an agent has taken it up"
        return f"it waits for an agent that calls reboot with its id, {made.id}{why}"

    async def until_quiet(self, restore: Restore) -> None:
        """Wait up to `GONE_SECONDS` for the processes of the ended session: they could still write files."""
        with trio.move_on_after(GONE_SECONDS):
            while True:
                child = await self.archive.read(partial(children.get, session_id=restore.session_id))
                if child is None or child.state is ChildState.OVER:
                    return
                await trio.sleep(_LOOK_SECONDS)

    def _words(self, restore: Restore, made: Session) -> str:
        when = f"{restore.created_at:%Y-%m-%d %H:%M} UTC"
        kept = restore.files is Files.LEAVE or restore.state is RestoreState.GIVEN_UP
        files = f"Files {'may differ from' if kept else 'are put back to'} what they were then."
        return (
            f"You take over a session that was restored at {when} from the checkpoint"
            f" {restore.label or restore.checkpoint_id!r}. {files} Call reboot first: it tells what waits and how far"
            " the work had come. Read files again before you change them."
            + (f" The task is: {made.prompt}" if made.prompt else "")
        )

    async def _ask(self, session_id: str, message: Request[R]) -> R:
        session = self.system.named(f"session/{session_id}")
        try:
            return await ask(session, message, timeout=SESSION_SECONDS)
        except (Down, NotRunning):
            # It restarts, or is idle.
            await ask(self.system.named("reception"), Wanted(session_id), timeout=SESSION_SECONDS, retry=True)
            return await ask(session, message, timeout=SESSION_SECONDS, retry=True)
