"""The log of calls: each stands in the journal before it is sent, and in the hash-chained audit log after it has ended.

`InvocationLog` is what the parts of the gateway use while they serve a call. It only writes lines to the journal.
`InvocationRecorder` is the actor that takes the ended calls from the log to the store, in groups. So a call costs its
agent no commit. If the server is killed, the next one adds what the audit log lacks: calls that had ended as they
ended, and those that were running as `interrupted`.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Final
from uuid import uuid4

import trio
from attrs import evolve, frozen

from actors import Actor, ChildSpec, Refused
from intercom.gateway.call_journal import (
    Earlier,
    Invocation,
    Journal,
    JournalError,
    Recovery,
    arguments_hmac,
)
from intercom.gateway.messages import InvocationStatus
from intercom.masking import Masker
from intercom.model.errors import IntercomError
from intercom.model.json_types import Json
from intercom.model.metrics import DownstreamCalled, Measured, unmeasured
from intercom.model.visible_text import one_line
from intercom.store import gateway
from intercom.store.gateway import CallEntry
from intercom.store.store_and_reader import STORE_FAULTS, Store
from intercom.store.writer_messages import Database

#: The actor that takes the calls to the store.
RECORDER: Final = "gateway-recorder"
#: How long a stop may take (seconds). What is not stored by then is in the journal for the next server.
STOP_SECONDS: Final = 10.0
#: How long ended calls are collected for one transaction (seconds), and the most in one.
COLLECT_SECONDS: Final = 0.1
GROUP: Final = 256
#: How many ended calls may wait for the store. If more do, new calls wait.
WAITING: Final = 10_000
#: Seconds until another attempt if the store or the journal has failed.
RETRY_SECONDS: Final = 1.0
#: How much of an error message is recorded, in characters. More would take milliseconds to search for secrets.
ERROR: Final = 500
#: How much of a name is shown in the audit log, in characters. Its data has the whole name.
_NAME: Final = 200
#: How a call ends that the downstream has never seen.
_NOT_SENT: Final = frozenset(
    {
        InvocationStatus.PERMISSION_DENIED,
        InvocationStatus.RATE_LIMITED,
        InvocationStatus.DISABLED,
        InvocationStatus.CIRCUIT_OPEN,
        InvocationStatus.OPERATOR_DENIED,
        InvocationStatus.WORKSPACE_REFUSED,
    }
)
_PART: Final = re.compile(r"[!-~]*\Z")
_INTERRUPTED: Final = "the server ended while the call ran; whether it had its effect is not known"

log = logging.getLogger("intercom.gateway")


class InvocationLog:
    """Records calls in the journal, and keeps the ended ones until the audit log has them.

    Make the record of a call with `new` and await `ready`. If it is refused, call `refuse`. Otherwise call `begin`
    before it is sent, and `finish` when it has ended in any way, also by cancellation. Only `ready` waits. The others
    take about 25 us together; to mask an error message takes up to a millisecond.

    `key` is that of the arguments' HMAC (`arguments_key`). `mask` removes secrets from error messages. `complain` is
    called with a sentence for people when calls cannot be recorded, and once they can again. `measured` gets every
    ended call. Methods are for tasks of the loop, except `read_journal`.
    """

    def __init__(
        self,
        journal: Journal,
        key: bytes,
        store: Store,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        mask: Callable[[str], str] = lambda text: Masker().mask(text).text,
        complain: Callable[[str], object] = lambda _text: None,
        measured: Measured = unmeasured,
        waiting: int = WAITING,
    ) -> None:
        self._journal = journal
        self._measured = measured
        self._key = key
        self._store = store
        self._now = now
        self._mask = mask
        self._complain = complain
        self._most_waiting = waiting
        self._running: dict[str, Invocation] = {}
        self._ended: deque[Invocation] = deque()
        self._taken = 0
        self._recorded = 0
        self._through = 0
        self._recovery: Recovery | None = None
        self._waiters = trio.lowlevel.ParkingLot()
        self._wake: Callable[[], object] = lambda: None
        self._is_woken = False
        #: Why the journal, and why the store cannot be written now.
        self._journal_fault: str | None = None
        self._store_fault: str | None = None

    def children(self) -> tuple[ChildSpec, ...]:
        """Return the actor that takes the calls to the store. Start it after the store and before what calls."""
        return (ChildSpec(RECORDER, lambda: InvocationRecorder(self, self._store, self._now), shutdown=STOP_SECONDS),)

    # For calls

    def new(
        self,
        *,
        run_id: str,
        agent_id: str,
        agent_role: str,
        tool: str,
        method: str,
        arguments: Json,
        call: str | None = None,
    ) -> Invocation:
        """Return the record of a call that begins now. `tool` is the downstream, `call` the client's name for the call.
        Nothing is written yet. Raises InvalidArguments."""
        hmac = arguments_hmac(self._key, arguments)
        return Invocation(str(uuid4()), self._now(), run_id, agent_id, agent_role, tool, method, hmac, call)

    async def ready(self) -> None:
        """Wait until another call can be recorded: the journal is read, and the queue for the store not full.

        Raises JournalError if the journal cannot be opened. It is a checkpoint only if it waits.
        """
        while len(self._ended) >= self._most_waiting or self._recovery is None:
            await self._wait()

    def begin(self, invocation: Invocation) -> None:
        """Record that a call is about to be sent. Raises JournalError if it cannot be recorded: do not send it then."""
        try:
            self._journal.begin(invocation)
        except JournalError as fault:
            self.note_journal(fault)
            raise
        self._running[invocation.id] = invocation

    def finish(self, invocation: Invocation) -> Invocation:
        """Record the end of a call that has begun, and return its record. It has a status, its seconds and its cost,
        which counts if it was sent; the error message is whatever anybody wrote.

        Never fails: if the journal cannot be written, the audit log still gets the call. A second end is ignored.
        """
        if self._running.pop(invocation.id, None) is None:
            return invocation
        error = invocation.error_message
        seconds, sent = round(invocation.seconds or 0.0, 6), invocation.status not in _NOT_SENT
        cost = invocation.cost if sent else 0
        if error is not None or (seconds, sent, cost) != (invocation.seconds, invocation.sent, invocation.cost):
            masked = None if error is None else self._masked(error)
            invocation = evolve(invocation, seconds=seconds, sent=sent, cost=cost, error_message=masked)
        self._end(invocation)
        return invocation

    def refuse(self, invocation: Invocation) -> Invocation:
        """Record a call that was never sent, and return its record. It has a status. Its error message is our own
        sentence: it is not searched for secrets.

        Raises JournalError if the journal was never open.
        """
        if self._recovery is None:
            raise JournalError("calls cannot be recorded yet: the server is starting; call again")
        error = invocation.error_message
        refused = evolve(
            invocation,
            seconds=round(invocation.seconds or 0.0, 6),
            sent=False,
            error_message=None if error is None else one_line(error)[:ERROR],
        )
        self._end(refused)
        return refused

    def earlier(self, call: str) -> Earlier | None:
        """Return the latest call with this name that an earlier server sent, if it is one of the last 10,000; None
        otherwise. A call that was running when the server was killed is `interrupted`."""
        return None if self._recovery is None else self._recovery.recent.get(call)

    async def settle(self) -> None:
        """Wait until the audit log has every call that has ended by now, also those of earlier servers. Raises
        JournalError as `ready` does."""
        while self._recovery is None:
            await self._wait()
        target = self._taken
        while self._recorded < target:
            await self._wait()

    @property
    def recovery(self) -> Recovery | None:
        """What the journal of earlier servers said; None until it is read."""
        return self._recovery

    @property
    def waiting(self) -> int:
        """How many ended calls wait for the store."""
        return len(self._ended)

    @property
    def running(self) -> tuple[Invocation, ...]:
        """The calls that have begun and not ended, oldest first."""
        return tuple(self._running.values())

    async def _wait(self) -> None:
        if self._recovery is None and self._journal_fault is not None:
            raise JournalError(self._journal_fault)
        await self._waiters.park()

    def _end(self, ended: Invocation) -> None:
        if ended.status is not None:
            self._measured(DownstreamCalled(ended.tool, ended.status.value, ended.seconds or 0.0, ended.cached))
        try:
            self._journal.finish(ended)
        except JournalError as fault:
            self.note_journal(fault)
        self._ended.append(ended)
        self._taken += 1
        if not self._is_woken:
            self._is_woken = True
            self._wake()

    def _masked(self, error: str) -> str:
        if len(error) > ERROR:
            # Half a secret is not recognised as one: what looks like a part of one is left out at the cut.
            error = f"{_PART.sub('', error[:ERROR])} ({len(error)} characters)"
        try:
            return one_line(self._mask(error))
        except Exception:
            log.exception("an error message of a call could not be searched for secrets")
            return "(an error message that could not be searched for secrets)"

    # For the recorder

    def attach(self, wake: Callable[[], object]) -> None:
        """Have `wake` called when calls have ended, and at once if some wait already. Call `take` after that."""
        self._wake = wake
        self._is_woken = True
        wake()

    def read_journal(self) -> Recovery:
        """Read the journal and open it for writing. Takes a while: run it in a thread. Raises JournalError."""
        return self._journal.recover()

    def start(self, recovery: Recovery, known: frozenset[str], through: int) -> None:
        """Accept calls from now on. First in the queue are those of `recovery` that are not `known` to the audit log;
        `through` is the entry of its newest call."""
        calls = (*recovery.unfinished, *recovery.unconfirmed)
        self._through = through
        self._recovery = recovery
        for each in sorted(calls, key=lambda call: call.at):
            if each.id in known:
                continue
            if each.status is None:
                self._end(evolve(each, status=InvocationStatus.INTERRUPTED, sent=True, error_message=_INTERRUPTED))
            else:
                self._ended.append(each)
                self._taken += 1
        self._confirm_in_journal([each.id for each in calls if each.id in known])
        self._waiters.unpark_all()

    def take(self, most: int) -> tuple[Invocation, ...]:
        """Return the oldest calls that the audit log lacks, at most so many. They stay until `confirm`."""
        self._is_woken = False
        return tuple(islice(self._ended, most))

    @property
    def through(self) -> int:
        """The id of the newest entry of a call, as far as known."""
        return self._through

    def confirm(self, calls: Sequence[Invocation], through: int) -> None:
        """Forget these calls, the oldest ones: the audit log has them now, the newest in entry `through`."""
        self._through = through
        self._forget(calls)
        self._confirm_in_journal([each.id for each in calls])
        self.note_store(None)

    def give_up(self, call: Invocation, why: str) -> None:
        """Forget the oldest call, which the store does not accept. The journal still has it."""
        log.error("the audit log does not accept the gateway's call %s: %s", call.id, why)
        self._forget((call,))

    def note_journal(self, fault: JournalError | None) -> None:
        """Tell people once that the journal cannot be written, and once that it can again."""
        text = None if fault is None else fault.message
        if text is None or self._journal_fault is None:
            self._complain("the journal of the gateway's calls can be written again" if text is None else text)
        self._journal_fault = text
        self._waiters.unpark_all()

    def note_store(self, fault: Exception | None) -> None:
        """Tell people once that ended calls cannot be stored, and once that they can again."""
        if fault is not None and self._store_fault is None:
            self._complain(f"calls of the gateway are not in the audit log yet, and will be added: {fault}")
        elif fault is None and self._store_fault is not None:
            self._complain("calls of the gateway are recorded in the audit log again")
        self._store_fault = None if fault is None else str(fault)

    def close(self) -> None:
        """Close the journal. The next server adds what the audit log lacks."""
        self._journal.close()

    def _forget(self, calls: Sequence[Invocation]) -> None:
        for call in calls:
            oldest = self._ended.popleft()
            assert oldest is call, "calls are confirmed in the order of their ends"
        self._recorded += len(calls)
        self._waiters.unpark_all()

    def _confirm_in_journal(self, ids: Sequence[str]) -> None:
        try:
            self._journal.confirm(ids, self._through)
        except JournalError as fault:
            self.note_journal(fault)
        else:
            # Not earlier: lines may still be written to a file that is gone.
            if self._journal_fault is not None:
                self.note_journal(None)


@frozen
class _Record:
    """A timer: take the ended calls to the store."""


class InvocationRecorder(Actor):
    """The actor `gateway-recorder`. It takes the ended calls of `invocations` to the store, in groups, in order.

    First it reads the journal, and compares it with the audit log. A call leaves the log only when it is on disk, so a
    crash of this actor or of the store's writer loses none and repeats none. On stop it records what has ended by then.
    Start it after the store, so that it stops before it.
    """

    def __init__(self, invocations: InvocationLog, store: Store, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._log = invocations
        self._store = store
        self._now = now

    def on_start(self) -> None:
        self._log.attach(partial(self.set_timer, _Record, COLLECT_SECONDS, _Record()))
        if self._log.recovery is None:
            self.set_timer(_Record, 0.0, _Record())

    async def on_receive(self, message: object) -> None:
        if isinstance(message, _Record) and not await self._record_all():
            self.set_timer(_Record, RETRY_SECONDS, _Record())

    async def on_stop(self) -> None:
        with trio.move_on_after(STOP_SECONDS, shield=True):
            await self._record_all()

    async def _record_all(self) -> bool:
        """Record all calls that have ended. Returns False if it has to be tried again later."""
        try:
            if self._log.recovery is None:
                await self._recover()
            while group := self._log.take(GROUP):
                await self._record(group)
        except JournalError as fault:
            self._log.note_journal(fault)
            return False
        except STORE_FAULTS as fault:
            self._log.note_store(fault)
            return False
        return True

    async def _recover(self) -> None:
        recovery = await trio.to_thread.run_sync(self._log.read_journal)
        # Asked of the writer, so that no transaction of an earlier incarnation comes after it.
        known, through = await self._store.transact(partial(_recorded, after=recovery.through))
        self._log.start(recovery, known, through)
        if recovery.is_torn or recovery.unreadable:
            lines = recovery.unreadable + recovery.is_torn
            log.warning("the journal of the gateway's calls has %d lines that are cut short or not readable", lines)

    async def _record(self, group: Sequence[Invocation]) -> None:
        try:
            through = await self._store.transact(partial(_add, group, at=self._now(), after=self._log.through))
        except STORE_FAULTS:
            raise
        except (IntercomError, Refused) as refusal:
            if len(group) == 1:
                self._log.give_up(group[0], str(refusal))
                return
            # One of them is at fault: record the others.
            for each in group:
                await self._record((each,))
        else:
            self._log.confirm(group, through)


def _recorded(db: Database, after: int) -> tuple[frozenset[str], int]:
    return gateway.call_ids(db, after), gateway.newest_call(db)


def _add(group: Sequence[Invocation], db: Database, at: datetime, after: int) -> int:
    return gateway.record_calls(db, at, [_entry(each) for each in group], after)


def _entry(call: Invocation) -> CallEntry:
    status = "" if call.status is None else call.status.value
    return CallEntry(
        call.id,
        call.run_id or None,
        one_line(call.agent_id)[:_NAME],
        f"{one_line(f'{call.tool}.{call.method}')[:_NAME]}: {status}",
        call.record(),
        call.tool,
        call.at.astimezone(UTC).date() if call.sent and not call.cached else None,
        call.cost,
    )
