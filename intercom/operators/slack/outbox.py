"""The sender: the actor that posts and updates messages in Slack until they match the outbox."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import trio
from attrs import frozen

from actors import Actor, Busy, Down, Name, NotRunning, Refused, Reply
from intercom.model.errors import IntercomError
from intercom.model.outbox import Content, Row
from intercom.operators.slack.draw.processing import processing
from intercom.operators.slack.lanes import Done, Lane, Posts, Report, Updates
from intercom.operators.slack.messages import OutboxHealth, OutboxStanding, SocketUp, Wake
from intercom.operators.slack.sending import Means
from intercom.operators.slack.wire import Web
from intercom.sessions.chat import Posted
from intercom.sessions.timers import ClockChanged
from intercom.store import outbox, postings
from intercom.store.messages import Database

log = logging.getLogger(__name__)

#: Seconds until the next look at a store that could not be read.
_AGAIN = 5.0


@frozen
class _Looked:
    """Channels with work in the store, and the time of the next due row."""

    channels: tuple[str, ...]
    due: datetime | None


@frozen
class _Ended:
    """A worker has nothing to do now; the next row is due at `due`."""

    lane: Lane
    due: datetime | None


class Sender(Actor):
    """Posts and updates messages until Slack matches the outbox; registered as `slack/outbox`.

    Tell it `Wake` after an insert and `SocketUp` when Slack is back; ask it `OutboxHealth`. `now` is the wall clock.
    `processing` draws a message with a line in place of its buttons. No state is lost in a crash: at its start it
    searches Slack for what may have been posted. It tells the session `Posted` about each posted notice.
    """

    mailbox_size = 10_000
    overflow = "drop_oldest"
    refusals = (Refused, IntercomError)

    def __init__(
        self,
        store: Name,
        web: Web,
        now: Callable[[], datetime],
        *,
        processing: Callable[[Content, str], Content] = processing,
        dice: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._means = Means(store, web, now, processing, dice or random.Random())
        self._lanes: dict[tuple[str, type[Lane]], Lane] = {}
        self._running: set[Lane] = set()
        self._woken: set[Lane] = set()
        self._troubles: dict[Lane, str] = {}
        self._last_trouble: str | None = None
        self._looking = False
        self._look_again = False
        self._due: datetime | None = None

    def on_start(self) -> None:
        self._look_soon()

    def on_receive(self, message: Any) -> None:
        match message:
            case Wake():
                self._look_soon()
            case ClockChanged():
                self._due = None
                self._look_soon()
            case _Looked():
                self._looked(message)
            case _Ended():
                self._ended(message)
            case Done():
                self._done(message.rows)
            case Report():
                self._note(message)
            case SocketUp():
                for lane in self._running:
                    lane.hurry()
            case OutboxHealth():
                # In a task: the workers' reports must not wait, or be dropped, while the store is down.
                self.spawn(self._health, self.defer())

    def _look_soon(self) -> None:
        if self._looking:
            self._look_again = True
        else:
            self._looking = True
            self.spawn(self._look)

    async def _look(self) -> None:
        try:
            found = await self._means.transact(partial(_look, now=self._means.now()))
        except (IntercomError, Busy, Down, NotRunning, trio.TooSlowError) as failed:
            log.warning("the outbox can not be read: %s", failed)
            await trio.sleep(_AGAIN)
            found = _Looked((), self._means.now())
        self.actor_ref.tell(found)

    def _looked(self, found: _Looked) -> None:
        self._looking = False
        for channel in found.channels:
            for kind in (Posts, Updates):
                self._start(self._lane(channel, kind))
        self._wake_at(found.due)
        if self._look_again:
            self._look_again = False
            self._look_soon()

    def _lane(self, channel: str, kind: type[Lane]) -> Lane:
        lane = self._lanes.get((channel, kind))
        if lane is None:
            lane = self._lanes[channel, kind] = kind(self._means, channel, self.actor_ref.tell)
        return lane

    def _start(self, lane: Lane) -> None:
        if lane in self._running:
            # It may have read the store before the new row was there.
            self._woken.add(lane)
        else:
            self._running.add(lane)
            self.spawn(self._run, lane)

    async def _run(self, lane: Lane) -> None:
        due = await lane.run()
        self.actor_ref.tell(_Ended(lane, due))

    def _ended(self, message: _Ended) -> None:
        self._running.discard(message.lane)
        if message.lane in self._woken:
            self._woken.discard(message.lane)
            self._start(message.lane)
        self._wake_at(message.due)

    def _wake_at(self, due: datetime | None) -> None:
        now = self._means.now()
        if due is not None and (self._due is None or self._due <= now or due < self._due):
            self._due = due
            self.set_timer("due", max(0.0, (due - now).total_seconds()), Wake())

    def _done(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.key.startswith("notice/") and row.session_id is not None and row.ts is not None:
                self.system.named(f"session/{row.session_id}").tell(Posted(row.key, row.ts))
            if row.shown < row.version:
                # changed, or given an interim line, while it was posted
                self._start(self._lane(row.channel, Updates))

    def _note(self, report: Report) -> None:
        if report.trouble is None:
            self._troubles.pop(report.lane, None)
        else:
            self._last_trouble = report.trouble
            self._troubles[report.lane] = report.trouble

    async def _health(self, reply: Reply[OutboxStanding]) -> None:
        try:
            counts = await self._means.transact(outbox.counts)
        except (IntercomError, Busy, Down, NotRunning, trio.TooSlowError) as failed:
            reply.fail(failed)
            return
        reply.set(
            OutboxStanding(
                waiting={urgency.name.lower(): number for urgency, number in counts.posts.items()},
                updates=counts.updates,
                oldest=counts.oldest,
                troubles={lane.channel: trouble for lane, trouble in self._troubles.items()},
                last_error=self._last_trouble,
            )
        )


def _look(db: Database, now: datetime) -> _Looked:
    return _Looked(postings.channels_waiting(db), postings.next_due(db, now))
