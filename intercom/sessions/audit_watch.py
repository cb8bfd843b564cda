"""Keeps the audit log's head outside of the database, and tells people when the two do not fit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from actors import Actor, Name, ask
from intercom.model.card import Notice
from intercom.model.errors import IntercomError
from intercom.store import audit, audit_anchor
from intercom.store.audit_anchor import AnchorError, State
from intercom.store.audit_chain import ANCHORED, POSTED, Anchor, Head, head
from intercom.store.messages import Database, Transact
from intercom.store.reader import Reader

log = logging.getLogger(__name__)

#: Seconds between two looks at the head, and how often it is posted to the channels.
ANCHOR_SECONDS = 30.0
POST_EVERY = timedelta(days=1)
#: Seconds the store may take.
_STORE_SECONDS = 30.0
_WHAT_TO_DO = "run agent-intercom-ctl audit verify; nothing is repaired by itself"


@frozen
class _Look:
    """A timer: the head may have moved on."""


class AuditWatch(Actor):
    """Registered as `audit-watch`. On start the log is compared with the file that its head was kept in; from then on,
    and when it stops, the head is added to that file if it has moved on. If what was added last is gone from there,
    people are told. A file that has to be begun again is so after an entry that says it; a server that stops leaves
    that to the next one, which can tell. Once a day the head is told on every channel."""

    def __init__(
        self,
        reader: Reader,
        store: Name,
        operators: Name,
        file: Path,
        now: Callable[[], datetime],
        complain: Callable[[str], object] = lambda _text: None,
        every: float = ANCHOR_SECONDS,
    ) -> None:
        super().__init__()
        self._reader = reader
        self._store = store
        self._operators = operators
        self._file = file
        self._now = now
        self._complain = complain
        self._every = every
        self._anchored = 0
        self._is_compared = False
        #: Whether the file has to be begun, and the head to begin it with once that is on record.
        self._has_to_begin = False
        self._first: Head | None = None
        #: The head that the file holds last, and the file's state at the time where it is known.
        self._added: Head | None = None
        self._state: State | None = None
        self._told: str | None = None

    async def on_start(self) -> None:
        self.set_timer(_Look(), 0.0, _Look())

    async def on_receive(self, message: Any) -> None:
        if isinstance(message, _Look):
            await self._compare_once()
            await self._look()
            self.set_timer(_Look(), self._every, _Look())

    async def on_stop(self) -> None:
        with trio.move_on_after(_STORE_SECONDS, shield=True):
            # A server that ends right after its start must not keep a head that it did not hold against the last one.
            await self._compare_once()
            await self._look(stops=True)

    async def _compare_once(self) -> None:
        if not self._is_compared:
            await self._compare()

    async def _compare(self) -> None:
        """Hold the log against what was kept of it, and tell people what does not fit."""
        try:
            state = await trio.to_thread.run_sync(audit_anchor.state, self._file)
            anchors = await trio.to_thread.run_sync(audit_anchor.read, self._file, self._reader.path)
            beginning, faults = await self._reader.read(partial(_misfits, anchors=anchors, file=self._file))
        except (AnchorError, IntercomError) as error:
            # Nothing is added to a file of which it is not known what it holds.
            self._tell(f"the audit log could not be compared with its kept heads: {error}")
            return
        self._is_compared = True
        self._has_to_begin = beginning is not None or not anchors
        if anchors:
            last = anchors[-1]
            self._anchored = last.sequence
            # As good as added by this server: it is missed if it goes.
            self._added, self._state = Head(last.sequence, last.hash, last.at), state
        if beginning is not None:
            faults.insert(0, beginning)
        for fault in faults[:1]:
            more = f" ({len(faults) - 1} more like it)" if len(faults) > 1 else ""
            self._tell(f"the audit log was changed while nobody was looking: {fault}{more}; {_WHAT_TO_DO}")

    async def _look(self, stops: bool = False) -> None:
        """Keep the head if it has moved on, and post it if that is due."""
        if not self._is_compared:
            return
        try:
            newest = await self._reader.read(_head)
            if newest is None:
                return
            is_lost = await trio.to_thread.run_sync(self._is_lost)
            if is_lost:
                self._has_to_begin = await self._lacks_its_beginning()
            is_left = stops and self._has_to_begin and await self._reader.read(_was_begun)
            if not is_left:
                newest = await self._keep(newest, is_lost)
            if is_lost:
                then = "" if is_left else ", and goes on with what is added now"
                self._tell(
                    f"{self._file}, where the head of the audit log is kept, was moved, removed or changed while the"
                    f" server runs{then}: put it back if you did not do it yourself; {_WHAT_TO_DO}"
                )
            if not stops:
                await self._post(newest)
        except AnchorError as error:
            self._tell(f"the head of the audit log could not be kept: {error}")
        except IntercomError as error:
            log.warning("the head of the audit log could not be read: %s", error)

    async def _keep(self, newest: Head, is_lost: bool) -> Head:
        """Add the newest head to the file, if it is not there; or the one that it is begun with. Which it was."""
        if self._has_to_begin:
            self._first = await self._begin()
            self._has_to_begin = False
        newest = self._first or newest
        if is_lost or newest.sequence != self._anchored:
            self._state = await trio.to_thread.run_sync(audit_anchor.append, self._file, newest, self._reader.path)
            self._first, self._anchored, self._added = None, newest.sequence, newest
        return newest

    async def _lacks_its_beginning(self) -> bool:
        anchors = await trio.to_thread.run_sync(audit_anchor.read, self._file, self._reader.path)
        fault = await self._reader.read(lambda db: audit_anchor.beginning_fault(db.conn, anchors, self._file))
        return fault is not None or not anchors

    def _is_lost(self) -> bool:
        """Whether the file no longer holds what was added to it last. Other servers may have added to it. Blocks."""
        if self._added is None:
            return False
        now = audit_anchor.state(self._file)
        if now is not None and now == self._state:
            return False
        try:
            is_lost = not audit_anchor.holds(self._file, self._reader.path, self._added)
        except AnchorError:
            return True
        self._state = now
        return is_lost

    async def _begin(self) -> Head:
        """Put on record that the head is kept outside from now on, and return the head to begin with: a file that goes
        is missed then."""
        work = partial(_begun, at=self._now(), file=self._file)
        return await ask(self._store, Transact(work), timeout=_STORE_SECONDS, retry=True)

    async def _post(self, newest: Head) -> None:
        at = self._now()
        if await ask(self._store, Transact(partial(_due, at=at)), timeout=_STORE_SECONDS, retry=True):
            text = f"head of the audit log: entry {newest.sequence}, {newest.hash}"
            log.info("%s", text)
            self._operators.tell(Notice(text, "info", at))

    def _tell(self, text: str) -> None:
        if text == self._told:
            return
        self._told = text
        log.error("%s", text)
        self._complain(text)
        self._operators.tell(Notice(text, "error", self._now()))


def _head(db: Database) -> Head | None:
    return head(db.conn)


def _misfits(db: Database, anchors: list[Anchor], file: Path) -> tuple[str | None, list[str]]:
    """Why the file is not the one that was begun, and what does not fit between it and the log."""
    return audit_anchor.beginning_fault(db.conn, anchors, file), audit_anchor.compare(db.conn, anchors)


def _was_begun(db: Database) -> bool:
    return audit.newest_at(db, (ANCHORED, POSTED)) is not None


def _begun(db: Database, at: datetime, file: Path) -> Head:
    again = _was_begun(db)
    summary = f"the head of the log is kept in {file}{', which was begun again' if again else ''}"
    audit.record(db, at, ANCHORED, None, "intercom", summary, {"again": True} if again else None)
    newest = head(db.conn)
    assert newest is not None, "it was written just now"
    return newest


def _due(db: Database, at: datetime) -> bool:
    """Whether the head is to be posted now; then that is on record. A first day comes before the first post."""
    last = audit.newest_at(db, (POSTED,)) or audit.newest_at(db, (ANCHORED,))
    if last is not None and at - last < POST_EVERY and at >= last:
        return False
    newest = head(db.conn)
    audit.record(db, at, POSTED, None, "intercom", "" if newest is None else newest.hash)
    return last is not None
