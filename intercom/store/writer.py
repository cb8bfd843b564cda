"""The one writer: an actor on a thread of its own that commits whatever is queued as one transaction.

One commit costs one wait for the disk, whether it carries one change or a hundred, so the busier the server, the
cheaper each change. Nothing is answered before it is on disk.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from actors import Down, Letter, Refused, ThreadActor
from intercom.model import crash_points
from intercom.model.errors import IntercomError, InvalidArguments
from intercom.model.measure import Committed, Measured, unmeasured
from intercom.store import faults, sessions
from intercom.store.database import BUSY_SECONDS, Database, Opened, open_database
from intercom.store.messages import Flush, Touch, Transact

logger = logging.getLogger("intercom.store")

#: Seconds a Touch may wait for a commit to ride on.
TOUCH_SECONDS = 1.0


@frozen
class _Answer:
    """What one letter will be told once the group is on disk."""

    letter: Letter
    value: Any = None
    refused: BaseException | None = None

    def give(self) -> None:
        if self.refused is None:
            self.letter.reply(self.value)
        else:
            self.letter.fail(self.refused)


class GroupLost(Exception):
    """A work ended the writer's transaction, and with it what others of its group had written."""


class Writer(ThreadActor):
    """Owns the writing connection to the database at `path`; see `messages` for what it answers.

    Opens the database when it starts (each time anew after a crash) and tells `on_opened`, in the writer's thread, what
    it found. A database that can not be opened fails the start with a DatabaseError. `measured` is told of each commit,
    in that thread too.
    """

    batch_size: ClassVar[int] = 256
    mailbox_size: ClassVar[int] = 10_000

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_opened: Callable[[Opened], None] | None = None,
        busy_seconds: float = BUSY_SECONDS,
        measured: Measured = unmeasured,
    ) -> None:
        super().__init__()
        self._path = Path(path)
        self._on_opened = on_opened
        self._busy_seconds = busy_seconds
        self._measured = measured
        self._db: Database | None = None
        self._touched: dict[str, Touch] = {}
        self._reminded = False

    def on_start(self) -> None:
        opened = open_database(self._path, busy_seconds=self._busy_seconds)
        self._db = opened.db
        if self._on_opened is not None:
            self._on_opened(opened)

    def on_stop(self) -> None:
        if self._touched:
            self._commit(())
        self._close()

    def on_failure(self, exc_type: Any, exc: Any, tb: Any) -> None:
        self._close()

    def receive_batch(self, letters: Sequence[Letter]) -> None:
        asked = []
        flush = False
        for letter in letters:
            message = letter.message
            if isinstance(message, Transact):
                asked.append(letter)
                continue
            if isinstance(message, Touch):
                self._keep(message)
            elif isinstance(message, Flush):
                flush = True
                self._reminded = False
            else:
                letter.fail(InvalidArguments(f"the store's writer does not understand {type(message).__name__}"))
                continue
            letter.reply(None)
        if asked or flush:
            self._commit(asked)
        if self._touched and not self._reminded:
            self._reminded = True
            self.set_timer("flush", TOUCH_SECONDS, Flush())

    def _keep(self, touch: Touch) -> None:
        earlier = self._touched.get(touch.session_id)
        if earlier is None or earlier.at <= touch.at:
            tool = touch.last_tool or (earlier.last_tool if earlier else None)
            self._touched[touch.session_id] = Touch(touch.session_id, touch.at, tool)

    def _commit(self, letters: Sequence[Letter]) -> None:
        """Run a group in one transaction, commit it, then answer it."""
        db = self._db
        assert db is not None
        broken: sqlite3.Error | None = None
        began = time.perf_counter()
        try:
            db.execute("begin immediate")
            answers = [self._work(db, letter) for letter in letters]
            for touch in self._touched.values():
                sessions.touch(db, touch.session_id, touch.at, touch.last_tool)
            if letters:
                crash_points.reach("store.before_commit")
            db.execute("commit")
            self._touched.clear()
        except sqlite3.Error as error:
            db.rollback()
            refused = faults.refusal(error, self._path)
            if refused is None:
                raise
            answers = [_Answer(letter, refused=refused) for letter in letters]
            broken = error if faults.damaged(error) else None
        except BaseException:
            db.rollback()
            raise
        else:
            if letters:
                crash_points.reach("store.after_commit")
                self._measured(Committed(len(letters), time.perf_counter() - began))
        for answer in answers:
            answer.give()
        if broken is not None:
            # what follows needs a sound file: open it anew
            raise broken

    def _work(self, db: Database, letter: Letter) -> _Answer:
        """One work in a savepoint of its own."""
        message: Transact[Any] = letter.message
        try:
            with db.atomic():
                value = message.work(db)
                if not db.conn.in_transaction:
                    raise GroupLost("a work ended the transaction it was run in; it must not commit or roll back")
        except (IntercomError, Refused) as refusal:
            answer = _Answer(letter, refused=refusal)
        except sqlite3.Error as error:
            if not db.conn.in_transaction or faults.damaged(error):
                # SQLite gave up the whole transaction
                raise
            refused = faults.refusal(error, self._path)
            answer = _Answer(letter, refused=refused or self._mistake(error))
        except (UnicodeEncodeError, OverflowError) as error:
            answer = _Answer(letter, refused=_unstorable(error))
        except Exception as error:
            answer = _Answer(letter, refused=self._mistake(error))
        else:
            return _Answer(letter, value)
        if not db.conn.in_transaction:
            raise GroupLost("the writer's transaction ended while a work was run in it")
        return answer

    def _mistake(self, error: Exception) -> Down:
        # The savepoint has undone it, so others in the group need not suffer, and the writer's state is sound.
        logger.error("a work asked of the store failed and was undone", exc_info=error)
        return Down(self.name or "store", error, begun=True)

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _unstorable(error: UnicodeEncodeError | OverflowError) -> IntercomError:
    if isinstance(error, UnicodeEncodeError):
        return InvalidArguments("text with half of a surrogate pair can not be stored; send valid Unicode")
    return InvalidArguments("a number beyond 64 bits can not be stored; send a smaller one")
