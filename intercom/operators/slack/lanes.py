"""Lanes: a channel's posts, and a channel's updates. Each is a task that takes one row at a time while there are any.

A fault in one channel, or of one method, holds up no other. A lane waits by itself; nothing is ever given up because
it failed too often.
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

#: Seconds at most between two tries, and between two while a person has to mend something.
LONGEST_PAUSE = 60.0
MENDING_PAUSE = 60.0
#: Seconds from one post to the next, and for how long, once Slack has said that it is too fast. Counted from where a
#: call begins, or its way there and back would be lost each time; a little over a second, as ways differ.
PACE = 1.02
PACED = 60.0

#: For so many seconds after Slack left a call unanswered, or after a sender fell that may have been calling, Slack may
#: still do what it was asked; and between two looks whether it has.
SETTLING = 35.0
LOOK_AGAIN = 5.0
#: Seconds that are waited more than is left of that: clocks differ by a hair, and what is still too early by as much
#: would be done again at once, and again.
HAIR = 1.0

_STORE_TROUBLE = (IntercomError, Busy, Down, NotRunning, trio.TooSlowError)


@frozen
class Report:
    """What a lane tells its actor: how it fares (None: well)."""

    lane: Lane
    trouble: str | None


@frozen
class Done:
    """These rows, whose content is not told, have come to stand in Slack."""

    rows: tuple[Row, ...]


#: How many threads' turns are kept.
MOST_TURNS = 1_000


class Lane:
    """One channel's posts, or its updates. Runs in one task at a time; what it learns it tells its actor by `tell`."""

    def __init__(self, means: Means, channel: str, tell: Callable[[object], object]) -> None:
        self.means = means
        self.channel = channel
        self.tell = tell
        self._fails = 0
        self._paced_until = 0.0
        self._hurried: trio.Event | None = None
        self._trouble: str | None = None
        #: Until when Slack may yet do what it was asked with a row; None until it is known what a sender before asked.
        self._unanswered: dict[int, float] | None = None
        #: When each thread had its last turn, as a rising number.
        self._turns: dict[str, int] = {}

    async def run(self) -> datetime | None:
        """Work until nothing may be done now; when something may again, by the clock, where that is known."""
        while True:
            try:
                if self._unanswered is None:
                    await self._remember()
                if not await self._next():
                    return await self.means.transact(partial(postings.next_due, now=self.means.now()))
            except _STORE_TROUBLE as failed:
                # What was sent and not recorded is found again.
                log.warning("the outbox has to wait for the store: %s", failed)
                await self._wait(self._backoff())

    def hurry(self) -> None:
        """Slack can be reached again: wait no longer, unless Slack said so."""
        if self._hurried is not None:
            self._hurried.set()

    @abstractmethod
    async def _begun_before(self) -> dict[int, float]:
        """The rows that a sender before this one, which fell, may have been calling Slack about, and for how many
        seconds yet something may become of that."""

    async def _remember(self) -> None:
        begun = await self._begun_before()
        now = trio.current_time()
        self._unanswered = {id: now + seconds for id, seconds in begun.items()}

    @abstractmethod
    async def _next(self) -> bool:
        """Do one thing; False when there is nothing to do now."""

    async def _went_well(self, began: float) -> None:
        self._fails = 0
        self._note(None)
        if trio.current_time() < self._paced_until:
            await trio.sleep_until(began + PACE)

    async def _failed(self, row: Row, error: SlackError, *, uncertain: bool) -> Remedy | None:
        """Note a failure and wait as long as it takes. The remedy, where the caller has to see to it."""
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
        """Until when a row is passed over. If it is the row that Slack stumbles over, others must get a turn."""
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
        """Slack did not answer what it was asked to do with a row, and may do it all the same."""
        now = trio.current_time()
        known = self._unanswered or {}
        self._unanswered = {id: until for id, until in known.items() if until > now} | {row.id: now + SETTLING}

    def _unsettled(self, id: int) -> float:
        """For how many seconds yet something may become of what Slack did not answer."""
        return max(0.0, (self._unanswered or {}).get(id, 0.0) - trio.current_time())

    def _note(self, trouble: str | None) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self.tell(Report(self, trouble))


class Posts(Lane):
    """A channel's posts. The actor is told of each row that has come to stand in Slack."""

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
            # Slack answers by now: others are not kept waiting, and this one is looked for again soon.
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
            # An older version that comes late would take its place: it is shown once more when that is over.
            again = self.means.now() + timedelta(seconds=unsettled + HAIR)
            await self.means.transact(partial(postings.show_again, id=row.id, version=row.version, not_before=again))
        await self._went_well(began)
        return True


def begin_next(
    db: Database, channel: str, now: datetime, coming: frozenset[int], turns: dict[str, int] | None = None
) -> Begun | None:
    """Choose what is posted next in a channel and begin it; None when nothing may be posted now. Of the rows `coming`
    something may become yet that Slack was asked before. The thread's turn is noted in `turns`."""
    choice = schedule.choose(postings.waiting(db, channel), now, turns)
    if choice is None:
        return None
    if turns is not None and choice.thread is not None:
        turns[choice.thread] = max(turns.values(), default=0) + 1
        if len(turns) > MOST_TURNS:
            del turns[min(turns, key=turns.__getitem__)]
    return postings.begin_post(db, choice.id, now, choice.merge, may_come=choice.id in coming)


def _left(asked: datetime | None, now: datetime) -> float:
    """For how many seconds yet Slack may do what it was asked then, by a clock that may have been set since."""
    if asked is None:
        return SETTLING
    return min(SETTLING, max(0.0, SETTLING - (now - asked).total_seconds()))
