"""What happened: past requests, and whether the audit log that records it is as it was written."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio
from attrs import define, field, frozen

from intercom.local.places import Places
from intercom.model.card import Card
from intercom.model.errors import DatabaseError, FileError
from intercom.sessions import lookups
from intercom.sessions.audit_signatures import verify_log
from intercom.store.audit_chain import AnchorError, Verification
from intercom.store.store_and_reader import Reader

#: The most words of a search, and the most characters of each; what is beyond is ignored.
MOST_WORDS = 20
_WORD_CHARS = 200
#: How long the thread rests after a run, as a multiple of how long the run took.
REST = 2.0


def words_of(text: str | None) -> tuple[str, ...]:
    """Return the words that a person searches for."""
    return tuple(dict.fromkeys(word[:_WORD_CHARS] for word in (text or "").split()))[:MOST_WORDS]


@define(eq=False)
class LogVerifier:
    """Verifies the audit log in a worker thread, once at a time: a long log takes a processor for seconds. A caller
    who asks while it runs gets the result of the next run, together with all who have asked until that began.

    Agents may ask too. So the thread rests between two runs.
    """

    verify: Callable[[Path, Places], Verification] = verify_log
    rest: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    _lock: trio.Lock = field(factory=trio.Lock, init=False)
    _limit: trio.CapacityLimiter | None = field(default=None, init=False)
    _asked: int = field(default=0, init=False)
    #: The last result, and how many had asked when its run began.
    _last: tuple[int, Verification] | None = field(default=None, init=False)
    #: When the next run may begin, by `now`.
    _rested_at: float = field(default=0.0, init=False)

    async def run(self, database: Path, places: Places) -> Verification:
        """Verify the log of this database. Raises DatabaseError, and FileError for the file of its heads. A cancelled
        run ends by itself; no other begins before."""
        self._asked += 1
        mine = self._asked
        async with self._lock:
            if self._last is not None and self._last[0] >= mine:
                return self._last[1]
            if self._limit is None:
                self._limit = trio.CapacityLimiter(1)
            covers = self._asked
            work = partial(self._verify, database, places)
            found = await trio.to_thread.run_sync(work, limiter=self._limit, abandon_on_cancel=True)
            self._last = covers, found
            return found

    def _verify(self, database: Path, places: Places) -> Verification:
        if (left := self._rested_at - self.now()) > 0:
            self.rest(left)
        began = self.now()
        try:
            return self.verify(database, places)
        except AnchorError as error:
            raise FileError(str(error)) from None
        except sqlite3.Error as error:
            raise DatabaseError(f"the audit log in {database} cannot be read ({error})") from None
        finally:
            ended = self.now()
            self._rested_at = ended + REST * (ended - began)


@frozen
class HistoryCalls:
    """The calls about what happened. `session_id` finds a session by the prefix of its id. `places` has the heads of
    the log that are kept outside the database."""

    reader: Reader
    places: Places
    verifier: LogVerifier
    session_id: Callable[[str], Awaitable[str]]

    async def requests(
        self, text: str | None = None, session: str | None = None, *, limit: int, start: int = 0
    ) -> tuple[Card, ...]:
        """Return past requests, the newest first: at most `limit`, after the `start` newest ones. With `text` those
        that contain all its words: in their title, text, files, change, or in the answer. With `session` those of this
        session; raises NotFound and Ambiguous."""
        id = None if session is None else await self.session_id(session)
        words = words_of(text)
        work = partial(lookups.past_cards, words=words, session_id=id, limit=limit, start=start)
        return await self.reader.search(work)

    async def verify(self) -> Verification:
        """Verify the audit log, as `audit verify` does. Raises DatabaseError and FileError."""
        return await self.verifier.run(self.reader.path, self.places)
