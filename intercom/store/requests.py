"""Requests for a person: approvals, prompts and standbys. They share one space of ids and one life.

A request is pending, then decided, expired or interrupted, and its answer is delivered. Every change of state is a
compare-and-set: the expected state is in the statement's WHERE. Of several concurrent writers exactly one succeeds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from sqlite_utils import Database

from intercom.model import clock
from intercom.model.card import CardKind
from intercom.model.decision import Decided, Signature, signature_data, signature_from_data
from intercom.model.errors import InvalidArguments
from intercom.model.process import Origin
from intercom.model.request import (
    ApprovalRequest,
    ApprovalStatus,
    ContinuationPrompt,
    FileChange,
    PromptDecision,
    Remark,
    Wait,
    WaitStatus,
)
from intercom.store import rows
from intercom.store.rows import Codec, Columns, Part, Row, Table

T = TypeVar("T")
S = TypeVar("S", bound=StrEnum)

_OLDEST_FIRST = "order by created_at, rowid"

# --- decisions -------------------------------------------------------------------------------------------------------


def _signature(text: str) -> Signature | None:
    """Read a signature. Returns None, which counts as no signature, for what the server did not write."""
    try:
        return signature_from_data(json.loads(text))
    except (ValueError, RecursionError):
        return None


#: The columns of a decision, in every table that records one.
DECIDED = Part(
    Columns(
        Decided,
        names={
            "decision": "verdict",
            "by": "decided_by",
            "channel": "decided_via",
            "at": "decided_at",
            "text": "decided_text",
            "origin": "decided_origin",
        },
        codecs={
            "origin": Codec(Origin.to_text, Origin.from_text),
            "signature": Codec(lambda signature: rows.json_text(signature_data(signature)), _signature),
        },
    ),
    present="verdict_id",
)

# --- all kinds of requests -------------------------------------------------------------------------------------------


class RequestTable(Table[T], Generic[T, S]):
    """The table of one kind of request, with the queries on its states.

    `undelivered` are the final statuses whose answer must be delivered to the agent. `answer` returns the additional
    columns that a decision sets.
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        undelivered: tuple[str, ...],
        answer: Callable[[Decided], Row] = lambda _decided: {},
        codecs: Mapping[str, Codec] | None = None,
        elsewhere: Mapping[str, Callable[[Database, Row], object]] | None = None,
    ) -> None:
        super().__init__(name, kind, parts={"decided": DECIDED}, codecs=codecs or {}, elsewhere=elsewhere or {})
        self._undelivered = undelivered
        self._answer = answer

    def pending(self, db: Database, session_id: str | None = None) -> tuple[T, ...]:
        """Return pending requests, oldest first; of one session or of all."""
        if session_id is None:
            return self.select(db, f"status = 'pending' {_OLDEST_FIRST}")
        return self.select(db, f"status = 'pending' and session_id = ? {_OLDEST_FIRST}", (session_id,))

    def waiting(self, db: Database, session_id: str | None = None) -> int:
        """Return the number of pending requests; of one session or of all."""
        where, values = ("", ()) if session_id is None else ("and session_id = ?", (session_id,))
        return rows.count(db, f"select count(*) from {self.name} where status = 'pending' {where}", values)

    def undelivered(self, db: Database, session_id: str) -> tuple[T, ...]:
        """Return requests that were decided or expired but not delivered to this session's agent, oldest first."""
        where = f"session_id = ? and delivered_at is null and status in ({rows.placeholders(self._undelivered)})"
        return self.select(db, f"{where} {_OLDEST_FIRST}", (session_id, *self._undelivered))

    def interrupted(self, db: Database, session_id: str) -> tuple[T, ...]:
        """Return the requests that were interrupted with this session, oldest first."""
        return self.select(db, f"session_id = ? and status = 'interrupted' {_OLDEST_FIRST}", (session_id,))

    def due(self, db: Database, at: datetime) -> tuple[T, ...]:
        """Return pending requests whose deadline is at or before `at`, the longest overdue first."""
        where = "status = 'pending' and expires_at <= ? order by expires_at, rowid"
        return self.select(db, where, (clock.to_text(at),))

    def decide(self, db: Database, id: str, to: S, decided: Decided) -> bool:
        """Move a request from pending to `to`, if the decision came before the deadline.

        Returns True if this decision (same verdict id) decides the request now or did so before: a writer that crashed
        after its commit may try again. Returns False and changes nothing if another decision was first, the deadline
        has passed, or the request is unknown. The deadline does not apply to `to` = expired, a timeout with an answer.
        """
        columns = {**DECIDED.write(decided), **self._answer(decided)}
        sets = ", ".join(f"{name} = :{name}" for name in columns)
        won = rows.changed(
            db,
            f"update {self.name} set status = :to, {sets} where id = :id and status = 'pending'"
            " and (expires_at is null or expires_at > :decided_at or :to = 'expired')",
            {**columns, "to": to.value, "id": id},
        )
        same = f"select count(*) from {self.name} where id = ? and verdict_id = ?"
        return won or rows.count(db, same, (id, decided.verdict_id)) == 1

    def expire(self, db: Database, id: str, at: datetime) -> bool:
        """Expire a pending request without a decision. Returns whether this call did it. The caller checks the
        deadline."""
        return bool(self.close(db, "expired", at, "id = :id and status = 'pending'", {"id": id}))

    def mark_delivered(self, db: Database, id: str, at: datetime) -> bool:
        """Record that the agent has the answer. Returns False if already recorded or still pending."""
        return rows.changed(
            db,
            f"update {self.name} set delivered_at = ? where id = ? and delivered_at is null and status <> 'pending'",
            (clock.to_text(at), id),
        )

    def interrupt(self, db: Database, session_id: str, at: datetime) -> tuple[str, ...]:
        """Interrupt the pending requests of a session that ended. Returns their ids, oldest first."""
        where = "session_id = :session and status = 'pending'"
        return self.close(db, "interrupted", at, where, {"session": session_id})

    def annul(self, db: Database, id: str, at: datetime) -> bool:
        """Close a request whose recorded decision is invalid. The decision stays recorded as evidence."""
        where = "id = :id and status in ('approved', 'rejected', 'decided')"
        return bool(self.close(db, "interrupted", at, where, {"id": id}))

    def close(
        self, db: Database, status: str, at: datetime, where: str, values: Mapping[str, object]
    ) -> tuple[str, ...]:
        """Move all rows that match `where` to a final status without a decision. Returns their ids, oldest first."""
        ids = rows.column(db, f"select id from {self.name} where {where} {_OLDEST_FIRST}", values)
        sql = f"update {self.name} set status = :to, closed_at = :at where id = :id and {where}"
        named = {**values, "to": status, "at": clock.to_text(at)}
        return tuple(id for id in ids if rows.changed(db, sql, {**named, "id": id}))


# --- approvals -------------------------------------------------------------------------------------------------------

_FILES = Table("approval_file", FileChange)


def _files(db: Database, row: Row) -> tuple[FileChange, ...]:
    return _FILES.select(db, "request_id = ? order by position", (row["id"],))


#: An apply in progress owns its request: it must not lapse or be interrupted until the journal entry is finished.
_NOT_BEING_APPLIED = (
    "not exists (select 1 from apply_journal as journal where journal.request_id = approval_request.id"
    " and journal.state in ('staging', 'committed', 'stuck'))"
)


class Approvals(RequestTable[ApprovalRequest, ApprovalStatus]):
    """Approval requests, the files they would change, and the uses of a permission."""

    def insert(
        self, db: Database, value: ApprovalRequest, *, conflict: str = "(id) do nothing", **others: object
    ) -> bool:
        """Insert a new request with its files. Returns False and changes nothing if its id exists."""
        if not super().insert(db, value, conflict=conflict, **others):
            return False
        for position, file in enumerate(value.files):
            _FILES.insert(db, file, conflict="do nothing", request_id=value.id, position=position)
        return True

    def reattachable(self, db: Database, key: str) -> ApprovalRequest | None:
        """Return the newest request with this key that asking again attaches to, or None if it must make a new one.
        That request is pending, approved and not consumed, or rejected and not delivered."""
        return self.first(
            db,
            "key = ? and (status in ('pending', 'approved') or (status = 'rejected' and delivered_at is null))"
            " order by created_at desc, rowid desc limit 1",
            (key,),
        )

    def consume(self, db: Database, id: str, at: datetime) -> bool:
        """Move an approval from approved to consumed, once. Returns False if it is unknown or in another state."""
        return rows.changed(
            db,
            "update approval_request set status = 'consumed', consumed_at = ? where id = ? and status = 'approved'",
            (clock.to_text(at), id),
        )

    def expire_replacing(self, db: Database, id: str, at: datetime) -> tuple[str, ...]:
        """Expire pending requests to replace this one, which are no longer needed. Returns their ids."""
        return self.close(db, "expired", at, "status = 'pending' and replaces = :replaced", {"replaced": id})

    def is_one_unspent(self, db: Database, session_id: str) -> bool:
        """Whether this session has an approval that may still be applied."""
        found = "select 1 from approval_request where session_id = ? and status = 'approved' limit 1"
        return rows.one(db, found, (session_id,)) is not None

    def lapse(self, db: Database, approved_before: datetime, at: datetime) -> tuple[str, ...]:
        """Expire approvals decided before `approved_before` that were never applied. Returns their ids, oldest first.
        Leaves out approvals whose apply is in progress or stuck."""
        where = f"status = 'approved' and decided_at < :before and {_NOT_BEING_APPLIED}"
        return self.close(db, "expired", at, where, {"before": clock.to_text(approved_before)})

    def void(self, db: Database, id: str, at: datetime) -> bool:
        """Expire an approval that may not be applied. Returns False if it is in another state or being applied."""
        where = f"id = :id and status = 'approved' and {_NOT_BEING_APPLIED}"
        return bool(self.close(db, "expired", at, where, {"id": id}))

    def move(self, db: Database, request: ApprovalRequest, session_id: str, key: str, proposal_hash: str) -> bool:
        """Move a pending request to another session, with its key and hash there. Returns False if it is no longer
        pending in its own session."""
        return rows.changed(
            db,
            "update approval_request set session_id = ?, key = ?, proposal_hash = ?"
            " where id = ? and session_id = ? and status = 'pending'",
            (session_id, key, proposal_hash, request.id, request.session_id),
        )

    def interrupt(self, db: Database, session_id: str, at: datetime) -> tuple[str, ...]:
        """Interrupt requests of an ended session that are pending, or approved and not applied. Leaves out those whose
        apply is in progress or stuck. Returns their ids, oldest first."""
        where = f"session_id = :session and status in ('pending', 'approved') and {_NOT_BEING_APPLIED}"
        return self.close(db, "interrupted", at, where, {"session": session_id})

    def use(self, db: Database, request_id: str, slot: str, turn: str, call: str, at: datetime) -> bool:
        """Record a use. Returns False and changes nothing if this hook used this permission at this event before."""
        row = {"request_id": request_id, "slot": slot, "turn": turn, "call": call, "used_at": clock.to_text(at)}
        return rows.insert(db, "permission_use", row, conflict="do nothing")

    def covering(self, db: Database, key: str, slot: str, turn: str, since: datetime) -> str | None:
        """Return the oldest request whose permission for the operation `key` covers this hook too, or None. Another
        hook or event must have used it in the same turn since `since`, and this one must not have."""
        found = rows.one(
            db,
            "select request.id as id from approval_request as request"
            " join permission_use as used on used.request_id = request.id"
            " where request.key = ? and request.status = 'consumed' and used.turn = ? and used.used_at >= ?"
            " and not exists (select 1 from permission_use as own where own.request_id = request.id and own.slot = ?)"
            " order by used.used_at limit 1",
            (key, turn, clock.to_text(since), slot),
        )
        return None if found is None else str(found["id"])


def _write_remarks(remarks: tuple[Remark, ...]) -> str:
    return rows.json_text([[remark.path, remark.text] for remark in remarks])


def _read_remarks(text: str) -> tuple[Remark, ...]:
    return tuple(Remark(path, remark) for path, remark in json.loads(text))


approvals = Approvals(
    "approval_request",
    ApprovalRequest,
    undelivered=("approved", "rejected", "expired"),
    codecs={
        "remarks": Codec(_write_remarks, _read_remarks),
        # An inode number may be larger than SQLite's largest integer.
        "root_inode": Codec(str, int),
    },
    elsewhere={"files": _files},
)

# --- prompts and standbys --------------------------------------------------------------------------------------------


class Prompts(RequestTable[ContinuationPrompt, WaitStatus]):
    """Continuation prompts."""

    def hold(self, db: Database, id: str) -> bool:
        """Remove the deadline of a pending prompt, so it waits for an answer. Returns False if it is not pending."""
        return rows.changed(
            db, "update continuation_prompt set expires_at = null where id = ? and status = 'pending'", (id,)
        )


def _prompt_answer(decided: Decided) -> Row:
    if decided.decision not in set(PromptDecision):
        raise InvalidArguments(f"a prompt is answered continue, refine or stop, not {decided.decision}")
    return {"decision": str(decided.decision), "instruction": decided.text}


prompts = Prompts("continuation_prompt", ContinuationPrompt, undelivered=("decided", "expired"), answer=_prompt_answer)


class Waits(RequestTable[Wait, WaitStatus]):
    """Standbys, in which idle agents wait for work."""

    def by_verdict(self, db: Database, session_id: str, verdict_id: str) -> Wait | None:
        """Return the standby of this session that this decision ended, or None."""
        return self.first(db, "session_id = ? and verdict_id = ?", (session_id, verdict_id))


def standby_instruction(decided: Decided) -> str | None:
    """Return the text for the agent. A stop keeps the word "stop", because its text alone could read as "go on"."""
    if decided.decision == "stop":
        return f"stop: {decided.text}" if decided.text else "stop"
    return decided.text


waits = Waits(
    "wait",
    Wait,
    undelivered=("decided", "expired"),
    answer=lambda decided: {"instruction": standby_instruction(decided)},
)

# --- across the kinds ------------------------------------------------------------------------------------------------

AnyRequest: TypeAlias = ApprovalRequest | ContinuationPrompt | Wait

_KINDS: Mapping[CardKind, RequestTable[Any, Any]] = {
    CardKind.APPROVAL: approvals,
    CardKind.PROMPT: prompts,
    CardKind.STANDBY: waits,
}


def find(db: Database, id: str) -> AnyRequest | None:
    """Return the request with this id, of any kind, or None."""
    return approvals.get(db, id) or prompts.get(db, id) or waits.get(db, id)


def by_call(db: Database, session_id: str, call: str) -> AnyRequest | None:
    """Return the request that this tool call created in this session, or None."""
    if not call:
        return None
    where = "session_id = ? and call = ?"
    values = (session_id, call)
    return approvals.first(db, where, values) or prompts.first(db, where, values) or waits.first(db, where, values)


def with_prefix(db: Database, prefix: str) -> tuple[tuple[CardKind, str], ...]:
    """Return (kind, id) of requests whose id begins with the literal `prefix`, by id; at most 50 of a kind."""
    found = [(kind, id) for kind, table in _KINDS.items() for id in table.with_prefix(db, prefix)]
    return tuple(sorted(found, key=lambda entry: entry[1]))


def pending(db: Database, session_id: str | None = None) -> tuple[AnyRequest, ...]:
    """Return the pending requests of all kinds, oldest first; of one session or of all."""
    return _by_age(request for table in _KINDS.values() for request in table.pending(db, session_id))


def undelivered(db: Database, session_id: str) -> tuple[AnyRequest, ...]:
    """Return requests that were decided or expired but not delivered to this session's agent, oldest first."""
    return _by_age(request for table in _KINDS.values() for request in table.undelivered(db, session_id))


def interrupt(db: Database, session_id: str, at: datetime) -> None:
    """Interrupt the requests of all kinds of a session that ended."""
    for table in _KINDS.values():
        table.interrupt(db, session_id, at)


def interrupted(db: Database, session_id: str) -> tuple[AnyRequest, ...]:
    """Return the requests of all kinds that were interrupted with their session, oldest first."""
    return _by_age(request for table in _KINDS.values() for request in table.interrupted(db, session_id))


def mark_delivered(db: Database, id: str, at: datetime) -> bool:
    """Record that the agent has the answer. Returns False if already recorded or not answered yet."""
    return any(table.mark_delivered(db, id, at) for table in _KINDS.values())


def annul(db: Database, id: str, at: datetime) -> bool:
    """Close a request whose recorded decision is invalid. Returns False if it was closed before."""
    return any(table.annul(db, id, at) for table in _KINDS.values())


def waiting(db: Database, session_id: str | None = None) -> int:
    """Return the number of pending requests of all kinds; of one session or of all."""
    return sum(table.waiting(db, session_id) for table in _KINDS.values())


def _by_age(found: Iterable[AnyRequest]) -> tuple[AnyRequest, ...]:
    return tuple(sorted(found, key=lambda request: request.created_at))
