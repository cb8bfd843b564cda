"""The audit log: who did what, when and from where. Entries are only added, each chained to the previous by hash.

The hash of an entry covers its columns and the previous hash. So the chain reveals entries that were changed, removed
or inserted. A program that can write the database can rewrite the whole chain, so its head is also stored outside
(`audit_chain`). Retention deletes only the oldest entries, as a whole, and records it (`prune`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import frozen
from sqlite_utils import Database

from intercom.model import clock
from intercom.model.audit import AuditEntry
from intercom.store import audit_chain, rows
from intercom.store.audit_chain import GENESIS, PRUNED, Entry, entry_data, entry_hash
from intercom.store.rows import Codec, Table
from intercom.store.schema import ENDS_OF_INSTRUCTIONS

#: The kind of the entry of settings that a person signed.
SETTINGS_SIGNED = "settings_signed"


def record(
    db: Database,
    at: datetime,
    kind: str,
    session_id: str | None,
    who: str,
    summary: str,
    data: Mapping[str, Any] | None = None,
) -> int:
    """Add an entry, in the transaction of the change it records. Returns its id."""
    last = rows.one(db, "select id, hash from audit order by id desc limit 1")
    id, previous = (1, GENESIS) if last is None else (last["id"] + 1, last["hash"])
    text = None if data is None else rows.json_text(dict(data))
    entry = Entry(id, clock.to_text(at), kind, session_id, who, summary, text, previous, "")
    entry = entry._replace(hash=entry_hash(entry))
    db.execute(f"insert into audit ({', '.join(Entry._fields)}) values ({', '.join('?' * len(entry))})", entry)
    return entry.id


# Another program may have stored anything in any column. The queries below must not fail on it.


def _said(name: str) -> str:
    """Return SQL for the value under `name` in an entry's data; null if the data is not JSON."""
    return f"case when json_valid(data) then json_extract(data, '$.{name}') end"


def instant(text: str) -> datetime:
    """Return the time of an entry; 1970 if it is unreadable."""
    try:
        return clock.from_text(text)
    except (TypeError, ValueError, OverflowError):
        return datetime.fromtimestamp(0, UTC)


_ENTRIES = Table(
    "audit",
    AuditEntry,
    codecs={
        "at": Codec(clock.to_text, instant),
        "data": Codec(rows.json_text, entry_data),
    },
)


#: The title of the proposal that an entry is about, in SQL. People read it with the entry.
_TITLE = f"(select title from approval_request where approval_request.id = {_said('request_id')})"
#: What a search looks at, in SQL. A value that another program stored may be of any type.
_SEARCHED = (
    "kind || ' ' || who || ' ' || summary || ' ' || coalesce(session_id, '') || ' ' || coalesce(data, '')"
    f" || ' ' || coalesce({_TITLE}, '')"
)


def recent(
    db: Database,
    limit: int,
    session_id: str | None = None,
    after_id: int | None = None,
    *,
    before_id: int | None = None,
    words: Sequence[str] = (),
) -> tuple[AuditEntry, ...]:
    """Return the newest `limit` entries, or the first `limit` after `after_id`; oldest first either way. They are of
    one session or of all, older than the entry `before_id`, and contain all `words`, if these are given."""
    where = ["true"] if session_id is None else ["session_id = :session"]
    if before_id is not None:
        where.append("id < :before")
    matches, wanted = rows.containing(_SEARCHED, words)
    values = {"session": session_id, "after": after_id, "before": before_id, "limit": limit, **wanted}
    which = " and ".join([*where, matches])
    if after_id is not None:
        return _ENTRIES.select(db, f"{which} and id > :after order by id limit :limit", values)
    return _ENTRIES.select(db, f"{which} order by id desc limit :limit", values)[::-1]


def newest_at(db: Database, kinds: Sequence[str]) -> datetime | None:
    """Return the time of the newest entry of these kinds; None if there is none."""
    sql = f"select at from audit where kind in ({rows.placeholders(kinds)}) order by id desc limit 1"
    at = rows.value(db, sql, tuple(kinds))
    return None if at is None else instant(at)


def first_use(db: Database, session_id: str, request_id: str) -> datetime | None:
    """Return when an approved request of this session was first applied, or its operation first allowed."""
    used = "session_id = ? and kind in ('applied', 'permission_used')"
    sql = f"select min(at) from audit where {used} and {_said('request_id')} = ?"
    at = rows.value(db, sql, (session_id, request_id))
    return None if at is None else instant(at)


def instruction_end(db: Database, id: str) -> int | None:
    """Return the id of the first entry that says an instruction was delivered or cancelled, or None."""
    sql = f"select min(id) from audit where {ENDS_OF_INSTRUCTIONS} and {_said('instruction_id')} = ?"
    found: int | None = rows.value(db, sql, (id,))
    return found


def standby_end(db: Database, request_id: str) -> tuple[int, tuple[str, ...], tuple[str, ...]] | None:
    """Return the id of the entry that ended this standby, the ids of its instructions, and those of the decided
    requests; or None."""
    row = rows.one(
        db,
        f"select id, data from audit where {ENDS_OF_INSTRUCTIONS} and kind = 'standby_ended'"
        f" and {_said('request_id')} = ? order by id limit 1",
        (request_id,),
    )
    if row is None:
        return None
    named = (entry_data(row["data"]).get(name) for name in ("instruction_ids", "decided_ids"))
    instructions, decided = (tuple(map(str, ids if isinstance(ids, list) else ())) for ids in named)
    return row["id"], instructions, decided


#: The kind of the entry of a decision that a person took back.
DECISION_TAKEN_BACK = audit_chain.TAKEN_BACK


def decisions_taken_back(db: Database, session_id: str) -> tuple[str, ...]:
    """Return the ids of the decisions about this session's requests that people took back, and of their signed acts
    that did so. The signatures of neither count any more."""
    mine = f"session_id = ? and kind = '{DECISION_TAKEN_BACK}'"
    ids = [f"select {_said(name)} as id from audit where {mine}" for name in ("verdict_id", "signature.decision_id")]
    found = rows.column(db, " union ".join(ids), (session_id, session_id))
    return tuple(each for each in found if isinstance(each, str))


def was_adopted(db: Database, session_id: str, by: str) -> bool:
    """Whether session `by` adopted the agent of a session, directly or through others."""
    seen = {session_id}
    while session_id != by:
        adopted = f"kind = 'session_adopted' and {_said('was')} = ?"
        sql = f"select session_id from audit where {adopted} order by id desc limit 1"
        session_id = rows.value(db, sql, (session_id,))
        if session_id in (None, *seen):
            return False
        seen.add(session_id)
    return True


#: The kind of the entry of a later process that continues a session.
SESSION_CONTINUED = "session_continued"


def continued_by(db: Database, session_id: str, was: str | None) -> tuple[str, ...]:
    """Return the keys of the last 20 processes that have continued this session since it is of the agent `was`."""
    mine = f"session_id = ? and kind = '{SESSION_CONTINUED}' and {_said('was')} = ?"
    found = rows.column(
        db, f"select {_said('by')} from audit where {mine} order by id desc limit 20", (session_id, was)
    )
    return tuple(each for each in found if isinstance(each, str))


def broadcasts(db: Database, session_id: str, since: datetime) -> int:
    """Return how many lines the agent of this session has broadcast since then."""
    sql = "select count(*) from audit where session_id = ? and kind = 'broadcast' and at >= ?"
    return rows.count(db, sql, (session_id, since))


def restore_states(db: Database, session_id: str, id: str) -> frozenset[str]:
    """Return the states that a restore has reached since it was accepted."""
    found = rows.column(
        db,
        f"select {_said('state')} from audit where session_id = ? and kind = 'restore' and {_said('restore_id')} = ?",
        (session_id, id),
    )
    return frozenset(map(str, found))


def restore_steps(db: Database, session_id: str, id: str) -> str | None:
    """Return the hash of the steps that a restore was committed to, or None."""
    steps = rows.value(
        db,
        f"select {_said('steps')} from audit where session_id = ? and kind = 'restore'"
        f" and {_said('restore_id')} = ? and {_said('state')} = 'committed'",
        (session_id, id),
    )
    return None if steps is None else str(steps)


def policy_decisions(db: Database, root: str) -> tuple[tuple[str, bool], ...]:
    """Return the decisions about policies of this workspace, oldest first, as (content hash, accepted)."""
    found = rows.every(
        db,
        f"select kind, {_said('sha256')} as sha from audit where session_id is null"
        f" and kind in ('policy_accept', 'policy_reject') and {_said('workspace_root')} = ? order by id",
        (root,),
    )
    return tuple((str(row["sha"]), row["kind"] == "policy_accept") for row in found)


def policy_narrowing(db: Database, root: str) -> str | None:
    """Return the hash of what the accepted policy of this workspace was last narrowed to. Returns "" if it was not
    narrowed since it was accepted, None if the log does not say."""
    row = rows.one(
        db,
        f"select kind, {_said('narrowing')} as sha from audit where session_id is null"
        " and kind in ('policy_accept', 'policy_narrowed', 'policy_widened')"
        f" and {_said('workspace_root')} = ? order by id desc limit 1",
        (root,),
    )
    if row is None:
        return None
    if row["kind"] != "policy_narrowed":
        return ""
    # An older version recorded no hash.
    return None if row["sha"] is None else str(row["sha"])


def settings_signed_at(db: Database, until: datetime) -> str:
    """Return when the newest signed settings recorded up to `until` were signed; "" if there are none."""
    at = _said("at")
    sql = f"select max({at}) from audit where session_id is null and kind = '{SETTINGS_SIGNED}' and {at} <= ?"
    found = rows.value(db, sql, (until,))
    return found if isinstance(found, str) else ""


@frozen
class KeyRevocation:
    """A revocation of an operator key, as the log has it. Its signature is not verified."""

    id: str
    at: str
    by: str
    signature: str


def key_revocations(db: Database) -> tuple[KeyRevocation, ...]:
    """Return the recorded revocations of operator keys, oldest first."""
    names = ("key_id", "at", "by", "signature")
    sql = f"select {', '.join(map(_said, names))} from audit where kind = 'operator_key_revoked' order by id"
    return tuple(KeyRevocation(*(str(part) for part in row)) for row in db.execute(sql).fetchall())


def prune(db: Database, cutoff: datetime, limit: int) -> dict[str, Any] | None:
    """Delete the oldest entries, at most `limit`, before the first that is as young as `cutoff` or of an existing
    session.

    Returns the data for an entry of kind `purged`, or None if nothing was deleted. The caller records it in the same
    transaction: it contains the previous hash of the oldest entry left.
    """
    needed = "at >= ? or session_id in (select id from session)"
    # The newest entry always stays, because the next one continues its chain.
    newest = rows.count(db, "select coalesce(max(id), 0) from audit")
    end = min(newest, rows.count(db, f"select coalesce(min(id), {newest}) from audit where {needed}", (cutoff,)))
    last = rows.one(
        db,
        "select id, hash from audit where id in (select id from audit where id < ? order by id limit ?)"
        " order by id desc limit 1",
        (end, limit),
    )
    if last is None:
        return None
    count = rows.affected(db, "delete from audit where id <= ?", (last["id"],))
    return {PRUNED: {"through": last["id"], "hash": last["hash"], "count": count}}
