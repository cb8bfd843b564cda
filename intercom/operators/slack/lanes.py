"""Channel workers: each channel has one for its posts and one for its updates. A worker sends one row at a time.

An error in one channel or method delays no other. Each worker does its own waiting. No row is given up because of too
many failures.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

import trio
from attrs import frozen

from actors import Busy, Down, NotRunning
from intercom.model import crash_points
from intercom.model.errors import IntercomError
from intercom.model.outbox import Row
from intercom.operators.slack import schedule, sending
from intercom.operators.slack.errors import RateLimited, SlackError, SlackRefused, Unreachable
from intercom.operators.slack.messages import Wake
from intercom.operators.slack.refusals import Remedy, remedy, sentence
from intercom.operators.slack.sending import Means
from intercom.store import postings
from intercom.store.messages import Database
from intercom.store.postings import Begun

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

_STORE_TROUBLE = (IntercomError, Busy, Down, NotRunning, trio.TooSlowError)


@frozen
class Report:
    """A worker's report to its actor; `trouble` is None if all is well."""

    lane: Lane
    trouble: str | None


@frozen
class Done:
    """These rows are now posted in Slack; their content is not included."""

    rows: tuple[Row, ...]


#: How many threads' turns are remembered.
MOST_TURNS = 1_000


class Lane:
    """One channel's posts or updates. It runs in one task at a time and reports to its actor by `tell`."""

    def __init__(self, means: Means, channel: str, tell: Callable[[object], object]) -> None:
        self.means = means
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
                    return await self.means.transact(partial(postings.next_due, now=self.means.now()))
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

    async def _failed(self, row: Row, error: SlackError, *, uncertain: bool) -> Remedy | None:
        """Record a failure and wait as long as needed. Return the remedy if the caller has to apply it."""
        means = self.means
        note = partial(postings.retry, id=row.id, error=str(error), uncertain=uncertain)
        match error:
            case RateLimited():
                await means.transact(partial(note, not_before=None))
                await trio.sleep(error.retry_after)
                self._paced_until = trio.current_time() + PACED
            case SlackRefused():
                found = remedy(error.error, updating=row.ts is not None)
                if found is Remedy.MEND:
                    self._note(sentence(error.error, row.channel))
                    await means.transact(partial(note, not_before=None))
                    await self._wait(MENDING_PAUSE)
                elif found is Remedy.LATER:
                    log.warning("slack turned %s down for now: %s", row.key, error)
                    self._note(sentence(error.error, row.channel))
                    await means.transact(partial(note, not_before=means.now() + timedelta(seconds=MENDING_PAUSE)))
                else:
                    return found
            case _:
                pause = self._backoff()
                self._note(f"{error}; it is tried again until it works")
                await means.transact(partial(note, not_before=self._put_off(row, error, pause)))
                await self._wait(pause)
        return None

    def _put_off(self, row: Row, error: SlackError, pause: float) -> datetime | None:
        """Return until when the row is skipped. If Slack fails on this row, others must get a turn."""
        if isinstance(error, Unreachable) and not error.maybe_done:
            return None
        tries = max(row.attempts, self._fails)
        seconds = pause if tries <= 2 else 2 * pause if tries <= schedule.PATIENCE else LONGEST_PAUSE
        return self.means.now() + timedelta(seconds=seconds)

    async def _give_up(self, row: Row, error: SlackError) -> None:
        log.warning("slack does not take %s in any form: %s", row.key, error)
        await self.means.transact(
            partial(postings.refused, id=row.id, error=str(error), version=row.version),
        )

    def _backoff(self) -> float:
        self._fails += 1
        return min(LONGEST_PAUSE, 2.0 ** min(self._fails - 1, 10)) * self.means.dice.uniform(0.5, 1.0)

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


class Posts(Lane):
    """A channel's posts. The actor is told of each row that was posted."""

    async def _begun_before(self) -> dict[int, float]:
        posting = await self.means.transact(partial(postings.posting, channel=self.channel))
        now = self.means.now()
        return {id: _left(asked, now) for id, asked in posting.items()}

    async def _next(self) -> bool:
        coming = frozenset(id for id in self._unanswered or () if self._unsettled(id) > 0)
        begun = await self.means.transact(
            partial(begin_next, channel=self.channel, now=self.means.now(), coming=coming, turns=self._turns)
        )
        if begun is None:
            return False
        row = begun.row
        crash_points.reach("outbox.before_post")
        began = trio.current_time()
        try:
            sent = await sending.post(self.means, begun)
        except sending.StillOut as error:
            # Slack answers again: other rows must not wait, and this one is searched again soon.
            again = self.means.now() + timedelta(seconds=min(LOOK_AGAIN, self._unsettled(row.id) + HAIR))
            await self.means.transact(
                partial(postings.retry, id=row.id, not_before=again, error=str(error), uncertain=True)
            )
            return True
        except SlackError as error:
            maybe_done = isinstance(error, Unreachable) and error.maybe_done
            if isinstance(error, Unreachable) and error.unanswered:
                self._left_unanswered(row)
            found = await self._failed(row, error, uncertain=begun.seek or maybe_done)
            if found is Remedy.RETHREAD:
                await self.means.transact(partial(postings.unthread, id=row.id, error=str(error)))
            elif found is not None:
                await self._give_up(row, error)
            return True
        crash_points.reach("outbox.after_post")
        done = await self.means.transact(
            partial(postings.posted, id=row.id, ts=sent.ts, version=sent.version, at=self.means.now())
        )
        crash_points.reach("outbox.recorded")
        if done:
            self.tell(Done(done))
        await self._went_well(began)
        return True


class Updates(Lane):
    """A channel's updates."""

    async def _begun_before(self) -> dict[int, float]:
        return dict.fromkeys(await self.means.transact(partial(postings.stale, channel=self.channel)), SETTLING)

    async def _next(self) -> bool:
        wanted = await self.means.transact(partial(postings.next_update, channel=self.channel, now=self.means.now()))
        if wanted is None:
            return False
        row = wanted.row
        began = trio.current_time()
        try:
            await sending.update(self.means, wanted)
        except SlackError as error:
            if isinstance(error, Unreachable) and error.unanswered:
                self._left_unanswered(row)
            found = await self._failed(row, error, uncertain=False)
            if found is Remedy.GONE:
                if await self.means.transact(partial(postings.deleted, id=row.id, version=row.version)):
                    self.tell(Wake())
            elif found is not None:
                await self._give_up(row, error)
            return True
        await self.means.transact(partial(postings.shown, id=row.id, version=row.version, interim=row.interim))
        unsettled = self._unsettled(row.id)
        if unsettled and row.interim is None:
            # An older version that arrives late would replace it, so it is sent once more after that time.
            again = self.means.now() + timedelta(seconds=unsettled + HAIR)
            await self.means.transact(partial(postings.show_again, id=row.id, version=row.version, not_before=again))
        await self._went_well(began)
        return True


def begin_next(
    db: Database, channel: str, now: datetime, coming: frozenset[int], turns: dict[str, int] | None = None
) -> Begun | None:
    """Choose and begin the next post of a channel; None if nothing may be posted now. Slack may still act on earlier
    calls about the rows `coming`. The thread's turn is noted in `turns`."""
    choice = schedule.choose(postings.waiting(db, channel), now, turns)
    if choice is None:
        return None
    if turns is not None and choice.thread is not None:
        turns[choice.thread] = max(turns.values(), default=0) + 1
        if len(turns) > MOST_TURNS:
            del turns[min(turns, key=turns.__getitem__)]
    return postings.begin_post(db, choice.id, now, choice.merge, may_come=choice.id in coming)


def _left(asked: datetime | None, now: datetime) -> float:
    """Return for how many seconds Slack may still act on a call of that time. The clock may have been set since."""
    if asked is None:
        return SETTLING
    return min(SETTLING, max(0.0, SETTLING - (now - asked).total_seconds()))
