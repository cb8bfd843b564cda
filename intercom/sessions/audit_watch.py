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
from intercom.store.audit_anchor import AnchorError
from intercom.store.audit_chain import Anchor, Head, head
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
    people are told, and the file is begun again. Once a day the head is told on every channel."""

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
        #: The head that was added last, and the file's state at the time.
        self._added: Head | None = None
        self._state: object = None
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
            await self._look(post=False)

    async def _compare_once(self) -> None:
        if self._told is None:
            self._told = ""
            await self._compare()

    async def _compare(self) -> None:
        """Hold the log against what was kept of it, and tell people what does not fit."""
        try:
            anchors = await trio.to_thread.run_sync(audit_anchor.read, self._file, self._reader.path)
            faults = await self._reader.read(partial(_misfits, anchors=anchors, file=self._file))
        except (AnchorError, IntercomError) as error:
            faults = [str(error)]
            anchors = []
        if anchors:
            self._anchored = anchors[-1].sequence
        for fault in faults[:1]:
            more = f" ({len(faults) - 1} more like it)" if len(faults) > 1 else ""
            self._tell(f"the audit log was changed while nobody was looking: {fault}{more}; {_WHAT_TO_DO}")

    async def _look(self, post: bool = True) -> None:
        """Keep the head if it has moved on, and post it if that is due."""
        try:
            newest = await self._reader.read(_head)
            if newest is None:
                return
            is_lost = await trio.to_thread.run_sync(self._is_lost)
            if is_lost or newest.sequence != self._anchored:
                if self._anchored == 0:
                    newest = await self._begin() or newest
                await trio.to_thread.run_sync(audit_anchor.append, self._file, newest, self._reader.path)
                self._anchored = newest.sequence
                self._added, self._state = newest, await trio.to_thread.run_sync(audit_anchor.state, self._file)
            if is_lost:
                self._tell(
                    f"{self._file}, where the head of the audit log is kept, was moved, removed or changed while the"
                    f" server runs, and is begun again: put it back if you did not do it yourself; {_WHAT_TO_DO}"
                )
            if post:
                await self._post(newest)
        except AnchorError as error:
            self._tell(f"the head of the audit log could not be kept: {error}")
        except IntercomError as error:
            log.warning("the head of the audit log could not be read: %s", error)

    def _is_lost(self) -> bool:
        """Whether the file no longer holds what was added to it last. Other servers may have added to it. Blocks."""
        if self._added is None:
            return False
        now = audit_anchor.state(self._file)
        if now == self._state:
            return False
        try:
            is_lost = not audit_anchor.holds(self._file, self._reader.path, self._added)
        except AnchorError:
            return True
        self._state = now
        return is_lost

    async def _begin(self) -> Head | None:
        """Put on record that the head is kept outside from now on: a file that goes is missed then."""
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


def _misfits(db: Database, anchors: list[Anchor], file: Path) -> list[str]:
    if not anchors:
        begun = db.conn.execute("select 1 from audit where kind = ? limit 1", (_BEGUN,)).fetchone()
        return [f"{file} is gone, where its head was kept"] if begun else []
    return audit_anchor.compare(db.conn, anchors)


_BEGUN = "audit_anchored"
_POSTED = "audit_posted"


def _begun(db: Database, at: datetime, file: Path) -> Head | None:
    if db.conn.execute("select 1 from audit where kind = ? limit 1", (_BEGUN,)).fetchone() is None:
        audit.record(db, at, _BEGUN, None, "intercom", f"the head of the log is kept in {file}")
    return head(db.conn)


def _due(db: Database, at: datetime) -> bool:
    """Whether the head is to be posted now; then that is on record. A first day comes before the first post."""
    last = audit.newest_at(db, (_BEGUN, _POSTED))
    if last is not None and at - last < POST_EVERY and at >= last:
        return False
    newest = head(db.conn)
    audit.record(db, at, _POSTED, None, "intercom", "" if newest is None else newest.hash)
    return last is not None
