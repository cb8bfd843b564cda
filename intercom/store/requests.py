"""Requests for a person: approvals, prompts and standbys, the tasks by which clients poll them, and counts of them all.

They share one space of ids and one life. A request is pending, then decided, expired or interrupted, and its answer is
delivered. Every change of state is a compare-and-set: the expected state is in the statement's WHERE. Of several
concurrent writers exactly one succeeds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import evolve, frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.amendment import DecisionDetails
from intercom.model.card import CardKind
from intercom.model.decision import Decided, Signature, signature_data, signature_from_data
from intercom.model.errors import InvalidArguments
from intercom.model.process import AgentProcessState, Origin
from intercom.model.request import (
    ApprovalRequest,
    ApprovalStatus,
    ContinuationPrompt,
    FileChange,
    InstructionWait,
    PromptDecision,
    Remark,
    RiskLevel,
    Task,
    WaitStatus,
)
from intercom.model.session import SessionStatus
from intercom.store import rows
from intercom.store.rows import Codec, Columns, Connection, Part, Row, Table

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
    columns that a decision sets; `answered` names all that may hold something of it.
    """

    def __init__(
        self,
        name: str,
        kind: type[T],
        *,
        undelivered: tuple[str, ...],
        answer: Callable[[Decided], Row] = lambda _decided: {},
        answered: tuple[str, ...] = (),
        codecs: Mapping[str, Codec] | None = None,
        elsewhere: Mapping[str, Callable[[Database, Row], object]] | None = None,
    ) -> None:
        super().__init__(name, kind, parts={"decided": DECIDED}, codecs=codecs or {}, elsewhere=elsewhere or {})
        self._undelivered = undelivered
        self._answer = answer
        self._answered = answered

    def pending(self, db: Database, session_id: str | None = None) -> tuple[T, ...]:
        """Return pending requests, oldest first; of one session or of all."""
        if session_id is None:
            return self.select(db, f"status = 'pending' {_OLDEST_FIRST}")
        return self.select(db, f"status = 'pending' and session_id = ? {_OLDEST_FIRST}", (session_id,))

    def waiting(self, db: Database, session_id: str | None = None) -> int:
        """Return the number of pending requests; of one session or of all."""
        sql = f"select count(*) from {self.name} where status = 'pending' and (:id is null or session_id = :id)"
        return rows.count(db, sql, {"id": session_id})

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
        return self.select(db, where, (at,))

    def decide(self, db: Database, id: str, to: S, decided: Decided) -> bool:
        """Move a request from pending to `to`, if the decision came before the deadline.

        Returns True if this decision (same verdict id) decides the request now or did so before: a writer that crashed
        after its commit may try again. Returns False and changes nothing if another decision was first, the deadline
        has passed, or the request is unknown. The deadline does not apply to `to` = expired, a timeout with an answer.
        """
        open = "id = :id and status = 'pending' and (expires_at is null or expires_at > :at or :to = 'expired')"
        columns = {**DECIDED.write(decided), **self._answer(decided)}
        won = self.update(db, open, {"id": id, "at": decided.at, "to": to}, status=to, **columns)
        return bool(won or self.first(db, "id = ? and verdict_id = ?", (id, decided.verdict_id)))

    def reopen(self, db: Database, id: str, verdict_id: str, at: datetime) -> bool:
        """Take back the decision of this id: the request is pending again, as it was before.

        Returns False and changes nothing if another decision, or none, has decided it, if the answer was delivered or
        used, or if the request's time is over. The caller checks whether the agent may know the answer.
        """
        where = (
            "id = :id and verdict_id = :verdict and delivered_at is null and status in ('approved', 'rejected',"
            " 'decided') and (expires_at is null or expires_at > :at)"
        )
        columns = {**DECIDED.write(None), **dict.fromkeys(self._answered)}
        values = {"id": id, "verdict": verdict_id, "at": at}
        return self.update(db, where, values, status="pending", **columns) > 0

    def expire(self, db: Database, id: str, at: datetime) -> bool:
        """Expire a pending request without a decision. Returns whether this call did it. The caller checks the
        deadline."""
        return bool(self.close(db, "expired", at, "id = :id and status = 'pending'", {"id": id}))

    def mark_delivered(self, db: Database, id: str, at: datetime) -> bool:
        """Record that the agent has the answer. Returns False if already recorded or still pending."""
        where = "id = :id and delivered_at is null and status <> 'pending'"
        return self.update(db, where, {"id": id}, delivered_at=at) > 0

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
        self.update(
            db, "id in (select value from json_each(:ids))", {"ids": rows.json_text(ids)}, status=status, closed_at=at
        )
        return tuple(ids)


# --- approvals -------------------------------------------------------------------------------------------------------

_FILES = Table("approval_file", FileChange, key="request_id, position")


def _files(db: Database, row: Row) -> tuple[FileChange, ...]:
    return _FILES.select(db, "request_id = ? order by position", (row["id"],))


#: An apply in progress owns its request: it must not lapse or be interrupted until the journal entry is finished.
_NOT_BEING_APPLIED = (
    "not exists (select 1 from apply_journal as journal where journal.request_id = approval_request.id"
    " and journal.state in ('staging', 'committed', 'stuck'))"
)


#: A request that asking again attaches to: it may still be answered, applied, or told.
_ATTACHABLE = "(status in ('pending', 'approved') or (status = 'rejected' and delivered_at is null))"


def asked_sha256(text: str, file_path: str, risk: RiskLevel) -> str:
    """Return what identifies a change as an agent asks for it, wherever it asks: SHA-256 in hex."""
    asked = rows.json_text([risk.value, file_path, text])
    return hashlib.sha256(asked.encode("ascii")).hexdigest()


class Approvals(RequestTable[ApprovalRequest, ApprovalStatus]):
    """Approval requests, the files they would change, and the uses of a permission."""

    def insert(self, db: Connection, value: ApprovalRequest, *, conflict: str | None = None, **others: object) -> bool:
        """Insert a new request with its files. Returns False and changes nothing if its id exists."""
        asked = None
        if value.tool is None:
            asked = asked_sha256(value.diff_content, value.file_path, value.risk_level)
        if not super().insert(db, value, conflict=conflict, **others, asked_sha256=asked):
            return False
        for position, file in enumerate(value.files):
            _FILES.insert(db, file, request_id=value.id, position=position)
        return True

    def sessions_that_ask(
        self, db: Database, text: str, file_path: str, risk: RiskLevel, workspace_root: str, client_name: str
    ) -> tuple[str, ...]:
        """Return the live sessions of this client in this workspace with such a request that asking again might attach
        to, the newest request first; at most 20. A request counts as its agent made it, also if a person amended it;
        a permission for a client's own tool does not count."""
        # The texts may be large, so they are not read: an amendment does not change the hash.
        found = (
            "select session_id from approval_request join session on session.id = session_id"
            f" where asked_sha256 = ? and {_ATTACHABLE.replace('status', 'approval_request.status')}"
            " and workspace_root = ? and client_name = ? and session.status <> 'terminated'"
            " group by session_id order by max(approval_request.created_at) desc limit 20"
        )
        return tuple(rows.column(db, found, (asked_sha256(text, file_path, risk), workspace_root, client_name)))

    def reattachable(self, db: Database, key: str, root_ids: Sequence[int] = ()) -> ApprovalRequest | None:
        """Return the newest request with this key that asking again attaches to, or None if it must make a new one.
        That request is pending, approved and not consumed, or rejected and not delivered. With `root_ids` it is about
        the directory that has these, or was recorded without one: in another it could never be applied."""
        here = f"(root_inode is null or root_inode in ({rows.placeholders(root_ids)}))" if root_ids else "true"
        return self.first(
            db,
            f"key = ? and {_ATTACHABLE} and {here} order by created_at desc, rowid desc limit 1",
            (key, *map(str, root_ids)),
        )

    def amend(
        self, db: Database, proposed: ApprovalRequest, amended: ApprovalRequest, verdict_id: str, at: datetime
    ) -> str:
        """Replace the record of a request by that of its amendment, in the transaction of the decision. What the agent
        proposed is kept. Returns the SHA-256 of what is kept, in hex."""
        kept = _WHOLE.write(proposed)
        row = {"request_id": proposed.id, "verdict_id": verdict_id, "proposed": kept, "amended_at": clock.to_text(at)}
        rows.insert(db, "amendment", row, conflict="(request_id) do nothing")
        self._replace(db, proposed.id, amended)
        return hashlib.sha256(str(kept).encode("ascii")).hexdigest()

    def _replace(self, db: Database, id: str, record: ApprovalRequest) -> None:
        """Replace what a request would change by what is in this record."""
        columns = self.columns.write(record)
        self.update(db, "id = :id", {"id": id}, **{name: columns[name] for name in _AMENDED})
        rows.changed(db, "delete from approval_file where request_id = ?", (id,))
        for position, file in enumerate(record.files):
            _FILES.insert(db, file, request_id=id, position=position)

    def proposed(self, db: Database, request: ApprovalRequest) -> ApprovalRequest:
        """Return a request as the agent made it: without a person's amendment, and as it was before the decision."""
        found = rows.one(db, "select proposed from amendment where request_id = ?", (request.id,))
        if found is None:
            return evolve(request, details=None)
        kept: ApprovalRequest = _WHOLE.read(found["proposed"])
        # The session may be another one since.
        return evolve(kept, session_id=request.session_id)

    def reopen(self, db: Database, id: str, verdict_id: str, at: datetime) -> bool:
        """Do as for every request. What a person amended is again what the agent proposed. Returns False also if the
        change is being applied."""
        if rows.one(db, f"select 1 from approval_request where id = ? and {_NOT_BEING_APPLIED}", (id,)) is None:
            return False
        if not super().reopen(db, id, verdict_id, at):
            return False
        amended = rows.one(
            db, "select proposed from amendment where request_id = ? and verdict_id = ?", (id, verdict_id)
        )
        if amended is not None:
            proposed: ApprovalRequest = _WHOLE.read(amended["proposed"])
            self._replace(db, id, proposed)
            rows.changed(db, "delete from amendment where request_id = ?", (id,))
        return True

    def note_details(self, db: Database, id: str, details: DecisionDetails) -> None:
        """Store the structured form of a decision's text, in the transaction of the decision."""
        self.update(db, "id = :id", {"id": id}, details=_DETAILS.write(details))

    def consume(self, db: Database, id: str, at: datetime) -> bool:
        """Move an approval from approved to consumed, once. Returns False if it is unknown or in another state."""
        approved = "id = :id and status = 'approved'"
        return self.update(db, approved, {"id": id}, status=ApprovalStatus.CONSUMED, consumed_at=at) > 0

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
        return self.close(db, "expired", at, where, {"before": approved_before})

    def void(self, db: Database, id: str, at: datetime) -> bool:
        """Expire an approval that may not be applied. Returns False if it is in another state or being applied."""
        where = f"id = :id and status = 'approved' and {_NOT_BEING_APPLIED}"
        return bool(self.close(db, "expired", at, where, {"id": id}))

    def move(self, db: Database, request: ApprovalRequest, session_id: str, key: str, proposal_hash: str) -> None:
        """Move a request that is still pending in its own session to another one, with its key and hash there."""
        here = "id = :id and session_id = :session and status = 'pending'"
        moved = {"session_id": session_id, "key": key, "proposal_hash": proposal_hash}
        self.update(db, here, {"id": request.id, "session": request.session_id}, **moved)

    def interrupt(self, db: Database, session_id: str, at: datetime) -> tuple[str, ...]:
        """Interrupt requests of an ended session that are pending, or approved and not applied. Leaves out those whose
        apply is in progress or stuck. Returns their ids, oldest first."""
        where = f"session_id = :session and status in ('pending', 'approved') and {_NOT_BEING_APPLIED}"
        return self.close(db, "interrupted", at, where, {"session": session_id})

    def use(self, db: Database, request_id: str, slot: str, turn: str, call: str, at: datetime) -> bool:
        """Record a use. Returns False and changes nothing if this hook used this permission at this event before."""
        row = {"request_id": request_id, "slot": slot, "turn": turn, "call": call, "used_at": at}
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
            (key, turn, since, slot),
        )
        return None if found is None else str(found["id"])


#: The columns of a request that are those of the proposal, which an amendment replaces.
_AMENDED = (
    *("diff_content", "form", "file_path", "original_hash", "preview", "remarks", "masked", "proposal_hash"),
    "details",
)
_WHOLE = rows.json_codec(ApprovalRequest)
_DETAILS = rows.json_codec(DecisionDetails)


def _details(text: str) -> DecisionDetails | None:
    """Read the details of a decision. Returns None, which counts as no details, for what the server did not write."""
    try:
        found = _DETAILS.read(text)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, DecisionDetails) else None


def _write_remarks(remarks: tuple[Remark, ...]) -> str:
    return rows.json_text([[remark.path, remark.text] for remark in remarks])


def _read_remarks(text: str) -> tuple[Remark, ...]:
    return tuple(Remark(path, remark) for path, remark in json.loads(text))


approvals = Approvals(
    "approval_request",
    ApprovalRequest,
    undelivered=("approved", "rejected", "expired"),
    answered=("details",),
    codecs={
        "remarks": Codec(_write_remarks, _read_remarks),
        "details": Codec(_DETAILS.write, _details),
        # An inode number may be larger than SQLite's largest integer.
        "root_inode": Codec(str, int),
    },
    elsewhere={"files": _files},
)

# --- prompts and standbys --------------------------------------------------------------------------------------------


class Prompts(RequestTable[ContinuationPrompt, WaitStatus]):
    """Continuation prompts."""

    def hold(self, db: Database, id: str) -> None:
        """Remove the deadline of a pending prompt, so it waits for an answer."""
        self.update(db, "id = :id and status = 'pending'", {"id": id}, expires_at=None)


def _prompt_answer(decided: Decided) -> Row:
    if decided.decision not in set(PromptDecision):
        raise InvalidArguments(f"a prompt is answered continue, refine or stop, not {decided.decision}")
    return {"decision": str(decided.decision), "instruction": decided.text}


prompts = Prompts(
    "continuation_prompt",
    ContinuationPrompt,
    undelivered=("decided", "expired"),
    answer=_prompt_answer,
    answered=("decision", "instruction"),
)


class Waits(RequestTable[InstructionWait, WaitStatus]):
    """Standbys, in which idle agents wait for work."""

    def by_verdict(self, db: Database, session_id: str, verdict_id: str) -> InstructionWait | None:
        """Return the standby of this session that this decision ended, or None."""
        return self.first(db, "session_id = ? and verdict_id = ?", (session_id, verdict_id))


def standby_instruction(decided: Decided) -> str | None:
    """Return the text for the agent. A stop keeps the word "stop", because its text alone could read as "go on"."""
    if decided.decision == "stop":
        return f"stop: {decided.text}" if decided.text else "stop"
    return decided.text


waits = Waits(
    "wait",
    InstructionWait,
    undelivered=("decided", "expired"),
    answer=lambda decided: {"instruction": standby_instruction(decided)},
    answered=("instruction",),
)

# --- across the kinds ------------------------------------------------------------------------------------------------

AnyRequest: TypeAlias = ApprovalRequest | ContinuationPrompt | InstructionWait

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


def latest(db: Database, session_id: str, limit: int) -> tuple[AnyRequest, ...]:
    """Return the last `limit` requests of all kinds of this session, newest first."""
    newest = "session_id = ? order by created_at desc, rowid desc limit ?"
    found = (each for table in _KINDS.values() for each in table.select(db, newest, (session_id, limit)))
    return tuple(sorted(found, key=lambda request: request.created_at, reverse=True)[:limit])


#: What a search looks at in each table of requests, in SQL.
_SEARCHED = {
    CardKind.APPROVAL: (
        "id || ' ' || title || ' ' || coalesce(description, '') || ' ' || file_path || ' ' || diff_content"
    ),
    CardKind.PROMPT: "id || ' ' || prompt_text || ' ' || coalesce(instruction, '')",
    CardKind.STANDBY: "id || ' ' || message || ' ' || coalesce(instruction, '')",
}
_SEARCHED_DECISION = "coalesce(verdict, '') || ' ' || coalesce(decided_by, '') || ' ' || coalesce(decided_text, '')"


def past(
    db: Database, *, words: Sequence[str] = (), session_id: str | None = None, limit: int, start: int = 0
) -> tuple[AnyRequest, ...]:
    """Return requests of all kinds that do not wait any more, the newest first: at most `limit`, after the `start`
    newest ones. They contain all `words`, and are of this session, if these are given."""
    found = []
    values: dict[str, object] = {"session": session_id, "limit": limit, "start": start}
    for kind, table in _KINDS.items():
        matches, wanted = rows.containing(f"{_SEARCHED[kind]} || ' ' || {_SEARCHED_DECISION}", words)
        values |= wanted
        which = f"status <> 'pending' and (:session is null or session_id = :session) and {matches}"
        found.append(f"select '{kind.value}' as kind, id, created_at from {table.name} where {which}")
    union = " union all ".join(found)
    newest = rows.every(db, f"{union} order by created_at desc, id limit :limit offset :start", values)
    asked = (_KINDS[CardKind(row["kind"])].get(db, row["id"]) for row in newest)
    return tuple(request for request in asked if request is not None)


def interrupt(db: Database, session_id: str, at: datetime) -> None:
    """Interrupt the requests of all kinds of a session that ended."""
    for table in _KINDS.values():
        table.interrupt(db, session_id, at)


def interrupted(db: Database, session_id: str) -> tuple[AnyRequest, ...]:
    """Return the requests of all kinds that were interrupted with their session, oldest first."""
    return _by_age(request for table in _KINDS.values() for request in table.interrupted(db, session_id))


def note_unsent(db: Database, request: AnyRequest, verdict_id: str) -> None:
    """Record that no result has carried this decision, in its transaction. It is so until `note_sent`."""
    row = {"request_id": request.id, "session_id": request.session_id, "verdict_id": verdict_id}
    rows.insert(db, "unsent_decision", row, conflict="(request_id) do update set verdict_id = excluded.verdict_id")


def note_sent(db: Database, session_id: str) -> None:
    """Record that results may carry any decision of this session from now on."""
    rows.changed(db, "delete from unsent_decision where session_id = ?", (session_id,))


def forget_unsent(db: Database, request_id: str) -> None:
    """Delete the record about the decision of one request, which was taken back."""
    rows.changed(db, "delete from unsent_decision where request_id = ?", (request_id,))


def has_unsent(db: Database, session_id: str) -> bool:
    """Return whether this session has decisions that no result has carried."""
    return rows.one(db, "select 1 from unsent_decision where session_id = ? limit 1", (session_id,)) is not None


def is_unsent(db: Database, request: AnyRequest, verdict_id: str) -> bool:
    """Return whether it is recorded that no result has carried this decision, also in earlier runs of the server."""
    found = "select 1 from unsent_decision where request_id = ? and session_id = ? and verdict_id = ?"
    return rows.one(db, found, (request.id, request.session_id, verdict_id)) is not None


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


# --- tasks -----------------------------------------------------------------------------------------------------------


class Tasks(Table[Task]):
    """Which requests clients poll, and which tasks they cancelled. The status of a task is not stored. It is derived
    from the request, so the two cannot disagree."""

    def insert_or_get(self, db: Database, task: Task) -> Task:
        """Insert a task unless its call has one already. Returns the stored one."""
        self.insert(db, task)
        found = self.first(db, "session_id = ? and call = ?", (task.session_id, task.call))
        assert found is not None, "just inserted, or there before"
        return found

    def page(self, db: Database, session_id: str, after: str | None, limit: int) -> tuple[Task, ...]:
        """Return at most `limit` tasks of a session after the task `after`, oldest first."""
        later = "(created_at, id) > (select created_at, id from task where id = :after)"
        where = f"session_id = :session and (:after is null or {later}) order by created_at, id limit :limit"
        return self.select(db, where, {"session": session_id, "after": after, "limit": limit})

    def cancel(self, db: Database, id: str, by: str, at: datetime) -> bool:
        """Cancel a task before its request is answered.

        Returns True if this call (by name) did it, now or before. Returns False and changes nothing if the task is
        unknown, its request is no longer pending, or another call was first.
        """
        task = self.get(db, id)
        if task is None or task.cancelled_at is not None:
            return task is not None and task.cancelled_by == by
        request = find(db, task.request_id)
        if request is None or request.status.value != "pending":
            return False
        return self.update(db, "id = :id and cancelled_at is null", {"id": id}, cancelled_at=at, cancelled_by=by) > 0

    def asked_after(self, db: Database, session_id: str) -> tuple[str, ...]:
        """Return the requests of a session that have a task which is not cancelled."""
        sql = "select distinct request_id from task where session_id = ? and cancelled_at is null order by request_id"
        return tuple(rows.column(db, sql, (session_id,)))


tasks = Tasks("task", Task, conflict="do nothing")

# --- counts ----------------------------------------------------------------------------------------------------------

#: What waits for a person, by kind: the table, and the condition on its rows.
_WAITING = {
    CardKind.APPROVAL: ("approval_request", "status = 'pending'"),
    CardKind.PROMPT: ("continuation_prompt", "status = 'pending'"),
    CardKind.STANDBY: ("wait", "status = 'pending'"),
    CardKind.STALL: ("stall_alert", "status in ('pending', 'nudged', 'escalated')"),
    CardKind.APPLY: ("apply_journal", "state = 'stuck'"),
    CardKind.RESTORE: ("restore", "state in ('asked', 'stuck')"),
}
#: The same for instructions from people, which wait for an agent.
_UNTOLD = "delivered_at is null and closed_at is null"
_QUEUED = {
    CardKind.STEER: ("instruction", f"{_UNTOLD} and kind <> 'task'"),
    CardKind.TASK: ("instruction", f"{_UNTOLD} and kind = 'task'"),
}


@frozen
class Waiting:
    """How many wait, and since when the oldest does (None if none)."""

    count: int = 0
    oldest: datetime | None = None


@frozen
class Counts:
    """The counts as of one moment, for metrics.

    `pending` has every kind that waits for a person, `queued` every kind that waits for an agent. `sessions` has every
    status. `agents` counts agent processes started by people, by state, without those that are over.
    """

    pending: Mapping[CardKind, Waiting]
    queued: Mapping[CardKind, Waiting]
    sessions: Mapping[SessionStatus, int]
    agents: Mapping[AgentProcessState, int]


def counts(db: Database) -> Counts:
    """Count everything, as of one moment."""

    def waiting(table: str, which: str) -> Waiting:
        [found] = db.execute(f"select count(*), min(created_at) from {table} where {which}").fetchall()
        return Waiting(found[0], rows.time_value(found[1]))

    statuses = dict(db.execute("select status, count(*) from session group by status").fetchall())
    states = dict(db.execute("select state, count(*) from spawned_agent group by state").fetchall())
    return Counts(
        {kind: waiting(*where) for kind, where in _WAITING.items()},
        {kind: waiting(*where) for kind, where in _QUEUED.items()},
        {status: statuses.get(status.value, 0) for status in SessionStatus},
        {state: states.get(state.value, 0) for state in AgentProcessState if state is not AgentProcessState.OVER},
    )
