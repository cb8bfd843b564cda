"""The actor that keeps the audit log's head outside of the database, and tells people if the two do not match."""

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

#: Seconds between two checks of the head, and how often it is posted to the channels.
ANCHOR_SECONDS = 30.0
POST_EVERY = timedelta(days=1)
#: Time limit of one store transaction, in seconds.
_STORE_SECONDS = 30.0
_WHAT_TO_DO = "run agent-intercom-ctl audit verify; nothing is repaired by itself"


@frozen
class _Look:
    """A timer: check whether the head has moved on."""


class AuditWatch(Actor):
    """The actor `audit-watch`. On start it compares the log with the file of kept heads. From then on, and on stop, it
    appends the head to that file if the head has moved on. If the last appended head disappears from the file, people
    are told. A file is begun again only after an audit entry says so; a server that stops leaves that to the next one.
    Once a day the head is posted on every channel."""

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
        #: Whether the file must be begun, and the head to begin it with once that is recorded.
        self._has_to_begin = False
        self._first: Head | None = None
        #: The last head in the file, and the file's state at that time, if known.
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
            # A server that ends right after its start must not store a head that it did not compare with the last one.
            await self._compare_once()
            await self._look(stops=True)

    async def _compare_once(self) -> None:
        if not self._is_compared:
            await self._compare()

    async def _compare(self) -> None:
        """Compare the log with the kept heads, and tell people what does not match."""
        try:
            state = await trio.to_thread.run_sync(audit_anchor.state, self._file)
            anchors = await trio.to_thread.run_sync(audit_anchor.read, self._file, self._reader.path)
            beginning, faults = await self._reader.read(partial(_misfits, anchors=anchors, file=self._file))
        except (AnchorError, IntercomError) as error:
            # Nothing is appended to a file whose content is unknown.
            self._tell(f"the audit log could not be compared with its kept heads: {error}")
            return
        self._is_compared = True
        self._has_to_begin = beginning is not None or not anchors
        if anchors:
            last = anchors[-1]
            self._anchored = last.sequence
            # Treated as if this server had appended it: its loss is noticed.
            self._added, self._state = Head(last.sequence, last.hash, last.at), state
        if beginning is not None:
            faults.insert(0, beginning)
        for fault in faults[:1]:
            more = f" ({len(faults) - 1} more like it)" if len(faults) > 1 else ""
            self._tell(f"the audit log was changed while nobody was looking: {fault}{more}; {_WHAT_TO_DO}")

    async def _look(self, stops: bool = False) -> None:
        """Store the head if it has moved on, and post it if that is due."""
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
        """Append the newest head (or the head to begin the file with) to the file, if it is missing. Returns it."""
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
        """Return whether the file has lost the last appended head. Other servers may have appended to it. Blocks."""
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
        """Record that the head is kept in the file from now on, and return the head to begin with. After that a missing
        file is noticed."""
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
    """Return why the file is not the one that was begun, or None; and how it contradicts the log."""
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
    """Return whether the head is to be posted now, and record it. The first post comes a day after the beginning."""
    last = audit.newest_at(db, (POSTED,)) or audit.newest_at(db, (ANCHORED,))
    if last is not None and at - last < POST_EVERY and at >= last:
        return False
    newest = head(db.conn)
    audit.record(db, at, POSTED, None, "intercom", "" if newest is None else newest.hash)
    return last is not None
