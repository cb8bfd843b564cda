"""The sender: the actor that makes Slack show what stands in the outbox, with workers for each channel.

An error in one channel or method delays no other. Each worker does its own waiting. No row is given up because of too
many failures.
"""

from __future__ import annotations

import logging
import random
from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import trio
from attrs import frozen

from actors import Actor, Refused, Reply
from intercom.model import crash_points
from intercom.model.errors import IntercomError
from intercom.model.outbox import Content, Row
from intercom.operators.slack import sending
from intercom.operators.slack.draw.cards import processing
from intercom.operators.slack.messages import OutboxHealth, OutboxStatus, SocketUp, Wake
from intercom.operators.slack.sending import SenderDeps
from intercom.operators.slack.web_api import (
    Api,
    RateLimited,
    Remedy,
    SlackApiError,
    SlackRefused,
    Unreachable,
    remedy,
    sentence,
)
from intercom.sessions.messages import ClockChanged, Posted
from intercom.store import outbox
from intercom.store.client import Store, StoreUnavailable
from intercom.store.messages import Database
from intercom.store.outbox import Begun

log = logging.getLogger(__name__)

#: The longest pause between two tries, in seconds, and the pause while a person has to fix something.
LONGEST_PAUSE = 60.0
MENDING_PAUSE = 60.0
#: Seconds between two posts, and for how long this pace applies, after Slack limited the rate. Measured between the
#: starts of calls, so that round trips do not slow it down; slightly over a second, because their times vary.
PACE = 1.02
PACED = 60.0

#: For this many seconds Slack may still carry out a call that it left unanswered, or that a crashed sender may have
#: begun; and the pause between two searches for the result.
SETTLING = 35.0
LOOK_AGAIN = 5.0
#: Extra seconds after that time: clocks differ slightly, and a retry too early would repeat at once, several times.
HAIR = 1.0

_STORE_TROUBLE = (IntercomError, StoreUnavailable)


@frozen
class Report:
    """A worker's report to its actor; `trouble` is None if all is well."""

    worker: ChannelWorker
    trouble: str | None


@frozen
class Done:
    """These rows are now posted in Slack; their content is not included."""

    rows: tuple[Row, ...]


#: How many threads' turns are remembered.
MOST_TURNS = 1_000


class ChannelWorker:
    """One channel's posts or updates. It runs in one task at a time and reports to its actor by `tell`."""

    def __init__(self, deps: SenderDeps, channel: str, tell: Callable[[object], object]) -> None:
        self.deps = deps
        self.channel = channel
        self.tell = tell
        self._fails = 0
        self._paced_until = 0.0
        self._hurried: trio.Event | None = None
        self._trouble: str | None = None
        #: Until when Slack may still act on each row; None until the calls of an earlier sender are known.
        self._unanswered: dict[int, float] | None = None
        #: The last turn of each thread, as an increasing number.
        self._turns: dict[str, int] = {}

    async def run(self) -> datetime | None:
        """Work until nothing can be done now. Return the time of the next due row, if known."""
        while True:
            try:
                if self._unanswered is None:
                    await self._remember()
                if not await self._next():
                    return await self.deps.store.transact(partial(outbox.next_due, now=self.deps.now()))
            except _STORE_TROUBLE as failed:
                # A row that was sent but not recorded will be found later.
                log.warning("the outbox has to wait for the store: %s", failed)
                await self._wait(self._backoff())

    def hurry(self) -> None:
        """End a pause that Slack did not impose: Slack is reachable again."""
        if self._hurried is not None:
            self._hurried.set()

    @abstractmethod
    async def _begun_before(self) -> dict[int, float]:
        """Return the rows that a crashed earlier sender may have sent, with the seconds for which Slack may still act
        on them."""

    async def _remember(self) -> None:
        begun = await self._begun_before()
        now = trio.current_time()
        self._unanswered = {id: now + seconds for id, seconds in begun.items()}

    @abstractmethod
    async def _next(self) -> bool:
        """Handle one row; return False if there is nothing to do now."""

    async def _went_well(self, began: float) -> None:
        self._fails = 0
        self._note(None)
        if trio.current_time() < self._paced_until:
            await trio.sleep_until(began + PACE)

    async def _failed(self, row: Row, error: SlackApiError, *, uncertain: bool) -> Remedy | None:
        """Record a failure and wait as long as needed. Return the remedy if the caller has to apply it."""
        deps = self.deps
        note = partial(outbox.retry, id=row.id, error=str(error), uncertain=uncertain)
        match error:
            case RateLimited():
                await deps.store.transact(partial(note, not_before=None))
                await trio.sleep(error.retry_after)
                self._paced_until = trio.current_time() + PACED
            case SlackRefused():
                found = remedy(error.error, updating=row.ts is not None)
                if found is Remedy.MEND:
                    self._note(sentence(error.error, row.channel))
                    await deps.store.transact(partial(note, not_before=None))
                    await self._wait(MENDING_PAUSE)
                elif found is Remedy.LATER:
                    log.warning("slack turned %s down for now: %s", row.key, error)
                    self._note(sentence(error.error, row.channel))
                    await deps.store.transact(partial(note, not_before=deps.now() + timedelta(seconds=MENDING_PAUSE)))
                else:
                    return found
            case _:
                pause = self._backoff()
                self._note(f"{error}; it is tried again until it works")
                await deps.store.transact(partial(note, not_before=self._put_off(row, error, pause)))
                await self._wait(pause)
        return None

    def _put_off(self, row: Row, error: SlackApiError, pause: float) -> datetime | None:
        """Return until when the row is skipped. If Slack fails on this row, others must get a turn."""
        if isinstance(error, Unreachable) and not error.maybe_done:
            return None
        tries = max(row.attempts, self._fails)
        seconds = pause if tries <= 2 else 2 * pause if tries <= sending.PATIENCE else LONGEST_PAUSE
        return self.deps.now() + timedelta(seconds=seconds)

    async def _give_up(self, row: Row, error: SlackApiError) -> None:
        log.warning("slack does not take %s in any form: %s", row.key, error)
        await self.deps.store.transact(
            partial(outbox.refused, id=row.id, error=str(error), version=row.version),
        )

    def _backoff(self) -> float:
        self._fails += 1
        return min(LONGEST_PAUSE, 2.0 ** min(self._fails - 1, 10)) * self.deps.dice.uniform(0.5, 1.0)

    async def _wait(self, seconds: float) -> None:
        self._hurried = trio.Event()
        with trio.move_on_after(seconds):
            await self._hurried.wait()
        self._hurried = None

    def _left_unanswered(self, row: Row) -> None:
        """Note that Slack did not answer a call about this row, and may still carry it out."""
        now = trio.current_time()
        known = self._unanswered or {}
        self._unanswered = {id: until for id, until in known.items() if until > now} | {row.id: now + SETTLING}

    def _unsettled(self, id: int) -> float:
        """Return for how many seconds Slack may still carry out an unanswered call about this row."""
        return max(0.0, (self._unanswered or {}).get(id, 0.0) - trio.current_time())

    def _note(self, trouble: str | None) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self.tell(Report(self, trouble))


class PostWorker(ChannelWorker):
    """A channel's posts. The actor is told of each row that was posted."""

    async def _begun_before(self) -> dict[int, float]:
        posting = await self.deps.store.transact(partial(outbox.posting, channel=self.channel))
        now = self.deps.now()
        return {id: _left(asked, now) for id, asked in posting.items()}

    async def _next(self) -> bool:
        coming = frozenset(id for id in self._unanswered or () if self._unsettled(id) > 0)
        begun = await self.deps.store.transact(
            partial(begin_next, channel=self.channel, now=self.deps.now(), coming=coming, turns=self._turns)
        )
        if begun is None:
            return False
        row = begun.row
        crash_points.reach("outbox.before_post")
        began = trio.current_time()
        try:
            sent = await sending.post(self.deps, begun)
        except sending.StillOut as error:
            # Slack answers again: other rows must not wait, and this one is searched again soon.
            again = self.deps.now() + timedelta(seconds=min(LOOK_AGAIN, self._unsettled(row.id) + HAIR))
            await self.deps.store.transact(
                partial(outbox.retry, id=row.id, not_before=again, error=str(error), uncertain=True)
            )
            return True
        except SlackApiError as error:
            maybe_done = isinstance(error, Unreachable) and error.maybe_done
            if isinstance(error, Unreachable) and error.unanswered:
                self._left_unanswered(row)
            found = await self._failed(row, error, uncertain=begun.seek or maybe_done)
            if found is Remedy.RETHREAD:
                await self.deps.store.transact(partial(outbox.unthread, id=row.id, error=str(error)))
            elif found is not None:
                await self._give_up(row, error)
            return True
        crash_points.reach("outbox.after_post")
        done = await self.deps.store.transact(
            partial(outbox.posted, id=row.id, ts=sent.ts, version=sent.version, at=self.deps.now())
        )
        if done:
            self.tell(Done(done))
        await self._went_well(began)
        return True


class UpdateWorker(ChannelWorker):
    """A channel's updates."""

    async def _begun_before(self) -> dict[int, float]:
        return dict.fromkeys(await self.deps.store.transact(partial(outbox.stale, channel=self.channel)), SETTLING)

    async def _next(self) -> bool:
        wanted = await self.deps.store.transact(partial(outbox.next_update, channel=self.channel, now=self.deps.now()))
        if wanted is None:
            return False
        row = wanted.row
        began = trio.current_time()
        try:
            await sending.update(self.deps, wanted)
        except SlackApiError as error:
            if isinstance(error, Unreachable) and error.unanswered:
                self._left_unanswered(row)
            found = await self._failed(row, error, uncertain=False)
            if found is Remedy.GONE:
                if await self.deps.store.transact(partial(outbox.deleted, id=row.id, version=row.version)):
                    self.tell(Wake())
            elif found is not None:
                await self._give_up(row, error)
            return True
        await self.deps.store.transact(partial(outbox.shown, id=row.id, version=row.version, interim=row.interim))
        unsettled = self._unsettled(row.id)
        if unsettled and row.interim is None:
            # An older version that arrives late would replace it, so it is sent once more after that time.
            again = self.deps.now() + timedelta(seconds=unsettled + HAIR)
            await self.deps.store.transact(partial(outbox.show_again, id=row.id, version=row.version, not_before=again))
        await self._went_well(began)
        return True


def begin_next(
    db: Database, channel: str, now: datetime, coming: frozenset[int], turns: dict[str, int] | None = None
) -> Begun | None:
    """Choose and begin the next post of a channel; None if nothing may be posted now. Slack may still act on earlier
    calls about the rows `coming`. The thread's turn is noted in `turns`."""
    choice = sending.choose(outbox.waiting(db, channel), now, turns)
    if choice is None:
        return None
    if turns is not None and choice.thread is not None:
        turns[choice.thread] = max(turns.values(), default=0) + 1
        if len(turns) > MOST_TURNS:
            del turns[min(turns, key=turns.__getitem__)]
    return outbox.begin_post(db, choice.id, now, choice.merge, may_come=choice.id in coming)


def _left(asked: datetime | None, now: datetime) -> float:
    """Return for how many seconds Slack may still act on a call of that time. The clock may have been set since."""
    if asked is None:
        return SETTLING
    return min(SETTLING, max(0.0, SETTLING - (now - asked).total_seconds()))


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

    worker: ChannelWorker
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
        store: Store,
        web: Api,
        now: Callable[[], datetime],
        *,
        processing: Callable[[Content, str], Content] = processing,
        dice: random.Random | None = None,
    ) -> None:
        super().__init__()
        self._deps = SenderDeps(store, web, now, processing, dice or random.Random())
        self._workers: dict[tuple[str, type[ChannelWorker]], ChannelWorker] = {}
        self._running: set[ChannelWorker] = set()
        self._woken: set[ChannelWorker] = set()
        self._troubles: dict[ChannelWorker, str] = {}
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
                for worker in self._running:
                    worker.hurry()
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
            found = await self._deps.store.transact(partial(_look, now=self._deps.now()))
        except _STORE_TROUBLE as failed:
            log.warning("the outbox cannot be read: %s", failed)
            await trio.sleep(_AGAIN)
            found = _Looked((), self._deps.now())
        self.actor_ref.tell(found)

    def _looked(self, found: _Looked) -> None:
        self._looking = False
        for channel in found.channels:
            for kind in (PostWorker, UpdateWorker):
                self._start(self._worker(channel, kind))
        self._wake_at(found.due)
        if self._look_again:
            self._look_again = False
            self._look_soon()

    def _worker(self, channel: str, kind: type[ChannelWorker]) -> ChannelWorker:
        worker = self._workers.get((channel, kind))
        if worker is None:
            worker = self._workers[channel, kind] = kind(self._deps, channel, self.actor_ref.tell)
        return worker

    def _start(self, worker: ChannelWorker) -> None:
        if worker in self._running:
            # It may have read the store before the new row was there.
            self._woken.add(worker)
        else:
            self._running.add(worker)
            self.spawn(self._run, worker)

    async def _run(self, worker: ChannelWorker) -> None:
        due = await worker.run()
        self.actor_ref.tell(_Ended(worker, due))

    def _ended(self, message: _Ended) -> None:
        self._running.discard(message.worker)
        if message.worker in self._woken:
            self._woken.discard(message.worker)
            self._start(message.worker)
        self._wake_at(message.due)

    def _wake_at(self, due: datetime | None) -> None:
        now = self._deps.now()
        if due is not None and (self._due is None or self._due <= now or due < self._due):
            self._due = due
            self.set_timer("due", max(0.0, (due - now).total_seconds()), Wake())

    def _done(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            if row.key.startswith("notice/") and row.session_id is not None and row.ts is not None:
                self.system.named(f"session/{row.session_id}").tell(Posted(row.key, row.ts))
            if row.shown < row.version:
                # changed, or given an interim line, while it was posted
                self._start(self._worker(row.channel, UpdateWorker))

    def _note(self, report: Report) -> None:
        if report.trouble is None:
            self._troubles.pop(report.worker, None)
        else:
            self._last_trouble = report.trouble
            self._troubles[report.worker] = report.trouble

    async def _health(self, reply: Reply[OutboxStatus]) -> None:
        try:
            counts = await self._deps.store.transact(outbox.counts)
        except _STORE_TROUBLE as failed:
            reply.fail(failed)
            return
        reply.set(
            OutboxStatus(
                waiting={urgency.name.lower(): number for urgency, number in counts.posts.items()},
                updates=counts.updates,
                oldest=counts.oldest,
                troubles={worker.channel: trouble for worker, trouble in self._troubles.items()},
                last_error=self._last_trouble,
            )
        )


def _look(db: Database, now: datetime) -> _Looked:
    return _Looked(outbox.channels_waiting(db), outbox.next_due(db, now))
