"""The single writer: an actor on its own thread that commits all queued work as one transaction.

A commit costs one disk sync, however many changes it holds, so a busier server pays less for each change. Nothing is
answered before it is on disk.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from actors import BatchItem, Down, Refused, ThreadActor
from intercom.model import crash_points
from intercom.model.errors import DatabaseError, IntercomError, InvalidArguments
from intercom.model.metrics import Committed, Measured, unmeasured
from intercom.store import database, sessions
from intercom.store.database import (
    BUSY_SECONDS,
    Database,
    Disturbance,
    Fault,
    Files,
    OpenedDatabase,
    free_name,
    open_database,
)
from intercom.store.schema import MIGRATIONS, Migration
from intercom.store.writer_messages import Flush, Inspect, Touch, Transact

logger = logging.getLogger("intercom.store")

#: Seconds that a Touch may wait for another commit.
TOUCH_SECONDS = 1.0

#: The most rescues within RESCUE_SECONDS. If the file disappears more often, a person intends it or another program
#: would undo every rescue.
MOST_RESCUES = 5
RESCUE_SECONDS = 600.0


@frozen
class _Answer:
    """The answer to one batch item, given when the group is on disk."""

    item: BatchItem
    value: Any = None
    refused: BaseException | None = None

    def give(self) -> None:
        if self.refused is None:
            self.item.reply(self.value)
        else:
            self.item.fail(self.refused)


class GroupLost(Exception):
    """A work ended the writer's transaction, and with it the writes of others in its group."""


class Writer(ThreadActor):
    """Owns the writing connection to the database at `path`; `messages` defines what it accepts.

    It opens the database at each start, also after a crash, and calls `on_opened` with the result. If the database
    cannot be opened, the start fails with a DatabaseError. `measured` is called for each commit. `on_fault` is called
    when other programs disturb the files, and when the disk stops or resumes accepting writes. All callbacks run in the
    writer's thread. `now` is the wall clock.

    `migrations` make the schema. `newest_entry` returns a number in the database that only rises: if it fell, the file
    was overwritten. Their defaults are those of the server's own database, the only one that may be sent a Touch.
    """

    batch_size: ClassVar[int] = 256
    mailbox_size: ClassVar[int] = 10_000

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_opened: Callable[[OpenedDatabase], None] | None = None,
        busy_seconds: float = BUSY_SECONDS,
        measured: Measured = unmeasured,
        on_fault: Callable[[Fault], object] = lambda _fault: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        migrations: Sequence[Migration] = MIGRATIONS,
        newest_entry: Callable[[Database], int] = database.newest_entry,
    ) -> None:
        super().__init__()
        self._path = Path(path)
        self._on_opened = on_opened
        self._busy_seconds = busy_seconds
        self._measured = measured
        self._db: Database | None = None
        self._touched: dict[str, Touch] = {}
        self._reminded = False
        self._on_fault = on_fault
        self._now = now
        self._migrations = migrations
        self._newest_entry = newest_entry
        self._files = Files(None, None, None)
        self._version = 0
        self._newest = 0
        self._written = False
        self._told_of_writes = False
        self._rescues: list[float] = []
        #: Why nothing can be saved now: the contents are not in place or, if `_lost`, are lost.
        self._unsafe: str | None = None
        self._lost = False
        #: Why the disk did not accept the last change, or will not accept the next.
        self._short: str | None = None

    def _open(self) -> OpenedDatabase:
        return open_database(self._path, busy_seconds=self._busy_seconds, migrations=self._migrations)

    def on_start(self) -> None:
        opened = self._open()
        self._db = opened.db
        self._take_stock(opened.db)
        if self._on_opened is not None:
            self._on_opened(opened)

    def on_stop(self) -> None:
        if self._touched:
            self._commit(())
        self._close()

    def on_failure(self, *_crash: object) -> None:
        self._close()

    def receive_batch(self, items: Sequence[BatchItem]) -> None:
        asked = []
        flush = inspect = False
        for item in items:
            message = item.message
            if isinstance(message, Transact):
                asked.append(item)
                continue
            if isinstance(message, Touch):
                self._keep(message)
            elif isinstance(message, Flush):
                flush = True
                self._reminded = False
            elif isinstance(message, Inspect):
                inspect = True
            else:
                item.fail(InvalidArguments(f"the store's writer does not understand {type(message).__name__}"))
                continue
            item.reply(None)
        if inspect:
            self._inspect()
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

    def _commit(self, items: Sequence[BatchItem]) -> None:
        """Run a group in one transaction, commit it, then answer it."""
        if self._unsafe is not None:
            for item in items:
                item.fail(DatabaseError(self._unsafe, path=str(self._path)))
            return
        db = self._db
        assert db is not None
        broken: sqlite3.Error | None = None
        short: str | None = None
        began = time.perf_counter()
        try:
            db.execute("begin immediate")
            # Before the work: a session writes its last activity before it changes its status.
            for touch in self._touched.values():
                sessions.touch(db, touch.session_id, touch.at, touch.last_tool)
            answers = [self._work(db, item) for item in items]
            if items:
                crash_points.reach("store.before_commit")
            db.execute("commit")
            self._touched.clear()
        except sqlite3.Error as error:
            db.rollback()
            refused = database.refusal(error, self._path)
            if refused is None:
                raise
            answers = [_Answer(item, refused=refused) for item in items]
            broken = error if database.damaged(error) else None
            short = str(refused) if database.lasting(error) else None
        except BaseException:
            db.rollback()
            raise
        else:
            self._written = True
            if items:
                crash_points.reach("store.after_commit")
                self._measured(Committed(len(items), time.perf_counter() - began))
        if (found := self._disturbance()) is None:
            self._note_shortage(short)
        elif not self._save(found):
            # The commit may have succeeded, but into a file that is no longer in place.
            refused = DatabaseError(str(self._unsafe), path=str(self._path))
            answers = [_Answer(item, refused=refused) for item in items]
        for answer in answers:
            answer.give()
        if broken is not None and not self._lost:
            # Later work needs a sound file: crash, so that the restart opens it again.
            raise broken

    # The files

    def _take_stock(self, db: Database) -> None:
        """Record the files of a connection that was just opened."""
        # The first read creates the log and its index, so read before looking at the files.
        self._newest = self._newest_entry(db)
        self._version = _data_version(db)
        self._files = database.look(self._path)
        self._written = False

    def _disturbance(self) -> Disturbance | None:
        return database.disturbance(self._files, database.look(self._path))

    def _inspect(self) -> None:
        """Check for changes to the files, and for a disk that accepts no writes."""
        db = self._db
        if db is None or self._lost:
            return  # the server is about to end
        now = database.look(self._path)
        found = database.disturbance(self._files, now)
        if found is None and self._unsafe is None:
            found = self._foreign_write(db, now)
        if found is not None or self._unsafe is not None:
            self._save(found or Disturbance("was moved", whole=True))
            return
        self._files = now
        self._written = False
        short = database.shortage(self._path)
        if short is not None or self._short in database.shortages(self._path):
            # A shortage that a write reported stays until a write succeeds.
            self._note_shortage(short)

    def _foreign_write(self, db: Database, now: Files) -> Disturbance | None:
        """Return harm done by another program's write, or None. Harmless changes through SQLite are reported once."""
        if now.changed != self._files.changed:
            found = database.unsound(
                self._path,
                self._newest,
                thorough=not self._written,
                latest=self._migrations[-1].number,
                newest_entry=self._newest_entry,
            )
            if found is not None:
                return found
        self._newest = self._newest_entry(db)
        version = _data_version(db)
        if version != self._version:
            self._version = version
            if not self._told_of_writes:
                self._told_of_writes = True
                text = f"another program writes to the database {self._path} while the server runs: find out which"
                self._on_fault(Fault(text, "warning"))
        return None

    def _save(self, found: Disturbance) -> bool:
        """Put the contents back in place, or move the rest aside. Returns whether the database is sound again."""
        db = self._db
        assert db is not None
        began = time.monotonic()
        self._rescues = [at for at in self._rescues if began - at < RESCUE_SECONDS]
        if not found.whole or len(self._rescues) >= MOST_RESCUES:
            self._lose(found)
            return False
        try:
            aside = database.rescue(db, self._path, self._now())
            reopened = self._open()
        except sqlite3.DatabaseError as error:
            if not database.damaged(error) and database.refusal(error, self._path) is not None:
                self._wait_for_rescue(found, error)
            else:
                self._lose(found)
            return False
        except (OSError, IntercomError) as error:
            self._wait_for_rescue(found, error)
            return False
        db.close()
        self._db = reopened.db
        self._take_stock(reopened.db)
        self._unsafe = None
        self._rescues.append(began)
        where = "" if aside is None else f"; what was there is at {aside}"
        text = f"the database {self._path} {found.what} while the server runs: it was restored completely{where}"
        self._on_fault(Fault(text))
        if self._on_opened is not None:
            self._on_opened(reopened)
        return True

    def _wait_for_rescue(self, found: Disturbance, error: Exception) -> None:
        """Refuse writes until the contents can be put back. The connection stays open: only it has them."""
        text = (
            f"the database {self._path} {found.what} while the server runs, and cannot be put back yet ({error}):"
            " nothing is saved until then; do not stop the server, which still holds everything"
        )
        if self._unsafe is None:
            self._on_fault(Fault(text))
        self._unsafe = text

    def _lose(self, found: Disturbance) -> None:
        """Move aside what is left, and report that the server has to end."""
        at = self._now()
        aside = free_name(self._path, "damaged", at)
        try:
            database.set_aside(Path(os.path.realpath(self._path)), aside)
            kept = f"what is left is at {aside}"
        except OSError as error:
            kept = f"what is left is still there ({error})"
        self._unsafe = (
            f"the database {self._path} {found.what} while the server runs: {kept}, and the server ends;"
            " the next one creates a new database, and earlier requests have to be asked again"
        )
        self._lost = True
        database.write_incident(self._path, self._unsafe, at)
        self._on_fault(Fault(self._unsafe, fatal=True))

    def _note_shortage(self, why: str | None) -> None:
        """Report once that nothing can be saved, and once that it can again."""
        if why == self._short:
            return
        if why is not None:
            self._on_fault(Fault(why))
        else:
            self._on_fault(Fault(f"the database {self._path} can be written again", "info"))
        self._short = why

    def _work(self, db: Database, item: BatchItem) -> _Answer:
        """Run one work in its own savepoint."""
        message: Transact[Any] = item.message
        try:
            with _savepoint(db):
                value = message.work(db)
                if not db.conn.in_transaction:
                    raise GroupLost("a work ended the transaction it was run in; it must not commit or roll back")
        except (IntercomError, Refused) as refusal:
            answer = _Answer(item, refused=refusal)
        except sqlite3.Error as error:
            if not db.conn.in_transaction or database.damaged(error):
                # SQLite rolled back the whole transaction.
                raise
            refused = database.refusal(error, self._path)
            answer = _Answer(item, refused=refused or self._mistake(error))
        except (UnicodeEncodeError, OverflowError) as error:
            answer = _Answer(item, refused=_unstorable(error))
        except Exception as error:
            answer = _Answer(item, refused=self._mistake(error))
        else:
            return _Answer(item, value)
        if not db.conn.in_transaction:
            raise GroupLost("the writer's transaction ended while a work was run in it")
        return answer

    def _mistake(self, error: Exception) -> Down:
        # The savepoint has undone it, so the group and the writer can continue.
        logger.error("a work asked of the store failed and was undone", exc_info=error)
        return Down(self.name or "store", error, begun=True)

    def _close(self) -> None:
        if self._db is not None:
            if not self._lost and (found := self._disturbance()) is not None and found.whole:
                # Only the open connection has the contents; closing it would lose them.
                self._save(found)
            self._db.close()
            self._db = None


@contextmanager
def _savepoint(db: Database) -> Iterator[None]:
    """Undo the writes of the block if it fails. `Database.atomic` is not used: it generates a new savepoint name
    each time, which defeats the statement cache."""
    db.conn.execute("savepoint work")
    try:
        yield
    except BaseException:
        if db.conn.in_transaction:
            db.conn.execute("rollback to savepoint work")
            db.conn.execute("release savepoint work")
        raise
    db.conn.execute("release savepoint work")


def _data_version(db: Database) -> int:
    """Return a number that changes when another connection commits."""
    return int(db.execute("pragma data_version").fetchone()[0])


def _unstorable(error: UnicodeEncodeError | OverflowError) -> IntercomError:
    if isinstance(error, UnicodeEncodeError):
        return InvalidArguments("text with half of a surrogate pair cannot be stored; send valid Unicode")
    return InvalidArguments("a number beyond 64 bits cannot be stored; send a smaller one")
