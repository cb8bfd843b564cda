"""What the server looks after by itself: old data, the system's clock, the audit log's head, the databases' files.

Deadlines are wall-clock times, as cards show them, but timers run on the monotonic clock. The two diverge when somebody
sets the clock, when it is corrected, and when the machine sleeps. Stalls are measured by the monotonic clock alone:
neither sleep nor a set clock is an agent's silence.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio
from attrs import define, frozen

from actors import Actor, Info, Name, NotRunning, Refused
from intercom.model.card import Card, Notice
from intercom.model.errors import DatabaseError, IntercomError, NotStarted
from intercom.sessions import request_kinds
from intercom.sessions.checkpoints.checkpoint_messages import SweepContents
from intercom.sessions.lookups import UNANSWERED, ask_session
from intercom.sessions.messages import ClockChanged, EndAbandoned, Expire
from intercom.sessions.processes import monitor_client
from intercom.sessions.session_deps import SessionDeps
from intercom.store import audit, audit_chain, outbox, retention, sessions
from intercom.store.audit_chain import ANCHORED, POSTED, Anchor, AnchorError, Head, State, head
from intercom.store.processes import agent_processes
from intercom.store.requests import approvals
from intercom.store.store_and_reader import LARGE_TRANSACTION_SECONDS, TRANSACTION_SECONDS, Reader, Store
from intercom.store.writer_messages import Database, Inspect

#: Seconds between two checks for lapsed approvals, for agents' processes that are gone, and between two purges.
LAPSE_SECONDS = 60.0
PRUNE_SECONDS = 600.0
PURGE_SECONDS = 3600.0
_ROUNDS = {"lapse": LAPSE_SECONDS, "prune": PRUNE_SECONDS, "purge": PURGE_SECONDS}
_AT_ONCE = 100
#: How many ended sessions one line names.
_NAMED = 5

R = TypeVar("R")

log = logging.getLogger("intercom.sessions")


class Housekeeper(Actor):
    """The actor `housekeeping`. The first purge comes an hour after the start, as in the reference. `prune_processes`
    forgets the processes of agents that are gone."""

    def __init__(self, deps: SessionDeps, outputs: Path, prune_processes: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._deps = deps
        self._outputs = outputs
        self._prune_processes = prune_processes

    def on_start(self) -> None:
        for task, seconds in _ROUNDS.items():
            self.set_timer(task, seconds, task)

    async def on_receive(self, message: str | ClockChanged) -> None:
        task = "lapse" if isinstance(message, ClockChanged) else message
        try:
            if isinstance(message, ClockChanged):
                # Approvals lapse by the new clock. Nothing is purged right after the clock was set: it may be set
                # again, and deletion is final.
                self.set_timer("purge", PURGE_SECONDS, "purge")
            if task == "lapse":
                await self._lapse()
            elif task == "prune":
                # Not in this handler: it reads every process of the machine.
                self.spawn(self._prune)
            elif task == "purge":
                # Not in this handler: it asks sessions, which takes a while.
                self.spawn(self._end_abandoned)
                await self._purge()
        except DatabaseError as failed:
            # For example, the disk is full. The next round tries again.
            text = f"housekeeping has to wait: {failed}"
            self._deps.card_router.tell(Notice(text, "warning", self._deps.now()))
        self.set_timer(task, _ROUNDS[task], task)

    async def _prune(self) -> None:
        try:
            await self._prune_processes()
        except (IntercomError, Refused, *UNANSWERED) as failed:
            log.warning("processes that are gone could not be forgotten for now: %s", failed)

    async def _lapse(self) -> None:
        now = self._deps.now()
        before = now - timedelta(seconds=self._deps.config.timeouts.approved_valid_seconds)
        for card in await self._ask(partial(_lapse, before=before, at=now)):
            session = self.system.ref(f"session/{card.session_id}")
            if session is not None:
                # The session may still be about to tell its agent of the approval. It also shows the card.
                session.tell(Expire(card.id))
            else:
                self._deps.card_router.tell(card)

    async def _end_abandoned(self) -> None:
        """End the sessions whose agents did not come back, and tell people once of all of them."""
        days = self._deps.config.interrupted_retention_days
        away = f"more than {days} day{'' if days == 1 else 's'}"
        before = self._deps.now() - timedelta(days=days)
        ended: list[str] = []
        try:
            count = -1
            while count < len(ended):
                count = len(ended)
                for id in await self._ask(partial(sessions.abandoned_before, cutoff=before, limit=_AT_ONCE)):
                    why = f"its agent has been away for {away}"
                    # One that cannot be started must not keep the others from ending.
                    with suppress(NotStarted):
                        if await ask_session(self.system, id, EndAbandoned(before, why)):
                            ended.append(id[:8])
        except (IntercomError, Refused, *UNANSWERED) as failed:
            log.warning("sessions whose agents are away could not be ended for now: %s", failed)
        if ended:
            some = ", ".join(ended[:_NAMED]) + (f" and {len(ended) - _NAMED} more" if len(ended) > _NAMED else "")
            what = f"session {some} was" if len(ended) == 1 else f"{len(ended)} sessions ({some}) were"
            text = f"{what} ended: away for {away}; pending requests there are closed"
            self._deps.card_router.tell(Notice(text, "info", self._deps.now()))

    async def _purge(self) -> None:
        now = self._deps.now()
        cutoff = now - timedelta(days=self._deps.config.retention_days)
        # The agents' output goes before the rows that name it.
        while old := await self._ask(partial(agent_processes.expired, cutoff=cutoff, limit=_AT_ONCE)):
            for session_id in old:
                await trio.to_thread.run_sync(monitor_client.forget, self._outputs / session_id)
            if not await self._ask(partial(agent_processes.forget, session_ids=old)):
                break
        # In small steps, because other writers wait.
        kept_until = now - timedelta(days=self._deps.config.checkpoint_retention_days)
        purge = partial(retention.purge, cutoff=cutoff, at=now, checkpoints_before=kept_until)
        while any((await self._ask(purge)).values()):
            continue
        checkpoints = self.system.ref("checkpoints")
        if checkpoints is not None:
            checkpoints.tell(SweepContents())

    async def _ask(self, work: Callable[[Database], R]) -> R:
        return await self._deps.store.transact(work, timeout=LARGE_TRANSACTION_SECONDS)


def _lapse(db: Database, before: datetime, at: datetime) -> list[Card]:
    shown = []
    for id in approvals.lapse(db, before, at):
        request = approvals.get(db, id)
        session = sessions.get(db, request.session_id) if request is not None else None
        if request is not None and session is not None:
            shown.append(request_kinds.card_of(request, session.workspace_root))
    return shown


#: Seconds between two checks, and how far the clocks may drift apart in between: a slewed clock moves by at most half a
#: millisecond a second.
WATCH_SECONDS = 2.0
JUMP_SECONDS = 0.5
#: People are told of a change of at least this many seconds.
TOLD_SECONDS = 60.0
#: The actors with deadlines of their own, besides the sessions.
_OTHERS = frozenset({"checkpoints", "housekeeping", "slack/outbox"})


def boot_time() -> float:
    """Return the seconds since the system started, including its sleep. Falls back to the monotonic clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@frozen
class Clocks:
    """The readings of three clocks at one moment. `steady` stops while the machine sleeps, `boot` does not."""

    wall: datetime
    steady: float
    boot: float


@frozen
class Jump:
    """How far wall time moved beyond monotonic time, in seconds, and how long the machine slept."""

    seconds: float
    slept: float

    @property
    def set_by(self) -> float:
        """How far the clock was set, forward or (negative) back, in seconds."""
        return self.seconds - self.slept


def jump(before: Clocks, now: Clocks) -> Jump | None:
    """Return how wall time jumped between two readings; None if it did not."""
    passed = now.steady - before.steady
    seconds = (now.wall - before.wall).total_seconds() - passed
    slept = max(0.0, now.boot - before.boot - passed)
    if abs(seconds) < JUMP_SECONDS and slept < JUMP_SECONDS:
        return None
    return Jump(seconds, slept)


@define
class Noticed:
    """What survives a crash of the watch: its `last` readings, and a jump that is `untold`."""

    last: Clocks | None = None
    untold: Jump | None = None


class ClockWatch(Actor):
    """The actor `clock-watch`. `now` is the wall clock, `boot` returns the seconds since the system started. `noticed`
    lets it continue after a crash."""

    def __init__(
        self,
        store: Store,
        card_router: Name,
        now: Callable[[], datetime],
        boot: Callable[[], float] | None = None,
        noticed: Noticed | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._card_router = card_router
        self._now = now
        self._boot = boot or trio.current_time
        self._noticed = Noticed() if noticed is None else noticed

    def on_start(self) -> None:
        if self._noticed.last is None:
            self._noticed.last = self._clocks()
        if self._noticed.untold is not None:
            # The store was asked to shift the outbox's times before the crash. Shifting twice would be wrong.
            self._tell_all(self._noticed.untold)
        self.set_timer("look", WATCH_SECONDS, "look")

    async def on_receive(self, message: object) -> None:
        now = self._clocks()
        found = None if self._noticed.last is None else jump(self._noticed.last, now)
        self._noticed.last = now
        self.set_timer("look", WATCH_SECONDS, "look")
        if found is not None:
            await self._changed(found)

    def _clocks(self) -> Clocks:
        return Clocks(self._now(), trio.current_time(), self._boot())

    async def _changed(self, found: Jump) -> None:
        log.warning(
            "the clock jumped by %.1f s (%.1f s of them the machine slept): deadlines are checked again",
            found.seconds,
            found.slept,
        )
        self._noticed.untold = found
        if abs(found.set_by) >= TOLD_SECONDS:
            self._card_router.tell(Notice(_told(found), "warning", self._now()))
        try:
            # Queued rows keep waiting as long as before.
            await self._store.transact(partial(outbox.shift, seconds=found.seconds))
        except IntercomError as failed:
            log.warning("the outbox keeps its times: %s", failed)
        self._tell_all(found)

    def _tell_all(self, found: Jump) -> None:
        """Tell every actor with deadlines to check them again."""
        changed = ClockChanged(found.seconds)
        for name in _names(self.system.inspect()):
            if name in _OTHERS or name.startswith("session/"):
                try:
                    self.system.named(name).tell(changed)
                except NotRunning:
                    continue  # it checks its deadlines when it starts
        self._noticed.untold = None


def _names(info: Info) -> Iterator[str]:
    yield info.name
    for child in info.children:
        yield from _names(child)


def _told(found: Jump) -> str:
    span = timedelta(seconds=round(abs(found.set_by)))
    way = "forward" if found.set_by > 0 else "back"
    return f"the system's clock was set {way} by {span}: requests expire at the time on their cards, by the new clock"


audit_log = logging.getLogger(__name__)

#: Seconds between two checks of the head, and how often it is posted to the channels.
ANCHOR_SECONDS = 30.0
POST_EVERY = timedelta(days=1)
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
        store: Store,
        card_router: Name,
        file: Path,
        now: Callable[[], datetime],
        complain: Callable[[str], object] = lambda _text: None,
        every: float = ANCHOR_SECONDS,
    ) -> None:
        super().__init__()
        self._reader = reader
        self._store = store
        self._card_router = card_router
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

    async def on_receive(self, message: object) -> None:
        if isinstance(message, _Look):
            await self._compare_once()
            await self._look()
            self.set_timer(_Look(), self._every, _Look())

    async def on_stop(self) -> None:
        with trio.move_on_after(TRANSACTION_SECONDS, shield=True):
            # A server that ends right after its start must not store a head that it did not compare with the last one.
            await self._compare_once()
            await self._look(stops=True)

    async def _compare_once(self) -> None:
        if not self._is_compared:
            await self._compare()

    async def _compare(self) -> None:
        """Compare the log with the kept heads, and tell people what does not match."""
        try:
            state = await trio.to_thread.run_sync(audit_chain.anchor_state, self._file)
            anchors = await trio.to_thread.run_sync(audit_chain.read_anchors, self._file, self._reader.path)
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
            self._tell(f"the audit log was changed while no server watched it: {fault}{more}; {_WHAT_TO_DO}")

    async def _look(self, stops: bool = False) -> None:
        """Store the head if it has moved on, and post it if that is due."""
        if not self._is_compared:
            return
        try:
            newest = await self._reader.read(lambda db: head(db.conn))
            if newest is None:
                return
            is_lost = await trio.to_thread.run_sync(self._is_lost)
            if is_lost:
                self._has_to_begin = await self._lacks_its_beginning()
            is_left = stops and self._has_to_begin and await self._reader.read(_was_begun)
            if not is_left:
                newest = await self._keep(newest, is_lost)
            if is_lost:
                then = "" if is_left else ", and continues with new entries"
                self._tell(
                    f"{self._file}, where the head of the audit log is kept, was moved, removed or changed while the"
                    f" server runs{then}: put it back if you did not do it yourself; {_WHAT_TO_DO}"
                )
            if not stops:
                await self._post(newest)
        except AnchorError as error:
            self._tell(f"the head of the audit log could not be kept: {error}")
        except IntercomError as error:
            audit_log.warning("the head of the audit log could not be read: %s", error)

    async def _keep(self, newest: Head, is_lost: bool) -> Head:
        """Append the newest head (or the head to begin the file with) to the file, if it is missing. Returns it."""
        if self._has_to_begin:
            self._first = await self._begin()
            self._has_to_begin = False
        newest = self._first or newest
        if is_lost or newest.sequence != self._anchored:
            append = partial(audit_chain.append_anchor, self._file, newest, self._reader.path)
            self._state = await trio.to_thread.run_sync(append)
            self._first, self._anchored, self._added = None, newest.sequence, newest
        return newest

    async def _lacks_its_beginning(self) -> bool:
        anchors = await trio.to_thread.run_sync(audit_chain.read_anchors, self._file, self._reader.path)
        fault = await self._reader.read(lambda db: audit_chain.beginning_fault(db.conn, anchors, self._file))
        return fault is not None or not anchors

    def _is_lost(self) -> bool:
        """Return whether the file has lost the last appended head. Other servers may have appended to it. Blocks."""
        if self._added is None:
            return False
        now = audit_chain.anchor_state(self._file)
        if now is not None and now == self._state:
            return False
        try:
            is_lost = not audit_chain.holds_anchor(self._file, self._reader.path, self._added)
        except AnchorError:
            return True
        self._state = now
        return is_lost

    async def _begin(self) -> Head:
        """Record that the head is kept in the file from now on, and return the head to begin with. After that a missing
        file is noticed."""
        work = partial(_begun, at=self._now(), file=self._file)
        return await self._store.transact(work)

    async def _post(self, newest: Head) -> None:
        at = self._now()
        if await self._store.transact(partial(_due, at=at)):
            text = f"head of the audit log: entry {newest.sequence}, {newest.hash}"
            audit_log.info("%s", text)
            self._card_router.tell(Notice(text, "info", at))

    def _tell(self, text: str) -> None:
        if text == self._told:
            return
        self._told = text
        audit_log.error("%s", text)
        self._complain(text)
        self._card_router.tell(Notice(text, "error", self._now()))


def _misfits(db: Database, anchors: list[Anchor], file: Path) -> tuple[str | None, list[str]]:
    """Return why the file is not the one that was begun, or None; and how it contradicts the log."""
    return audit_chain.beginning_fault(db.conn, anchors, file), audit_chain.compare(db.conn, anchors)


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


store_log = logging.getLogger("intercom.store")


class DatabaseWatch(Actor):
    """The actor `database-watch`. The writer checks the main database. `renew_lock` restores a removed lock file.
    `disturbed` returns what is wrong with the checkpoint contents' file, for `tell`. Both run in a thread."""

    def __init__(
        self,
        store: Store,
        renew_lock: Callable[[], object] | None,
        disturbed: Callable[[], str | None],
        tell: Callable[[str], object],
    ) -> None:
        super().__init__()
        self._store = store
        self._renew_lock = renew_lock
        self._disturbed = disturbed
        self._tell = tell

    def on_start(self) -> None:
        self.set_timer("look", WATCH_SECONDS, "look")

    async def on_receive(self, message: object) -> None:
        self._store.tell(Inspect())
        if self._renew_lock is not None:
            try:
                await trio.to_thread.run_sync(self._renew_lock)
            except OSError as failed:
                store_log.warning("the database's lock could not be renewed: %s", failed)
        found = await trio.to_thread.run_sync(self._disturbed)
        if found is not None:
            self._tell(found)
        self.set_timer("look", WATCH_SECONDS, "look")
